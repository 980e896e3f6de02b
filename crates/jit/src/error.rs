//! Why a program is not compiled.

use crate::xir::BuildError;

/// What stands between a verified program and its machine code. The interpreter runs it instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// No translation into XIR.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Cranelift refused a function: a bug of ours.
    #[error("function {function}: {what}")]
    Cranelift {
        /// Name.
        function: String,
        /// Cranelift's words.
        what: String,
    },
    /// This machine's instruction set has no compiler.
    #[error("no code generator for this machine: {0}; use --exec interp")]
    Host(String),
    /// Longer than [`crate::XIR_INSTS_MAX`].
    #[error("{insts} intermediate instructions, and the compiler takes at most {max}")]
    TooLong {
        /// How many there are.
        insts: usize,
        /// The limit.
        max: usize,
    },
    /// LLVM is not there, or refused a program.
    #[error("LLVM: {0}")]
    Llvm(String),
    /// Tier 2 makes no code that is masked against speculation.
    #[error("code that is masked against speculation has tier 1 only")]
    Masked,
    /// Compilation took longer than it may.
    #[error("compilation took longer than {0:?}")]
    TooSlow(std::time::Duration),
    /// The limit on executable memory is reached.
    #[error("{bytes} bytes of machine code beside {in_use} in use exceed the limit of {limit}")]
    CodeFull {
        /// How much was asked for.
        bytes: usize,
        /// How much all programs have.
        in_use: usize,
        /// What they may have.
        limit: usize,
    },
    /// No executable memory.
    #[error("no memory for {bytes} bytes of machine code: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Compilers rely on what the verifier found out.
    #[error("a program that was loaded without a proof cannot be compiled")]
    Unverified,
}
