//! Trust in the verifier.

/// Degree of trust in the verifier's proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// The proof is trusted: no access is checked, and a run's time is not limited.
    #[default]
    Verified,
    /// A mistake of the verifier must not be a hole: every access is checked at run time, and time
    /// is limited. A violation ends the run as in the interpreter. Speculative execution ahead of
    /// checks is a separate matter: [`crate::Options::mask_speculation`].
    Guest,
}

/// Cost of a call of a helper for a [`Trust::Guest`] program, in instructions, without its work.
pub const CALL_COST: u32 = 32;

/// Number of instructions that a [`Trust::Guest`] program may execute in a run: as many as the
/// verifier follows.
pub const GUEST_BUDGET: u32 = 1_000_000;
