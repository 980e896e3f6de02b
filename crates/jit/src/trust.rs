//! How far the verifier is trusted.

/// Whether the verifier's word is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// It is: no access is checked, and a run takes as long as it takes.
    #[default]
    Verified,
    /// A mistake of the verifier must not be a hole: every access is checked at run time, and time
    /// is limited. What breaks a rule ends as in the interpreter. Whether a processor that runs
    /// ahead of a check is thought of is [`crate::Options::mask_speculation`].
    Guest,
}

/// What a call of a helper costs a [`Trust::Guest`] program, in instructions, beside what it does.
pub const CALL_COST: u32 = 32;

/// Instructions a [`Trust::Guest`] program may execute in a run: as many as the verifier follows.
pub const GUEST_BUDGET: u32 = 1_000_000;
