//! The `bpf(2)` system call; the only module of this crate with unsafe code.
//!
//! The kernel reads and writes memory at addresses in the attribute, of sizes given by the map or
//! the attribute. Each function here takes slices and checks that they are long enough, so that no
//! caller can pass a wrong address to the kernel.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use towpath_bpf::Errno;
use towpath_bpf::btf::emit::{FUNC_INFO_BYTES, LINE_INFO_BYTES};

use crate::uapi::{
    BtfLoad, Command, LinkCreate, MapCreate, MapElement, ObjInfo, ProgInfo, ProgLoad, ProgTestRun,
};

/// A map, with the sizes that the kernel copies for it, fixed at its creation.
#[derive(Debug)]
pub(crate) struct MapFd {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl MapFd {
    /// `BPF_MAP_CREATE`. `value_bytes` is the size of one element in user space, which for per-CPU
    /// kinds is larger than the value size.
    pub(crate) fn create(attr: &MapCreate, value_bytes: usize) -> Result<Self, Errno> {
        let mut attr = *attr;
        // SAFETY: the attribute holds no pointer.
        let fd = unsafe { call(Command::MapCreate, &mut attr) }?;
        // SAFETY: on success the kernel returns a new descriptor that no other code owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(MapFd { fd, key_bytes: attr.key_size as usize, value_bytes })
    }

    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// `BPF_MAP_UPDATE_ELEM`.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.check(key, self.key_bytes)?;
        self.check(value, self.value_bytes)?;
        let mut attr = MapElement { value: address(value), flags, ..self.element(key) };
        // SAFETY: key and value are as long as the kernel reads for this map (checked above).
        unsafe { call(Command::MapUpdateElem, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_LOOKUP_ELEM` into `value`.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        self.check(key, self.key_bytes)?;
        self.check(value, self.value_bytes)?;
        let mut attr = MapElement { value: address_mut(value), flags, ..self.element(key) };
        // SAFETY: the key is as long as the kernel reads, the value as long as it writes.
        unsafe { call(Command::MapLookupElem, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_DELETE_ELEM`.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.check(key, self.key_bytes)?;
        let mut attr = self.element(key);
        // SAFETY: the key is as long as the kernel reads for this map.
        unsafe { call(Command::MapDeleteElem, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_GET_NEXT_KEY`: the key after `key`, or the first.
    pub(crate) fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        if let Some(key) = key {
            self.check(key, self.key_bytes)?;
        }
        self.check(next, self.key_bytes)?;
        let mut attr = MapElement {
            map_fd: number(self.fd.as_fd()),
            key: key.map_or(0, address),
            value: address_mut(next),
            ..MapElement::default()
        };
        // SAFETY: both keys are as long as the kernel reads and writes for this map.
        unsafe { call(Command::MapGetNextKey, &mut attr) }.map(drop)
    }

    /// `BPF_MAP_FREEZE`: from now on only programs may write.
    pub(crate) fn freeze(&self) -> Result<(), Errno> {
        let mut attr = MapElement { map_fd: number(self.fd.as_fd()), ..MapElement::default() };
        // The kernel insists on zeroes after `map_fd`, which this is.
        // SAFETY: the command reads no pointer.
        unsafe { call(Command::MapFreeze, &mut attr) }.map(drop)
    }

    /// An attribute for this map and key; maps without keys (queue, stack, bloom) take none.
    fn element(&self, key: &[u8]) -> MapElement {
        let key = if self.key_bytes == 0 { 0 } else { address(key) };
        MapElement { map_fd: number(self.fd.as_fd()), key, ..MapElement::default() }
    }

    fn check(&self, bytes: &[u8], needed: usize) -> Result<(), Errno> {
        if bytes.len() == needed { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `BPF_BTF_LOAD`; the kernel's error message goes to `log`.
pub(crate) fn btf_load(btf: &[u8], log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let mut attr = BtfLoad {
        btf: address(btf),
        btf_size: size(btf)?,
        btf_log_buf: if log.is_empty() { 0 } else { address_mut(log) },
        btf_log_size: size(log)?,
        btf_log_level: u32::from(!log.is_empty()),
        ..BtfLoad::default()
    };
    // SAFETY: both buffers live and have the sizes given.
    let fd = unsafe { call(Command::BtfLoad, &mut attr) }?;
    // SAFETY: on success the kernel returns a new descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Parts of a program that `BPF_PROG_LOAD` takes by pointer.
#[derive(Debug, Default)]
pub(crate) struct ProgramImage<'a> {
    pub(crate) insns: &'a [u8],
    /// The licence with its terminating zero.
    pub(crate) license: &'a [u8],
    /// `struct bpf_func_info` records.
    pub(crate) func_info: &'a [u8],
    /// `struct bpf_line_info` records.
    pub(crate) line_info: &'a [u8],
}

/// `BPF_PROG_LOAD`; the verifier's log goes to `log`.
pub(crate) fn prog_load(
    image: &ProgramImage<'_>,
    numbers: &ProgLoad,
    log: &mut [u8],
) -> Result<OwnedFd, Errno> {
    if image.license.last() != Some(&0) {
        return Err(Errno::EINVAL);
    }
    let mut attr = ProgLoad {
        insns: address(image.insns),
        insn_count: size(image.insns)? / 8,
        license: address(image.license),
        func_info: address(image.func_info),
        func_info_rec_size: FUNC_INFO_BYTES as u32,
        func_info_count: size(image.func_info)? / FUNC_INFO_BYTES as u32,
        line_info: address(image.line_info),
        line_info_rec_size: LINE_INFO_BYTES as u32,
        line_info_count: size(image.line_info)? / LINE_INFO_BYTES as u32,
        log_buf: if log.is_empty() { 0 } else { address_mut(log) },
        log_size: size(log)?,
        log_level: if log.is_empty() { 0 } else { numbers.log_level },
        ..*numbers
    };
    // SAFETY: every pointer is that of a live slice of the given size; the licence ends in zero.
    let fd = unsafe { call(Command::ProgLoad, &mut attr) }?;
    // SAFETY: on success the kernel returns a new descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The buffers of one `BPF_PROG_TEST_RUN`.
#[derive(Debug)]
pub(crate) struct TestRunBuffers<'a> {
    pub(crate) data_in: &'a [u8],
    pub(crate) data_out: &'a mut [u8],
    pub(crate) context_in: &'a [u8],
    pub(crate) context_out: &'a mut [u8],
}

/// `BPF_PROG_TEST_RUN`; returns the attribute with the results filled in, and the errno if any
/// (`ENOSPC` comes with results).
pub(crate) fn prog_test_run(
    prog: BorrowedFd<'_>,
    buffers: &mut TestRunBuffers<'_>,
    numbers: &ProgTestRun,
) -> Result<(ProgTestRun, Option<Errno>), Errno> {
    let mut attr = ProgTestRun {
        prog_fd: number(prog),
        data_in: address(buffers.data_in),
        data_size_in: size(buffers.data_in)?,
        data_out: if buffers.data_out.is_empty() { 0 } else { address_mut(buffers.data_out) },
        data_size_out: size(buffers.data_out)?,
        ctx_in: address(buffers.context_in),
        ctx_size_in: size(buffers.context_in)?,
        ctx_out: if buffers.context_out.is_empty() { 0 } else { address_mut(buffers.context_out) },
        ctx_size_out: size(buffers.context_out)?,
        ..*numbers
    };
    // SAFETY: every pointer is that of a live slice of the given size; the two the kernel writes
    // are borrowed mutably.
    let outcome = unsafe { call(Command::ProgTestRun, &mut attr) };
    Ok((attr, outcome.err()))
}

/// `BPF_PROG_TEST_RUN` of a program that users call, on a context that it may change; returns its
/// result.
pub(crate) fn prog_call(prog: BorrowedFd<'_>, context: &mut [u8]) -> Result<u32, Errno> {
    let mut attr = ProgTestRun {
        prog_fd: number(prog),
        ctx_size_in: size(context)?,
        ctx_in: if context.is_empty() { 0 } else { address_mut(context) },
        ..ProgTestRun::default()
    };
    // SAFETY: the pointer is that of a live slice of the given size, which is borrowed mutably.
    unsafe { call(Command::ProgTestRun, &mut attr) }?;
    Ok(attr.retval)
}

/// `BPF_OBJ_GET_INFO_BY_FD` for a program, sizes only.
pub(crate) fn prog_info(prog: BorrowedFd<'_>) -> Result<ProgInfo, Errno> {
    let mut info = ProgInfo::default();
    let mut attr = ObjInfo {
        bpf_fd: number(prog),
        info_len: size_of::<ProgInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    // SAFETY: `info` lives and has the length given; all its pointers are zero.
    unsafe { call(Command::ObjGetInfoByFd, &mut attr) }?;
    Ok(info)
}

/// `BPF_LINK_CREATE`.
pub(crate) fn link_create(numbers: &LinkCreate) -> Result<OwnedFd, Errno> {
    let mut attr = *numbers;
    // SAFETY: the attribute holds no pointer.
    let fd = unsafe { call(Command::LinkCreate, &mut attr) }?;
    // SAFETY: on success the kernel returns a new descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves the calling thread into a new, empty network namespace.
pub(crate) fn unshare_network() -> Result<(), Errno> {
    // SAFETY: the call takes no pointer and changes nothing that Rust code relies on.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Mounts a file system that needs no source, without a mount point: paths lead through the
/// descriptor.
pub(crate) fn mount_detached(kind: &CStr) -> Result<OwnedFd, Errno> {
    let descriptor = |result: libc::c_long| {
        let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(last_errno)?;
        // SAFETY: on success the kernel returns a new descriptor that no other code owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    // The close-on-exec flags of both calls are 1.
    // SAFETY: `kind` is a text that ends with a NUL and outlives the call.
    let context =
        descriptor(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1 as libc::c_uint) })?;
    let none = std::ptr::null::<libc::c_char>();
    let fd = context.as_raw_fd();
    // SAFETY: this command takes no key, no value and no number.
    if unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: the call takes no pointer.
    descriptor(unsafe { libc::syscall(libc::SYS_fsmount, fd, 1 as libc::c_uint, 0) })
}

/// Runs `action` on this thread without the effective capabilities of `mask` (bits as in
/// `capability.h`, 64 of them), then restores them.
pub(crate) fn without_capabilities<T>(mask: u64, action: impl FnOnce() -> T) -> Result<T, Errno> {
    let before = capabilities()?;
    let mut reduced = before;
    for (set, mask) in reduced.iter_mut().zip([mask as u32, (mask >> 32) as u32]) {
        set.effective &= !mask;
    }
    set_capabilities(&reduced)?;
    let result = action();
    set_capabilities(&before)?;
    Ok(result)
}

/// `struct __user_cap_data_struct`; two of them hold 64 capabilities.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct CapabilitySet {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `struct __user_cap_header_struct` for this thread: `_LINUX_CAPABILITY_VERSION_3`, pid 0.
const CAPABILITY_HEADER: [u32; 2] = [0x2008_0522, 0];

fn capabilities() -> Result<[CapabilitySet; 2], Errno> {
    let mut header = CAPABILITY_HEADER;
    let mut sets = [CapabilitySet::default(); 2];
    // SAFETY: header and sets live and have the layout of version 3.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    if result == 0 { Ok(sets) } else { Err(last_errno()) }
}

fn set_capabilities(sets: &[CapabilitySet; 2]) -> Result<(), Errno> {
    let mut header = CAPABILITY_HEADER;
    // SAFETY: header and sets live and have the layout of version 3; the sets are only read.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// One `bpf(2)`.
///
/// # Safety
/// `A` must be the attribute of `command`, and each pointer in it must be valid for the kernel's
/// reads and writes.
unsafe fn call<A>(command: Command, attr: &mut A) -> Result<i32, Errno> {
    // SAFETY: the attribute lives, has the size given, and the caller vouches for its contents.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attr),
            size_of::<A>() as libc::c_ulong,
        )
    };
    if result >= 0 { Ok(result as i32) } else { Err(last_errno()) }
}

pub(crate) fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(Errno::EINVAL.0))
}

/// A file descriptor in the form of attributes.
pub(crate) fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

fn size(bytes: &[u8]) -> Result<u32, Errno> {
    u32::try_from(bytes.len()).ok().ok_or(Errno::E2BIG)
}

fn address(bytes: &[u8]) -> u64 {
    if bytes.is_empty() { 0 } else { bytes.as_ptr() as u64 }
}

fn address_mut(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr() as u64
}
