//! Options of a verification, and its statistics.

use std::time::Duration;

/// Limits and wishes of one verification.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// 0: no log; 1: paths and states as the kernel logs them at level 1; 2: every instruction.
    pub log_level: u32,
    /// Bytes of log kept; the rest is dropped, and the log says so.
    pub log_bytes_max: usize,
    /// Instructions followed over all paths (`BPF_COMPLEXITY_LIMIT_INSNS`).
    pub insns_processed_max: u64,
    /// Paths remembered to be followed later (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`).
    pub pending_max: usize,
    /// The program is bound to a device and may ask for what that knows of a frame.
    pub device_bound: bool,
    /// States are equal only if their numbers are, also those that no check depended on; a way that
    /// a jump's operands contradict is not followed; and a comparison tells of every copy of what
    /// it compares, not of six. It takes longer, and what is known of operands then holds whatever
    /// path the program takes ([`InsnFacts::dst`]). For those who check proofs.
    ///
    /// [`InsnFacts::dst`]: super::InsnFacts::dst
    pub every_number: bool,
    /// Numbers that change from one round of a loop to the next, and on which no check has depended
    /// yet, are forgotten, so that loops without an end in sight come to one. Without it they are
    /// followed as far as the limits allow. For those who check proofs.
    pub forget_in_loops: bool,
    /// Addresses may become numbers: be stored, compared, returned. The kernel's name, as of those
    /// below; without `CAP_PERFMON` all four are false ([`Options::unprivileged`]).
    pub allow_ptr_leaks: bool,
    /// Stack may be read that was never written.
    pub allow_uninit_stack: bool,
    /// Pointers may be offset as far as no access is wrong that is executed. Without it, also those
    /// that a CPU executes ahead of a check (Spectre v1).
    pub bypass_spec_v1: bool,
    /// Loads may overtake stores (Spectre v4). No program is refused for that, here or by the
    /// kernel: it is for who makes machine code.
    pub bypass_spec_v4: bool,
    /// Where pointers may not leak: the distance and order of pointers to one packet may be known,
    /// and that they are not null. No address comes of it, but the kernel refuses it.
    pub packet_distances: bool,
}

impl Options {
    /// The rules for programs of those who are not trusted: the kernel's for who lacks
    /// `CAP_PERFMON`.
    pub fn unprivileged() -> Options {
        let mut options = Options::default();
        options.restrict();
        options
    }

    /// Takes away what `CAP_PERFMON` gives.
    pub fn restrict(&mut self) {
        (self.allow_ptr_leaks, self.allow_uninit_stack) = (false, false);
        (self.bypass_spec_v1, self.bypass_spec_v4) = (false, false);
        self.packet_distances = false;
    }

    /// The same for programs that run only as machine code which masks every access: what would
    /// merely keep the kernel from masking is no reason to refuse one.
    pub fn restrict_masked(&mut self) {
        self.restrict();
        (self.bypass_spec_v1, self.packet_distances) = (true, true);
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            log_level: 0,
            log_bytes_max: 16 << 20,
            insns_processed_max: 1_000_000,
            pending_max: 8192,
            device_bound: false,
            every_number: false,
            forget_in_loops: true,
            allow_ptr_leaks: true,
            allow_uninit_stack: true,
            bypass_spec_v1: true,
            bypass_spec_v4: true,
            packet_distances: true,
        }
    }
}

/// What a verification took; the kernel's words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Instructions followed, over all paths.
    pub insns_processed: u64,
    /// States kept to compare with.
    pub total_states: u64,
    /// States kept at one time.
    pub peak_states: u64,
    /// The most states looked through at one instruction.
    pub max_states_per_insn: u32,
    /// Time taken.
    pub elapsed: Duration,
}
