//! Reasons why a program is not compiled.

use crate::xir::BuildError;

/// Reason why a verified program has no machine code. The interpreter runs it instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The program can't be translated into XIR.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Cranelift refused a function, because of a bug in Towpath.
    #[error("function {function}: {what}")]
    Cranelift {
        /// Name of the function.
        function: String,
        /// Message of Cranelift.
        what: String,
    },
    /// There is no compiler for this machine's instruction set.
    #[error("no code generator for this machine: {0}; use --exec interp")]
    Host(String),
    /// The program is longer than [`crate::XIR_INSTS_MAX`].
    #[error("{insts} intermediate instructions, and the compiler takes at most {max}")]
    TooLong {
        /// Number of intermediate instructions.
        insts: usize,
        /// Largest number.
        max: usize,
    },
    /// LLVM is missing, or refused a program.
    #[error("LLVM: {0}")]
    Llvm(String),
    /// Tier 2 can't mask code against speculation.
    #[error("code that is masked against speculation has tier 1 only")]
    Masked,
    /// Compilation took longer than allowed.
    #[error("compilation took longer than {0:?}")]
    TooSlow(std::time::Duration),
    /// The limit on executable memory is reached.
    #[error("{bytes} bytes of machine code beside {in_use} in use exceed the limit of {limit}")]
    CodeFull {
        /// Requested number of bytes.
        bytes: usize,
        /// Bytes of all programs' code.
        in_use: usize,
        /// Largest number of bytes for all programs.
        limit: usize,
    },
    /// The system has no executable memory.
    #[error("no memory for {bytes} bytes of machine code: {source}")]
    Memory {
        /// Requested number of bytes.
        bytes: usize,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Compilers rely on the verifier's facts.
    #[error("a program that was loaded without a proof cannot be compiled")]
    Unverified,
}
