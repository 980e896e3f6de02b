//! `union bpf_attr`: the bytes that come with a command, and where its fields lie in them.
//!
//! Kernel counterpart: `include/uapi/linux/bpf.h` and the checks at the top of `__sys_bpf`. Fields
//! are read where they lie instead of through one struct a command: what a command must not find
//! behind its last field is a question about bytes.

use towpath_bpf::Errno;

use crate::caller::{Caller, is_zeroed};

/// Bytes of `union bpf_attr` (Linux 6.18).
pub const ATTR_BYTES: usize = 168;

/// Bytes of an object's name with its terminating zero (`BPF_OBJ_NAME_LEN`).
pub(crate) const NAME_BYTES: usize = 16;

/// The attribute of one call.
#[derive(Debug, Clone)]
pub(crate) struct Attr {
    bytes: [u8; ATTR_BYTES],
    /// Its address at the caller: some commands write results there.
    address: u64,
    /// Size of the caller's version.
    size: u32,
}

impl Attr {
    /// Copies an attribute in; fields that the caller's version lacks read as zero
    /// (`bpf_check_uarg_tail_zero`).
    ///
    /// # Errors
    ///
    /// `E2BIG`: longer than a page, or not zero behind what is known here. `EFAULT`.
    pub(crate) fn read(caller: &dyn Caller, address: u64, size: u32) -> Result<Attr, Errno> {
        check_tail(caller, address, ATTR_BYTES, size)?;
        let mut bytes = [0; ATTR_BYTES];
        let known = (size as usize).min(ATTR_BYTES);
        caller.read(address, &mut bytes[..known])?;
        Ok(Attr { bytes, address, size })
    }

    /// `CHECK_ATTR`: nothing is set behind a command's last field.
    pub(crate) fn ends_at(&self, end: usize) -> Result<(), Errno> {
        if self.bytes[end..].iter().all(|&byte| byte == 0) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The 32-bit field at an offset.
    pub(crate) fn u32(&self, offset: usize) -> u32 {
        self.array(offset).map_or(0, u32::from_ne_bytes)
    }

    /// The 64-bit field at an offset.
    pub(crate) fn u64(&self, offset: usize) -> u64 {
        self.array(offset).map_or(0, u64::from_ne_bytes)
    }

    /// The bytes at an offset; `None` past the end.
    pub(crate) fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.get(offset..)?.first_chunk().copied()
    }

    /// The caller's address of the field at an offset.
    pub(crate) fn address(&self, offset: usize) -> u64 {
        self.address.wrapping_add(offset as u64)
    }

    /// Writes a result into a 32-bit field of the caller's attribute.
    pub(crate) fn answer(
        &self,
        caller: &mut dyn Caller,
        offset: usize,
        value: u32,
    ) -> Result<(), Errno> {
        caller.write(self.address(offset), &value.to_ne_bytes())
    }

    /// As [`Attr::answer`], if the caller's attribute is new enough to have the field.
    pub(crate) fn answer_if_known(
        &self,
        caller: &mut dyn Caller,
        offset: usize,
        value: u32,
    ) -> Result<(), Errno> {
        if (self.size as usize) < offset + 4 {
            return Ok(());
        }
        self.answer(caller, offset, value)
    }
}

/// `bpf_check_uarg_tail_zero`: a struct of `size` bytes, of which `known` mean something here.
pub(crate) fn check_tail(
    caller: &dyn Caller,
    address: u64,
    known: usize,
    size: u32,
) -> Result<(), Errno> {
    if size as usize > PAGE_BYTES {
        return Err(Errno::E2BIG);
    }
    let Some(more) = (size as usize).checked_sub(known) else { return Ok(()) };
    let tail = address.wrapping_add(known as u64);
    if is_zeroed(caller, tail, more)? { Ok(()) } else { Err(Errno::E2BIG) }
}

const PAGE_BYTES: usize = 4096;

/// Declares the offsets of one command's fields, and where its last one ends.
macro_rules! fields {
    ($(#[$meta:meta])* $command:ident, end $end:literal: $($name:ident = $offset:literal),+) => {
        $(#[$meta])*
        pub(crate) mod $command {
            $(pub(crate) const $name: usize = $offset;)+
            pub(crate) const END: usize = $end;
        }
    };
    // As above, for code that makes attributes itself.
    (pub $command:ident, end $end:literal: $($name:ident = $offset:literal),+) => {
        #[doc = concat!("Where the fields of `", stringify!($command), "` are.")]
        pub mod $command {
            $(
                #[doc = concat!("Bytes in front of `", stringify!($name), "`.")]
                pub const $name: usize = $offset;
            )+
            pub(crate) const END: usize = $end;
        }
    };
}

fields!(map_create, end 92: MAP_TYPE = 0, KEY_SIZE = 4, VALUE_SIZE = 8, MAX_ENTRIES = 12,
    MAP_FLAGS = 16, INNER_MAP_FD = 20, NUMA_NODE = 24, MAP_NAME = 28, MAP_IFINDEX = 44,
    BTF_FD = 48, BTF_KEY_TYPE_ID = 52, BTF_VALUE_TYPE_ID = 56, BTF_VMLINUX_VALUE_TYPE_ID = 60,
    MAP_EXTRA = 64, MAP_TOKEN_FD = 76, EXCL_PROG_HASH = 80, EXCL_PROG_HASH_SIZE = 88);
fields!(
    /// Commands on one element; each ends at another field.
    element, end 32: MAP_FD = 0, KEY = 8, VALUE = 16, FLAGS = 24);
fields!(obj, end 20: PATHNAME = 0, BPF_FD = 8, FILE_FLAGS = 12, PATH_FD = 16);
fields!(
    /// `*_GET_NEXT_ID` and `*_GET_FD_BY_ID`.
    id, end 12: START_ID = 0, NEXT_ID = 4, OPEN_FLAGS = 8, TOKEN_FD = 12);
fields!(pub prog_load, end 168: PROG_TYPE = 0, INSN_CNT = 4, INSNS = 8, LICENSE = 16,
    LOG_LEVEL = 24, LOG_SIZE = 28, LOG_BUF = 32, PROG_FLAGS = 44, PROG_NAME = 48, PROG_IFINDEX = 64,
    EXPECTED_ATTACH_TYPE = 68, PROG_BTF_FD = 72, FUNC_INFO_REC_SIZE = 76, FUNC_INFO = 80,
    FUNC_INFO_CNT = 88, LINE_INFO_REC_SIZE = 92, LINE_INFO = 96, LINE_INFO_CNT = 104,
    ATTACH_BTF_ID = 108, ATTACH_PROG_FD = 112, FD_ARRAY = 120, LOG_TRUE_SIZE = 140,
    PROG_TOKEN_FD = 144, FD_ARRAY_CNT = 148, SIGNATURE = 152);
fields!(pub btf_load, end 40: BTF = 0, BTF_LOG_BUF = 8, BTF_SIZE = 16, BTF_LOG_SIZE = 20,
    BTF_LOG_LEVEL = 24, BTF_LOG_TRUE_SIZE = 28, BTF_FLAGS = 32, BTF_TOKEN_FD = 36);
fields!(bind_map, end 12: PROG_FD = 0, MAP_FD = 4, FLAGS = 8);
fields!(enable_stats, end 4: TYPE = 0);
fields!(batch, end 56: IN_BATCH = 0, OUT_BATCH = 8, KEYS = 16, VALUES = 24, COUNT = 32,
    MAP_FD = 36, ELEM_FLAGS = 40, FLAGS = 48);
fields!(test_run, end 76: PROG_FD = 0, RETVAL = 4, DATA_SIZE_IN = 8, DATA_SIZE_OUT = 12,
    DATA_IN = 16, DATA_OUT = 24, REPEAT = 32, DURATION = 36, CTX_SIZE_IN = 40, CTX_SIZE_OUT = 44,
    CTX_IN = 48, CTX_OUT = 56, FLAGS = 64, BATCH_SIZE = 72);
fields!(link_create, end 60: PROG_FD = 0, TARGET_IFINDEX = 4, ATTACH_TYPE = 8, FLAGS = 12);
fields!(link_update, end 16: LINK_FD = 0, NEW_PROG_FD = 4, FLAGS = 8, OLD_PROG_FD = 12);
fields!(link_detach, end 4: LINK_FD = 0);
fields!(stream_read, end 20: BUF = 0, BUF_LEN = 8, STREAM_ID = 12, PROG_FD = 16);
fields!(info, end 16: BPF_FD = 0, INFO_LEN = 4, INFO = 8);
