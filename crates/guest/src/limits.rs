//! Limits on a guest's objects and requests.

use std::time::Instant;

use towpath_bpf::proto::id;

use crate::refusal::Refusal;

/// Limits for one guest, for all of its programs and maps together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Number of programs.
    pub programs: u64,
    /// Number of instructions.
    pub instructions: u64,
    /// Number of maps.
    pub maps: u64,
    /// Number of elements that its maps have room for.
    pub entries: u64,
    /// Size of maps, instructions and types, in bytes.
    pub bytes: u64,
    /// Number of requests a second; a request for several elements counts each.
    pub operations: u64,
    /// Approximate number of XIR instructions for a burst of 64 frames; each frame has an equal
    /// share.
    pub burst_instructions: u64,
    /// Microseconds for a burst of 64 frames: if it takes longer, its remaining frames are aborted.
    pub burst_us: u64,
    /// Helpers that its programs may call, by number.
    pub helpers: Vec<u32>,
    /// Restrictions on its programs.
    pub rules: Rules,
}

/// Rules by which a guest's programs are verified. In all of them, no address leaves a program, and
/// unwritten memory is not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rules {
    /// Rules that keep addresses secret. Accesses are accepted that the kernel refuses because its
    /// compiler can't mask them against speculation
    /// ([`towpath_bpf::verifier::Options::restrict_masked`]); compiled code checks and masks
    /// accesses under any rules.
    #[default]
    Masked,
    /// All rules of the kernel for users without `CAP_PERFMON`. Few programs that parse data behind
    /// headers of varying length satisfy them.
    Kernel,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            programs: 16,
            instructions: 65_536,
            maps: 64,
            entries: 1 << 18,
            bytes: 64 << 20,
            operations: 20_000,
            burst_instructions: 1 << 20,
            burst_us: 500,
            helpers: HELPERS_DEFAULT.to_vec(),
            rules: Rules::default(),
        }
    }
}

impl Limits {
    /// Budget of one frame.
    pub(crate) fn frame_budget(&self) -> u32 {
        u32::try_from((self.burst_instructions / BURST).max(1)).unwrap_or(u32::MAX)
    }
}

/// Used amounts of a guest's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Used {
    pub(crate) programs: u64,
    pub(crate) instructions: u64,
    pub(crate) maps: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Used {
    /// Sum of both.
    pub(crate) fn and(self, more: Used) -> Used {
        Used {
            programs: self.programs.saturating_add(more.programs),
            instructions: self.instructions.saturating_add(more.instructions),
            maps: self.maps.saturating_add(more.maps),
            entries: self.entries.saturating_add(more.entries),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }

    /// Each limit by name, with the used amount.
    pub(crate) fn of(self, limits: &Limits) -> [(&'static str, u64, u64); 5] {
        [
            ("programs", limits.programs, self.programs),
            ("instructions", limits.instructions, self.instructions),
            ("maps", limits.maps, self.maps),
            ("entries", limits.entries, self.entries),
            ("bytes", limits.bytes, self.bytes),
        ]
    }

    /// Checks that there is room for more.
    ///
    /// # Errors
    ///
    /// Fails with the first limit that would be exceeded.
    pub(crate) fn check(self, more: Used, limits: &Limits) -> Result<(), Refusal> {
        let after = self.and(more).of(limits);
        match after.into_iter().find(|(_, limit, used)| used > limit) {
            Some((name, limit, used)) => Err(Refusal::limit(name, limit, used)),
            None => Ok(()),
        }
    }
}

/// Operations that are left, refilled over time: at most a second's worth.
#[derive(Debug)]
pub(crate) struct Bucket {
    left: u64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(limits: &Limits, now: Instant) -> Bucket {
        Bucket { left: limits.operations, filled: now }
    }

    /// Takes this number of operations out.
    ///
    /// # Errors
    ///
    /// Fails if fewer are left.
    pub(crate) fn take(
        &mut self,
        count: u64,
        limits: &Limits,
        now: Instant,
    ) -> Result<(), Refusal> {
        let passed = now.saturating_duration_since(self.filled).as_micros();
        let new = u64::try_from(passed).unwrap_or(u64::MAX).saturating_mul(limits.operations);
        let new = new / 1_000_000;
        if new > 0 {
            self.left = self.left.saturating_add(new).min(limits.operations);
            self.filled = now;
        }
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Refusal::operations(limits.operations)),
        }
    }
}

/// Helpers that reveal nothing of the host to a guest, and change nothing there.
pub const HELPERS_DEFAULT: &[u32] = &[
    id::MAP_LOOKUP_ELEM,
    id::MAP_UPDATE_ELEM,
    id::MAP_DELETE_ELEM,
    id::KTIME_GET_NS,
    id::GET_PRANDOM_U32,
    id::GET_SMP_PROCESSOR_ID,
    id::TAIL_CALL,
    id::REDIRECT,
    id::CSUM_DIFF,
    id::XDP_ADJUST_HEAD,
    id::REDIRECT_MAP,
    id::XDP_ADJUST_META,
    id::XDP_ADJUST_TAIL,
    id::MAP_PUSH_ELEM,
    id::MAP_POP_ELEM,
    id::MAP_PEEK_ELEM,
    id::SPIN_LOCK,
    id::SPIN_UNLOCK,
    id::STRTOL,
    id::STRTOUL,
    id::JIFFIES64,
    id::KTIME_GET_BOOT_NS,
    id::KTIME_GET_COARSE_NS,
    id::FOR_EACH_MAP_ELEM,
    id::LOOP,
    id::STRNCMP,
    id::XDP_GET_BUFF_LEN,
    id::XDP_LOAD_BYTES,
    id::XDP_STORE_BYTES,
    id::MAP_LOOKUP_PERCPU_ELEM,
];

/// Number of frames of a burst.
const BURST: u64 = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_limit_that_is_crossed_is_named() {
        let limits = Limits { maps: 2, entries: 10, ..Limits::default() };
        let one = Used { maps: 1, entries: 5, ..Used::default() };
        let two = one.and(one);
        assert!(one.check(one, &limits).is_ok());
        let refused = two.check(one, &limits).expect_err("three maps");
        assert_eq!(refused.limit, Some("maps"));
        let large = Used { entries: u64::MAX, ..Used::default() };
        assert_eq!(one.check(large, &limits).expect_err("too large").limit, Some("entries"));
    }

    #[test]
    fn operations_come_back_with_time() {
        let limits = Limits { operations: 100, ..Limits::default() };
        let start = Instant::now();
        let mut bucket = Bucket::new(&limits, start);
        assert!(bucket.take(100, &limits, start).is_ok());
        assert!(bucket.take(1, &limits, start).is_err());
        let later = start + Duration::from_millis(100);
        assert!(bucket.take(10, &limits, later).is_ok());
        assert!(bucket.take(1, &limits, later).is_err());
        let much_later = start + Duration::from_secs(3600);
        assert!(bucket.take(101, &limits, much_later).is_err(), "no more than a second's worth");
        assert!(bucket.take(100, &limits, much_later).is_ok());
    }
}
