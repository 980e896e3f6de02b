//! The native half of the Python package `towpath`: the parts that need the compiler, the verifier
//! and the maps. The public functions are in `python/towpath`; nothing here is a public interface.

#![forbid(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "what Python gives comes as values")]

mod burst;
mod coverage;
mod error;
mod finding;
mod host;
mod map;
mod object;
mod program;
mod tally;

use pyo3::prelude::*;

/// `towpath._native`
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::coverage::Coverage;
    #[pymodule_export]
    use super::error::{Error, Fault, ObjectError, VerifierError};
    #[pymodule_export]
    use super::finding::Finding;
    #[pymodule_export]
    use super::host::Host;
    #[pymodule_export]
    use super::map::Map;
    #[pymodule_export]
    use super::object::Object;
    #[pymodule_export]
    use super::program::{Program, Run};
    #[pymodule_export]
    use super::tally::Tally;
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use towpath_bpf::suggest;
    use towpath_document::parse_duration;

    /// `; did you mean "X"?`, or a list of the names.
    #[pyfunction]
    fn among(wanted: &str, names: Vec<String>) -> String {
        suggest::among(wanted, names.iter().map(String::as_str))
    }

    /// Nanoseconds of a time that is written like `500ms`.
    #[pyfunction]
    fn nanoseconds(time: &str) -> PyResult<u64> {
        let time = parse_duration(time).map_err(PyValueError::new_err)?;
        Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
