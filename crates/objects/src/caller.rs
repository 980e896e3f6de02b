//! The caller of a command: its memory and its descriptors.
//!
//! The kernel takes both from the current task. Here they come through [`Caller`], so that the
//! caller may be a supervised process, a guest, or ([`Process`]) the API of this process.

use std::collections::BTreeMap;

use towpath_bpf::Errno;

use crate::object::Handle;

/// The task that a command comes from.
pub trait Caller {
    /// `copy_from_user`: fills `out` from the caller's memory; `EFAULT` where there is none.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno>;

    /// `copy_to_user`; `EFAULT` where there is no memory, or it may not be written.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// The object behind a descriptor: `EBADF` when it isn't open, `EINVAL` when it is a file of
    /// another kind.
    fn handle(&self, descriptor: u32) -> Result<Handle, Errno>;

    /// Gives the caller a new descriptor (close-on-exec, as all of `bpf(2)`).
    fn install(&mut self, handle: Handle) -> Result<u32, Errno>;

    /// The id and queue of the AF_XDP socket behind a descriptor (ids are never 0).
    fn socket(&self, descriptor: u32) -> Result<(u32, u32), Errno> {
        match self.handle(descriptor) {
            Err(Errno::EBADF) => Err(Errno::EBADF),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// The absolute form of a path, which is relative to a directory of the caller's, or else to
    /// its working directory.
    fn absolute(&self, directory: Option<u32>, path: &str) -> Result<String, Errno> {
        match directory {
            _ if path.starts_with('/') => Ok(path.to_owned()),
            None => Ok(format!("/{path}")),
            Some(_) => Err(Errno::EBADF),
        }
    }

    /// The caller's user id, which is noted for objects that it creates.
    fn uid(&self) -> u32 {
        0
    }
}

/// A caller inside this process: some memory, and descriptors.
///
/// ```
/// use towpath_objects::{Caller, Process};
///
/// let mut process = Process::new(0);
/// let address = process.map_bytes(b"/sys/fs/bpf/pin\0");
/// let mut start = [0; 4];
/// process.read(address, &mut start)?;
/// assert_eq!(&start, b"/sys");
/// # Ok::<(), towpath_bpf::Errno>(())
/// ```
#[derive(Debug, Default)]
pub struct Process {
    uid: u32,
    /// Pieces of memory by address; between any two there is a gap.
    memory: BTreeMap<u64, Vec<u8>>,
    descriptors: BTreeMap<u32, Handle>,
}

impl Process {
    /// A process of a user without memory, and without descriptors but the first three.
    pub fn new(uid: u32) -> Process {
        Process { uid, ..Process::default() }
    }

    /// Adds memory with these contents, and returns its address. Pages around it are not mapped.
    pub fn map_bytes(&mut self, bytes: &[u8]) -> u64 {
        let end = |(start, piece): (&u64, &Vec<u8>)| start + piece.len() as u64;
        let behind = self.memory.last_key_value().map_or(MEMORY_START, end);
        let address = behind.next_multiple_of(PAGE_BYTES) + PAGE_BYTES;
        self.memory.insert(address, bytes.to_vec());
        address
    }

    /// Puts memory at an address of the caller's choice; it must not overlap other memory.
    pub fn map_at(&mut self, address: u64, bytes: Vec<u8>) {
        self.memory.insert(address, bytes);
    }

    /// Takes all memory away; descriptors stay open.
    pub fn unmap(&mut self) {
        self.memory.clear();
    }

    /// The bytes from an address to the end of that piece of memory.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        let (start, piece) = self.memory.range(..=address).next_back()?;
        piece.get(usize::try_from(address - start).ok()?..)
    }

    /// `close(2)`.
    pub fn close(&mut self, descriptor: u32) -> Result<(), Errno> {
        self.descriptors.remove(&descriptor).map(drop).ok_or(Errno::EBADF)
    }

    fn place(&self, address: u64, len: usize) -> Option<(u64, usize)> {
        let (&start, piece) = self.memory.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        let fits = offset.checked_add(len).is_some_and(|end| end <= piece.len());
        fits.then_some((start, offset))
    }
}

impl Caller for Process {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        if out.is_empty() {
            return Ok(());
        }
        let (start, offset) = self.place(address, out.len()).ok_or(Errno::EFAULT)?;
        let piece = self.memory.get(&start).ok_or(Errno::EFAULT)?;
        out.copy_from_slice(&piece[offset..offset + out.len()]);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, offset) = self.place(address, bytes.len()).ok_or(Errno::EFAULT)?;
        let piece = self.memory.get_mut(&start).ok_or(Errno::EFAULT)?;
        piece[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn handle(&self, descriptor: u32) -> Result<Handle, Errno> {
        if descriptor < FIRST_DESCRIPTOR {
            // Standard input, output and error: files, but none of ours.
            return Err(Errno::EINVAL);
        }
        self.descriptors.get(&descriptor).cloned().ok_or(Errno::EBADF)
    }

    fn install(&mut self, handle: Handle) -> Result<u32, Errno> {
        let mut free = FIRST_DESCRIPTOR..DESCRIPTORS_MAX;
        let descriptor = free.find(|number| !self.descriptors.contains_key(number));
        let descriptor = descriptor.ok_or(Errno::EMFILE)?;
        self.descriptors.insert(descriptor, handle);
        Ok(descriptor)
    }

    fn uid(&self) -> u32 {
        self.uid
    }
}

/// The bytes of `len` at an address.
pub(crate) fn copy_in(caller: &dyn Caller, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    caller.read(address, &mut bytes)?;
    Ok(bytes)
}

/// `check_zeroed_user`
pub(crate) fn is_zeroed(caller: &dyn Caller, address: u64, len: usize) -> Result<bool, Errno> {
    Ok(copy_in(caller, address, len)?.iter().all(|&byte| byte == 0))
}

/// `strncpy_from_user`: a string of at most `max` bytes; the zero that ends it is not part of it.
/// Without one, all `max` bytes.
pub(crate) fn read_string(caller: &dyn Caller, address: u64, max: usize) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    while text.len() < max {
        let mut byte = [0];
        caller.read(address.wrapping_add(text.len() as u64), &mut byte)?;
        if byte == [0] {
            break;
        }
        text.extend(byte);
    }
    Ok(text)
}

const MEMORY_START: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
const FIRST_DESCRIPTOR: u32 = 3;
/// The usual `RLIMIT_NOFILE` of daemons.
const DESCRIPTORS_MAX: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_where_it_ends() {
        let mut process = Process::new(0);
        let address = process.map_bytes(b"abc");
        let other = process.map_bytes(b"de");
        assert_eq!(process.read(address, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(process.write(other + 1, b"xy"), Err(Errno::EFAULT));
        assert_eq!(process.write(other + 1, b"x"), Ok(()));
        assert_eq!(process.bytes(other), Some(&b"dx"[..]));
        assert_eq!(read_string(&process, address, 3), Ok(b"abc".to_vec()));
        assert_eq!(read_string(&process, address, 4), Err(Errno::EFAULT));
        assert_eq!(process.read(u64::MAX, &mut [0; 2]), Err(Errno::EFAULT));
    }
}
