//! An object file with its maps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use towpath::{Exec, GlobalValue, LoadOptions, Loader, Sanitize, Sanitizer, Select};

use crate::coverage::Coverage;
use crate::error::{self, Error, ObjectError};
use crate::finding::Finding;
use crate::host::Host;
use crate::map::Map;
use crate::program::{Lane, Program};

/// An opened object: its maps, and the state that its programs share.
#[pyclass(frozen, module = "towpath._native")]
pub(crate) struct Object(Arc<Shared>);

/// State that programs and maps of an object keep alive.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Path of the object file, for messages.
    path: String,
    /// Receives the lines that its programs reach.
    pub(crate) coverage: Option<Coverage>,
    /// The host that its programs see.
    host: Host,
}

/// State that one thread uses at a time: maps rely on one run per CPU.
pub(crate) struct State {
    pub(crate) loader: Loader<'static>,
    /// Lanes by CPU.
    pub(crate) lanes: Vec<Lane>,
    /// Number of the host's connections that its programs have.
    connections: usize,
}

#[pymethods]
impl Object {
    /// Opens an object file and creates its maps.
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        how: (String, String),
        cpus: usize,
        set: (BTreeMap<String, Bound<'_, PyAny>>, BTreeMap<String, u32>),
        around: (Option<PyRef<'_, Coverage>>, PyRef<'_, Host>),
    ) -> PyResult<Object> {
        let ((exec, sanitize), (globals, map_size), (coverage, host)) = (how, set, around);
        if !(1..=CPUS_MAX).contains(&cpus) {
            return Err(PyValueError::new_err(format!("cpus is {cpus}, not 1 to {CPUS_MAX}")));
        }
        let exec = exec_named(&exec)?;
        let sanitize = sanitize_named(&sanitize, exec)?;
        let shown = path.display().to_string();
        let named = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
        let bytes = std::fs::read(&path)?;
        let mut object = towpath::Object::open(&bytes, &shown)
            .map_err(|error| ObjectError::new_err(error.to_string()))?;
        for (name, value) in &globals {
            object
                .set_global(name, &global(value)?)
                .map_err(|error| PyValueError::new_err(named(&error)))?;
        }
        for (name, &entries) in &map_size {
            object
                .set_map_size(name, entries)
                .map_err(|error| PyValueError::new_err(named(&error)))?;
        }
        let (workers, host) = (cpus, host.clone());
        let mut options =
            LoadOptions { workers, exec, host: host.live(), ..LoadOptions::default() };
        sanitize.prepare(&mut options);
        // Hints are for programs that are bound to a port: this one is bound to the port of the
        // test.
        options.verifier.device_bound = true;
        let loader = Loader::new(&object, towpath::kernel_types(), &options);
        let loader = loader.map_err(|error| error::refused(py, &shown, &error))?.into_owned();
        for perf in loader.maps().maps().iter().filter_map(|map| map.perf()) {
            perf.open_all(PERF_RING_BYTES);
        }
        let mut lanes: Vec<Lane> = (0..cpus as u32).map(Lane::new).collect();
        lanes.iter_mut().for_each(|lane| sanitize.begin(&mut lane.worker));
        let state = Mutex::new(State { loader, lanes, connections: 0 });
        let coverage = coverage.map(|it| it.clone());
        Ok(Object(Arc::new(Shared { state, path: shown, coverage, host })))
    }

    /// Names of the object's programs with their sections, in the file's order.
    fn programs(&self) -> Vec<(String, String)> {
        let state = self.0.state();
        let programs = state.loader.object().programs().iter();
        programs.map(|program| (program.name.clone(), program.section.clone())).collect()
    }

    /// Verifies and compiles a program, and returns it ready to run.
    fn program(&self, py: Python<'_>, name: Option<&str>) -> PyResult<Program> {
        let loaded = py.detach(|| {
            let program = self.0.state().loader.program(name.map_or(Select::Only, Select::Name))?;
            program.wait_for_tier2(TIER2_TIMEOUT);
            Ok(program)
        });
        let program = loaded.map_err(|error| error::refused(py, &self.0.path, &error))?;
        Ok(Program::new(program, Arc::clone(&self.0)))
    }

    /// The object's maps, except constants.
    fn maps(&self) -> Vec<Map> {
        let state = self.0.state();
        let maps = state.loader.maps().maps().iter();
        let is_users = |map: &&Arc<towpath::maps::Map>| {
            !map.def().section.is_some_and(|section| section.is_constant())
        };
        maps.filter(is_users).map(|map| Map::new(Arc::clone(map), Arc::clone(&self.0))).collect()
    }

    /// Lines that programs printed since the last call.
    fn printed(&self) -> Vec<String> {
        self.0.state().loader.surroundings().trace.take()
    }

    /// Findings of the sanitizer since the last call.
    fn findings(&self) -> Vec<Finding> {
        let mut state = self.0.state();
        let workers = state.lanes.iter_mut().map(|lane| &mut lane.worker);
        let sanitizers = workers.filter_map(towpath::Worker::sanitizer);
        let found = sanitizers.flat_map(Sanitizer::take).map(|found| Finding::from(&found));
        found.collect()
    }

    /// The clock that programs see, in nanoseconds; 0 for the machine's clock.
    #[getter]
    fn clock(&self) -> u64 {
        self.0.state().loader.surroundings().clock.set_time().unwrap_or(0)
    }

    #[setter]
    fn set_clock(&self, ns: u64) {
        self.0.state().loader.surroundings().clock.set(ns);
    }
}

impl Object {
    /// Adds the sanitizers' observations to a tally, which gets all programs, also those that do
    /// not run.
    pub(crate) fn add_to(&self, tally: &mut towpath::Tally) {
        let mut state = self.0.state();
        let State { loader, lanes, .. } = &mut *state;
        let workers = lanes.iter_mut().map(|lane| &mut lane.worker);
        workers.filter_map(towpath::Worker::sanitizer).for_each(|it| tally.add(it));
        let object = loader.object();
        for (index, program) in object.programs().iter().enumerate() {
            if !tally.has_seen(&program.name)
                && let Ok(linked) = object.link(index, towpath::kernel_types())
            {
                tally.look_at(&linked);
            }
        }
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Locks the state for a run, after its programs have all of the host's connections.
    pub(crate) fn ready(&self, program: &towpath::Program) -> PyResult<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        self.host.enter(program, &mut state.connections)?;
        Ok(state)
    }
}

impl State {
    /// Number of the program of this name for a map that refers to it; loads it if necessary.
    pub(crate) fn program_id(&self, name: &str) -> Result<u32, String> {
        let program = self.loader.program(Select::Name(name));
        program.map(|program| program.id()).map_err(|error| error.to_string())
    }
}

fn exec_named(name: &str) -> PyResult<Exec> {
    let all = [Exec::Interp, Exec::Jit, Exec::Llvm, Exec::Auto];
    let exec = all.into_iter().find(|exec| exec.name() == name).ok_or_else(|| {
        PyValueError::new_err(format!("exec is {name:?}, not interp, jit, llvm or auto"))
    })?;
    match exec {
        Exec::Llvm => {
            let why = towpath::llvm_library().err();
            why.map_or(Ok(exec), |why| Err(Error::new_err(format!("exec llvm: {why}"))))
        }
        exec => Ok(exec),
    }
}

fn sanitize_named(text: &str, exec: Exec) -> PyResult<Sanitize> {
    let refused =
        |why: &dyn std::fmt::Display| PyValueError::new_err(format!("sanitize is {text:?}: {why}"));
    let sanitize = text.parse().map_err(|error| refused(&error))?;
    match sanitize {
        Sanitize::Track if exec != Exec::Interp => {
            Err(refused(&"bytes are followed in the interpreter only; give exec=\"interp\", too"))
        }
        sanitize => Ok(sanitize),
    }
}

fn global(value: &Bound<'_, PyAny>) -> PyResult<GlobalValue> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(GlobalValue::Bytes(bytes.as_bytes().to_vec()));
    }
    Ok(GlobalValue::Int(value.extract()?))
}

/// Largest number of CPUs for which per-CPU maps may have values.
const CPUS_MAX: usize = 1024;
const PERF_RING_BYTES: usize = 1 << 20;
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
