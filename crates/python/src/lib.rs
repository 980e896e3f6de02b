//! The native half of the Python package `towpath`: what needs the compiler, the verifier and the
//! maps. What people call is in `python/towpath`; nothing here is meant to be called by others.

#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "what Python gives comes as values")]

mod burst;
mod error;
mod finding;
mod map;
mod object;
mod program;
mod tally;

use pyo3::prelude::*;

/// `towpath._native`
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::error::{Error, Fault, ObjectError, VerifierError};
    #[pymodule_export]
    use super::finding::Finding;
    #[pymodule_export]
    use super::map::Map;
    #[pymodule_export]
    use super::object::Object;
    #[pymodule_export]
    use super::program::{Program, Run};
    #[pymodule_export]
    use super::tally::Tally;
    use super::{Bound, PyModule, PyModuleMethods as _, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
