//! A jitdump file: the code of each function, its name, and the time of its compilation.
//!
//! `perf inject --jit` makes an object file of each function and finds them by the process's
//! mapping of the dump, so that the code can be examined after the process is gone. The format is
//! that of `tools/perf/Documentation/jitdump-specification.txt`, version 1. It has no source lines:
//! perf looks for source files, and an object file names those of another machine.

#![expect(unsafe_code, reason = "maps a file, for perf to see that it is there")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::LazyLock;

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};

use super::Named;

/// A dump that is being written.
pub(super) struct Dump {
    open: Mutex<Open>,
}

struct Open {
    file: File,
    /// Number of the next function.
    next: u64,
}

/// The dump of this process, if `TOWPATH_JITDUMP` names a folder to write it to.
pub(super) fn wanted() -> Option<&'static Dump> {
    static DUMP: LazyLock<Option<Dump>> = LazyLock::new(|| {
        let folder = std::env::var_os("TOWPATH_JITDUMP")?;
        Dump::create(Path::new(&folder)).ok()
    });
    DUMP.as_ref()
}

impl Dump {
    fn create(folder: &Path) -> io::Result<Dump> {
        let path = folder.join(format!("jit-{}.dump", std::process::id()));
        let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).read(true);
        let mut file = file.custom_flags(flags).open(path)?;
        file.write_all(&header(std::process::id(), now()))?;
        mark(&file)?;
        Ok(Dump { open: Mutex::new(Open { file, next: 0 }) })
    }

    /// Adds a function that was placed.
    pub(super) fn add(&self, function: &Named<'_>) {
        let mut open = self.open.lock();
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let record = load(function, open.next, (std::process::id(), thread), now());
        open.next += 1;
        let _ = open.file.write_all(&record);
    }
}

/// Makes perf record that the process has mapped the file, by which it is found. The mapping stays
/// as long as the process.
fn mark(file: &File) -> io::Result<()> {
    let rights = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a new private mapping at an address of the kernel's choice, which is never read.
    let mapped = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), HEADER_BYTES, rights, MapFlags::PRIVATE, file, 0)
    };
    mapped.map(|_| ()).map_err(io::Error::from)
}

/// Header of the file.
fn header(process: u32, now: u64) -> Vec<u8> {
    let machine = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
    let mut out = Vec::with_capacity(HEADER_BYTES);
    for word in [MAGIC, VERSION, HEADER_BYTES as u32, machine, 0, process] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    let flags = 0u64;
    out.extend_from_slice(&now.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out
}

/// Record of a function.
fn load(function: &Named<'_>, number: u64, (process, thread): (u32, u32), now: u64) -> Vec<u8> {
    let Named { name, code } = function;
    let bytes = LOAD_BYTES + name.len() + 1 + code.len();
    let address = code.as_ptr() as u64;
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(&JIT_CODE_LOAD.to_ne_bytes());
    out.extend_from_slice(&(bytes as u32).to_ne_bytes());
    out.extend_from_slice(&now.to_ne_bytes());
    out.extend_from_slice(&process.to_ne_bytes());
    out.extend_from_slice(&thread.to_ne_bytes());
    for word in [address, address, code.len() as u64, number] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out.extend_from_slice(code);
    out
}

/// Time in nanoseconds, by the clock of `perf record -k mono`.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// "JiTD", in the byte order of the machine.
const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const JIT_CODE_LOAD: u32 = 0;
/// Size in bytes of a [`JIT_CODE_LOAD`] in front of the name.
const LOAD_BYTES: usize = 56;
const EM_X86_64: u32 = 62;
const EM_AARCH64: u32 = 183;

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn records_are_as_long_as_they_say() {
        assert_eq!(header(7, 9).len(), HEADER_BYTES);
        assert_eq!(word(&header(7, 9), 20), 7);
        let function = Named { name: "a::b".into(), code: &[0xc3, 0x90] };
        let record = load(&function, 3, (7, 8), 9);
        assert_eq!(word(&record, 4) as usize, record.len());
        assert_eq!(&record[LOAD_BYTES..], b"a::b\0\xc3\x90");
        assert_eq!(word(&record, 48), 3, "the number stands in front of the name");
    }
}
