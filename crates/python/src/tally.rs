//! The sanitizer's findings about many runs, for objects of one file.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::finding::Finding;
use crate::object::Object;

/// Observations of one object file's programs over many runs.
#[pyclass(frozen, module = "towpath._native")]
pub(crate) struct Tally(Mutex<towpath::Tally>);

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Tally {
        Tally(Mutex::default())
    }

    /// Adds an object's observations since the last call.
    fn add(&self, object: &Object) {
        object.add_to(&mut self.0.lock());
    }

    /// The findings.
    fn findings(&self) -> Vec<Finding> {
        self.0.lock().findings().iter().map(Finding::from).collect()
    }
}
