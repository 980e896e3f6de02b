//! The log, for which loaders provide a buffer.
//!
//! Kernel counterpart: `kernel/bpf/log.c`. The last bytes are kept when the buffer is too small, or
//! the first with `BPF_LOG_FIXED`, and the call fails with `ENOSPC`, even if it would otherwise
//! succeed.

use towpath_bpf::Errno;

use crate::caller::Caller;

/// The reason why an object isn't loaded: an error number for programs, and a text for people.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    /// Lines of the log.
    pub(crate) text: String,
}

/// A caller's log buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserLog {
    /// `BPF_LOG_*`
    pub(crate) level: u32,
    address: u64,
    size: u32,
}

impl UserLog {
    /// `bpf_vlog_init`: a buffer has a size and a level.
    pub(crate) fn new(level: u32, address: u64, size: u32) -> Result<UserLog, Errno> {
        let has_buffer = address != 0;
        let wrong = has_buffer != (size != 0)
            || has_buffer && level == 0
            || level & !LEVELS != 0
            || size > u32::MAX >> 2;
        if wrong { Err(Errno::EINVAL) } else { Ok(UserLog { level, address, size }) }
    }

    /// `bpf_vlog_finalize`: gives the caller as much of the text as fits. Returns the size of
    /// buffer that would have been enough, and whether there was a problem.
    pub(crate) fn finish(&self, caller: &mut dyn Caller, text: &str) -> (u32, Result<(), Errno>) {
        if self.level == 0 || text.is_empty() {
            return (0, Ok(()));
        }
        let needed = u32::try_from(text.len() + 1).unwrap_or(u32::MAX);
        if self.address == 0 {
            return (needed, Ok(()));
        }
        let kept = text.len().min(self.size as usize - 1);
        let text = text.as_bytes();
        let part =
            if self.level & LEVEL_FIXED != 0 { &text[..kept] } else { &text[text.len() - kept..] };
        let result = match caller.write(self.address, &[part, &[0]].concat()) {
            Ok(()) if needed > self.size => Err(Errno::ENOSPC),
            result => result,
        };
        (needed, result)
    }
}

impl Refusal {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into() }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal { errno, text: String::new() }
    }
}

/// The first bytes are kept instead of the last (`BPF_LOG_FIXED`).
const LEVEL_FIXED: u32 = 8;
/// `BPF_LOG_LEVEL1`, `BPF_LOG_LEVEL2`, `BPF_LOG_STATS`, `BPF_LOG_FIXED`.
const LEVELS: u32 = 0xf;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Process;

    #[test]
    fn a_short_buffer_keeps_the_end_or_the_start() {
        let mut process = Process::new(0);
        let address = process.map_bytes(&[0xaa; 8]);
        let log = |level| UserLog::new(level, address, 4).expect("a buffer with a level");
        assert_eq!(log(1).finish(&mut process, "abcdef"), (7, Err(Errno::ENOSPC)));
        assert_eq!(process.bytes(address), Some(&b"def\0\xaa\xaa\xaa\xaa"[..]));
        assert_eq!(log(9).finish(&mut process, "abcdef"), (7, Err(Errno::ENOSPC)));
        assert_eq!(process.bytes(address), Some(&b"abc\0\xaa\xaa\xaa\xaa"[..]));
        assert_eq!(log(1).finish(&mut process, "xyz"), (4, Ok(())));
        assert!(UserLog::new(1, address, 0).is_err() && UserLog::new(0, address, 4).is_err());
        assert!(UserLog::new(1, 0, 0).is_ok(), "to learn how long it would be");
    }
}
