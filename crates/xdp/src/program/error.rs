//! Errors of loading a program.

use towpath_bpf::interp::ResolveError;
use towpath_bpf::object::{ObjectError, SelectError};
use towpath_bpf::verifier::Rejection;
use towpath_maps::MapError;

/// Error of a step of loading.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The object has no such program.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The program could not be linked.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A map could not be created.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The verifier refused the program.
    #[error("program {program} is rejected: {rejection}")]
    Rejected {
        /// Name of the program.
        program: String,
        /// The reason.
        rejection: Box<Rejection>,
    },
    /// The program refers to something that does not exist here.
    #[error("program {program}: {source}")]
    Resolve {
        /// Name of the program.
        program: String,
        /// The unresolved reference.
        source: ResolveError,
    },
    /// The program must be masked against speculation ([`towpath_jit::Options::mask_speculation`]),
    /// and cannot be compiled.
    #[error(
        "program {program} is not trusted: it may run only as machine code that is masked against \
         speculation, and there is none: {why}"
    )]
    Unmasked {
        /// Name of the program.
        program: String,
        /// The compiler's reason.
        why: String,
    },
}
