//! Why a program could not be loaded.

use towpath_bpf::interp::ResolveError;
use towpath_bpf::object::{ObjectError, SelectError};
use towpath_bpf::verifier::Rejection;
use towpath_maps::MapError;

/// Each step of loading can refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The object has no such program.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// It could not be linked.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// A map could not be created.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The verifier refused it.
    #[error("program {program} is rejected: {rejection}")]
    Rejected {
        /// Name of the program.
        program: String,
        /// Why.
        rejection: Box<Rejection>,
    },
    /// It refers to something that does not exist here.
    #[error("program {program}: {source}")]
    Resolve {
        /// Name of the program.
        program: String,
        /// Which reference.
        source: ResolveError,
    },
    /// It is to be masked against speculation
    /// ([`towpath_jit::Options::mask_speculation`]), and can't be compiled.
    #[error(
        "program {program} is not trusted, so that only machine code that is masked against \
         speculation may run it, and there is none: {why}"
    )]
    Unmasked {
        /// Name of the program.
        program: String,
        /// The compiler's reason.
        why: String,
    },
}
