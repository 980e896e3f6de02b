//! Options of a verification, and its statistics.

use std::time::Duration;

/// Limits and settings of one verification.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Level of the log. 0: none; 1: paths and states as the kernel logs them at level 1; 2: every
    /// instruction.
    pub log_level: u32,
    /// Largest size of the log in bytes; the rest is dropped, and the log says so.
    pub log_bytes_max: usize,
    /// Largest number of instructions followed over all paths (`BPF_COMPLEXITY_LIMIT_INSNS`).
    pub insns_processed_max: u64,
    /// Largest number of paths remembered to be followed later (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`).
    pub pending_max: usize,
    /// Whether the program is bound to a device and may ask for the device's metadata of a frame.
    pub device_bound: bool,
    /// Whether all numbers count: states are equal only if their numbers are, also those that no
    /// check depended on; an outcome that contradicts a jump's operands is not followed; and a
    /// comparison refines every copy of the compared numbers, not only six. It takes longer, and
    /// the facts about operands then hold on every path ([`InsnFacts::dst`]). For checks of the
    /// proofs.
    ///
    /// [`InsnFacts::dst`]: super::InsnFacts::dst
    pub every_number: bool,
    /// Whether numbers are forgotten that change from one round of a loop to the next and that no
    /// check has depended on yet, so that loops without a known end are finished. Without it they
    /// are followed as far as the limits allow. For checks of the proofs.
    pub forget_in_loops: bool,
    /// Whether addresses may become numbers: be stored, compared, returned. The name is the
    /// kernel's, as those of the next three are; without `CAP_PERFMON` all four are false
    /// ([`Options::unprivileged`]).
    pub allow_ptr_leaks: bool,
    /// Whether programs may read stack that was never written.
    pub allow_uninit_stack: bool,
    /// Whether pointers may have any offset that leads to no wrong access in executed code. Without
    /// it, accesses count too that a CPU executes ahead of a check (Spectre v1).
    pub bypass_spec_v1: bool,
    /// Whether loads may overtake stores (Spectre v4). No program is refused for that, here or by
    /// the kernel: compilers use the option.
    pub bypass_spec_v4: bool,
    /// Whether, even if pointers may not leak, programs may learn distance and order of pointers to
    /// one packet, and that they are not null. That reveals no address, but the kernel refuses it.
    pub packet_distances: bool,
}

impl Options {
    /// The rules for programs of untrusted users: those of the kernel for users without
    /// `CAP_PERFMON`.
    pub fn unprivileged() -> Options {
        let mut options = Options::default();
        options.restrict();
        options
    }

    /// Removes the rights that `CAP_PERFMON` gives.
    pub fn restrict(&mut self) {
        (self.allow_ptr_leaks, self.allow_uninit_stack) = (false, false);
        (self.bypass_spec_v1, self.bypass_spec_v4) = (false, false);
        self.packet_distances = false;
    }

    /// As [`Options::restrict`], for programs that run only as machine code which masks every
    /// access: programs are not refused for reasons that masking covers.
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

/// Cost of a verification, in the kernel's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of instructions followed, over all paths.
    pub insns_processed: u64,
    /// Number of states kept for comparison.
    pub total_states: u64,
    /// Largest number of states kept at one time.
    pub peak_states: u64,
    /// Largest number of states compared at one instruction.
    pub max_states_per_insn: u32,
    /// Duration of the verification.
    pub elapsed: Duration,
}
