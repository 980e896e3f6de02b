//! Maps: keys and values as Python objects, typed through BTF.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pythonize::{depythonize, pythonize};
use serde_json::{Value as Json, json};
use towpath::Errno;
use towpath::maps::mapfile::{self, Filling};
use towpath::maps::{Keys, Value, Values, typed};

use crate::error;
use crate::object::Shared;

/// A map of the object, or an inner map.
#[pyclass(frozen, module = "towpath._native")]
pub(crate) struct Map {
    map: Arc<towpath::maps::Map>,
    shared: Arc<Shared>,
}

impl Map {
    pub(crate) fn new(map: Arc<towpath::maps::Map>, shared: Arc<Shared>) -> Map {
        Map { map, shared }
    }

    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        if let Ok(bytes) = key.cast::<PyBytes>()
            && bytes.as_bytes().len() == self.map.key_size() as usize
        {
            return Ok(bytes.as_bytes().to_vec());
        }
        typed::key_from_json(self.map.def(), &from_python(key)?)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn said(&self, errno: Errno) -> PyErr {
        error::map(self.map.name(), errno)
    }

    /// A value in Python's form: a list with one value for each CPU if the map is per-CPU.
    fn to_python<'py>(&self, py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
        let mut values: Vec<Json> =
            value.cpus().iter().map(|bytes| typed::value_to_json(self.map.def(), bytes)).collect();
        let json = match self.map.is_percpu() {
            true => Json::Array(values),
            false => values.pop().unwrap_or(Json::Null),
        };
        Ok(pythonize(py, &json)?)
    }

    fn program_name(&self, id: u32) -> Json {
        let programs = &self.shared.state().loader.surroundings().clone().programs;
        programs.get(id).map_or(Json::Null, |program| program.name.clone().into())
    }

    /// Steps that store the elements of a document into this map.
    fn parsed(&self, contents: Json) -> PyResult<Vec<mapfile::Step>> {
        let set = Arc::clone(self.shared.state().loader.maps());
        let is_of_set = set.maps().iter().any(|map| Arc::ptr_eq(map, &self.map));
        let defs = if is_of_set { set.defs() } else { vec![self.map.def().clone()] };
        let document = [(self.map.name().to_owned(), contents)].into_iter().collect();
        let fillings = mapfile::parse(&document, &defs, self.map.cpus());
        let fillings = fillings.map_err(PyValueError::new_err)?;
        Ok(fillings.into_iter().flat_map(|Filling { steps, .. }| steps).collect())
    }

    fn put(&self, contents: Json) -> PyResult<()> {
        let steps = self.parsed(contents)?;
        let state = self.shared.state();
        let program = |name: &str, _kind| state.program_id(name);
        for step in &steps {
            mapfile::store(state.loader.maps(), &program, &self.map, step)
                .map_err(|message| error::Error::new_err(format!("{}: {message}", step.path)))?;
        }
        Ok(())
    }
}

#[pymethods]
impl Map {
    #[getter]
    fn name(&self) -> &str {
        self.map.name()
    }

    /// The kernel's name of the map's kind, e.g. `lru_hash`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.map.kind().name()
    }

    #[getter]
    fn max_entries(&self) -> u32 {
        self.map.max_entries()
    }

    #[getter]
    fn key_size(&self) -> u32 {
        self.map.key_size()
    }

    #[getter]
    fn value_size(&self) -> u32 {
        self.map.value_size()
    }

    /// Whether the map's elements have no keys: queues, stacks, bloom filters, ring buffers.
    #[getter]
    fn is_keyless(&self) -> bool {
        self.map.kind().keys() == Keys::None
    }

    /// The value of a key; `None` if there is no such element.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = self.key(key)?;
        let index = || key.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let json = match self.map.kind().values() {
            Values::Map => {
                let inner = self.map.inner(&key).map(|map| Map::new(map, Arc::clone(&self.shared)));
                return inner.map(|map| Ok(Bound::new(py, map)?.into_any())).transpose();
            }
            Values::Program => self.map.program(index()).map(|id| self.program_name(id)),
            Values::Device | Values::Cpu | Values::Socket => {
                self.map.target(index()).map(|it| match it.id {
                    0 => json!(it.number),
                    id => json!({ "number": it.number, "prog": self.program_name(id) }),
                })
            }
            _ => {
                return match self.map.user().lookup(&key, 0) {
                    Ok(value) => self.to_python(py, &value).map(Some),
                    Err(Errno::ENOENT) => Ok(None),
                    Err(errno) => Err(self.said(errno)),
                };
            }
        };
        json.map(|json| Ok(pythonize(py, &json)?)).transpose()
    }

    /// Stores an element.
    fn store(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = match key.cast::<PyBytes>() {
            Ok(bytes) => hex(bytes.as_bytes()),
            Err(_other) => from_python(key)?,
        };
        let value = from_python(value)?;
        let entry = match value {
            Json::Array(values) if self.map.is_percpu() => {
                let values = values.into_iter().enumerate();
                let values: Vec<Json> =
                    values.map(|(cpu, value)| json!({ "cpu": cpu, "value": value })).collect();
                json!({ "key": key, "values": values })
            }
            value => json!({ "key": key, "value": value }),
        };
        self.put(json!([entry]))
    }

    /// Removes an element; `False` if there is none.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.map.user().delete(&self.key(key)?) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.said(errno)),
        }
    }

    /// A copy of all keys.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let def = self.map.def();
        let keys: Vec<Json> = match self.map.kind().values() {
            Values::Program => {
                let slots = 0..self.map.max_entries();
                slots.filter(|&slot| self.map.program(slot).is_some()).map(Json::from).collect()
            }
            Values::Device | Values::Cpu | Values::Socket => {
                self.map.targets().into_iter().map(|(key, _target)| key.into()).collect()
            }
            _ if self.is_keyless() => Vec::new(),
            _ => self.map.user().entries().map(|(key, _)| typed::key_to_json(def, &key)).collect(),
        };
        keys.iter().map(|key| Ok(pythonize(py, key)?)).collect()
    }

    /// Adds a value to a queue, a stack or a bloom filter.
    fn push(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(Json::Array(vec![from_python(value)?]))
    }

    /// Removes and returns the next value of a queue or stack; `None` if it is empty.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py, self.map.user().lookup_and_delete(&[], 0))
    }

    /// Returns the next value of a queue or stack, and keeps it; `None` if it is empty.
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py, self.map.user().lookup(&[], 0))
    }

    /// Removes and returns the records that programs sent to a ring buffer or as perf events.
    fn records<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let mut records = Vec::new();
        self.map.take_records(|record| records.push(PyBytes::new(py, record)));
        records
    }
}

impl Map {
    fn next<'py>(
        &self,
        py: Python<'py>,
        found: Result<Value, Errno>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match found {
            Ok(value) => self.to_python(py, &value).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.said(errno)),
        }
    }
}

/// Converts numbers, texts, lists, dicts and bytes.
fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Json> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(hex(bytes.as_bytes()));
    }
    Ok(depythonize(value)?)
}

/// Bytes in the form of documents.
fn hex(bytes: &[u8]) -> Json {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Json::String(format!("hex:{digits}"))
}
