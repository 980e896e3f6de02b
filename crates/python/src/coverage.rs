//! C lines and branches that interpreted programs reached.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use towpath_testing::{Row, Watch};

/// Coverage of all objects that were opened with it.
#[pyclass(frozen, skip_from_py_object, module = "towpath._native")]
#[derive(Clone, Default)]
pub(crate) struct Coverage(Arc<Mutex<towpath_testing::Coverage>>);

impl Coverage {
    /// Adds the observations of a program's run.
    pub(crate) fn add(&self, program: &towpath::Program, watch: &Watch) {
        self.0.lock().add(program.code().linked(), watch);
    }
}

#[pymethods]
impl Coverage {
    #[new]
    fn new() -> Coverage {
        Coverage::default()
    }

    /// The coverage as a document, for another process.
    fn document(&self) -> PyResult<String> {
        serde_json::to_string(&*self.0.lock()).map_err(|error| unreadable(&error))
    }

    /// Adds the coverage of another process.
    fn merge(&self, document: &str) -> PyResult<()> {
        let other = serde_json::from_str(document).map_err(|error| unreadable(&error))?;
        self.0.lock().merge(other);
        Ok(())
    }

    /// C files, with the number of lines and branches that were reached.
    fn rows(&self) -> Vec<(String, String, String)> {
        let row = |Row { file, lines, branches }| (file, lines, branches);
        self.0.lock().rows().into_iter().map(row).collect()
    }

    /// The lines that no run reached.
    fn unreached(&self) -> Vec<String> {
        self.0.lock().unreached().collect()
    }

    /// An lcov tracefile.
    fn tracefile(&self) -> String {
        self.0.lock().tracefile()
    }

    /// An HTML page.
    fn page(&self) -> String {
        self.0.lock().page()
    }
}

fn unreadable(error: &serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("coverage: {error}"))
}
