//! The host around programs, as tests describe it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pythonize::depythonize;
use serde_json::Value as Json;
use towpath::{KnownConnection, host};
use towpath_document::{Problem, typed};
use towpath_host::Live;
use towpath_host::tables::{self, HostState};
use towpath_testing::{ConnectionDocument, SocketDocument, why_not_entered};

use crate::error;

/// The host that programs see, for all objects that were opened with it.
#[pyclass(frozen, skip_from_py_object, module = "towpath._native")]
#[derive(Clone, Default)]
pub(crate) struct Host(Arc<SharedHost>);

#[derive(Default)]
struct SharedHost {
    live: Arc<Live>,
    said: Mutex<Said>,
}

/// The description so far.
#[derive(Clone, Default)]
struct Said {
    tables: HostState,
    sockets: Vec<host::Socket>,
    connections: Vec<KnownConnection>,
}

impl Said {
    fn add(&mut self, what: &str, entry: Json) -> Result<(), Problem> {
        let inside = |problem: Problem| problem.inside(what);
        let wrong = |message: String| Problem::new(what, message);
        match what {
            "interface" => self.tables.interface.push(typed(entry).map_err(inside)?),
            "route" => self.tables.route.push(typed(entry).map_err(inside)?),
            "neighbour" => self.tables.neighbour.push(typed(entry).map_err(inside)?),
            "socket" => {
                let document: SocketDocument = typed(entry).map_err(inside)?;
                self.sockets.push(document.into_socket().map_err(wrong)?);
            }
            _ => {
                let document: ConnectionDocument = typed(entry).map_err(inside)?;
                self.connections.push(document.into_connection().map_err(wrong)?);
            }
        }
        Ok(())
    }

    /// Tables of the host, or the error in an entry.
    fn host(&self) -> Result<host::Host, Problem> {
        let (host, problems) = self.tables.tables(&[]);
        let host = host::Host { sockets: self.sockets.clone(), ..host };
        problems.into_iter().next().map_or(Ok(host), Err)
    }
}

impl Host {
    /// The host for look-ups.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.0.live)
    }

    /// Adds connections that an object's programs don't have yet; `known` counts those that they
    /// have.
    pub(crate) fn enter(&self, program: &towpath::Program, known: &mut usize) -> PyResult<()> {
        let said = self.0.said.lock();
        for connection in &said.connections[*known..] {
            *known += 1;
            program.enter_connection(connection).map_err(|errno| {
                let (number, why) = (*known, why_not_entered(errno));
                error::Error::new_err(format!("connection {number} of the host: {why}"))
            })?;
        }
        Ok(())
    }

    /// Applies a change to the description; on an error, the description stays as it was.
    fn change(&self, change: impl FnOnce(&mut Said) -> Result<(), Problem>) -> PyResult<()> {
        let refused = |problem: Problem| PyValueError::new_err(problem.to_string());
        let mut said = self.0.said.lock();
        let mut next = said.clone();
        change(&mut next).map_err(refused)?;
        self.0.live.replace(next.host().map_err(refused)?);
        *said = next;
        Ok(())
    }
}

#[pymethods]
impl Host {
    #[new]
    fn new() -> Host {
        Host::default()
    }

    /// Adds an `interface`, `route`, `neighbour`, `socket` or `connection`, in the format of files.
    fn add(&self, what: &str, entry: &Bound<'_, PyAny>) -> PyResult<()> {
        let entry = depythonize(entry)?;
        self.change(|said| said.add(what, entry))
    }

    /// Replaces interfaces, routes and neighbours by those of a file.
    fn load(&self, path: PathBuf) -> PyResult<()> {
        let text = std::fs::read_to_string(&path)?;
        let wrong = |message: String| Problem::new(path.display().to_string(), message);
        self.change(|said| {
            said.tables = tables::parse(&text).map_err(wrong)?;
            said.host().map(drop).map_err(|problem| wrong(problem.to_string()))
        })
    }
}
