//! A program loaded by Towpath itself, with maps filled and host tables in place.

use std::path::Path;
use std::sync::Arc;

use towpath_bpf::program::AttachType;
use towpath_host::tables;
use towpath_xdp::host::Host;
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Exec, Finding, Program, Sanitize, Tally, Worker};

use crate::args::{ProgramArgs, ProgramCall, Selection, Surroundings};
use crate::error::CliError;
use crate::events::Events;
use crate::program::Opened;
use crate::{files, mapfile};

/// A program that is ready to run, and the worker that runs it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The program.
    pub program: Program,
    /// State of the thread that runs it: stack, context, CPU number.
    pub worker: Worker,
    /// Findings of the sanitizer if it tracks the program, with those on the object's other
    /// programs.
    tally: Tally,
}

impl Session {
    /// Opens, links, verifies and loads a program, and fills its object's maps. A program whose
    /// uninitialized bytes are tracked is interpreted.
    pub(crate) fn open(
        object: &Path,
        selection: &Selection,
        linking: &ProgramArgs,
        surroundings: &Surroundings,
        exec: Exec,
    ) -> Result<Self, CliError> {
        let opened = Opened::new(object, linking)?;
        let index = opened.select(selection)?;
        let message = match opened.object.programs()[index].attach {
            AttachType::Dequeue => {
                "a dequeue program is given no frames: it runs on a port (towpath load PORT OBJ \
                 --hook dequeue), or in a case of towpath test"
            }
            AttachType::Syscall => {
                "a syscall program is given no frames: --call PROG calls it before another program \
                 of the object runs, and so does a case of towpath test"
            }
            _ => "",
        };
        if !message.is_empty() {
            return Err(refused(object, message));
        }
        let shown = surroundings.dump_maps.as_deref().unwrap_or_default();
        mapfile::check_names(shown, opened.object.maps())?;
        let name = opened.program_name(index);
        let host = surroundings.fib.as_deref().map(read_host).transpose()?.unwrap_or_default();
        let mut options = LoadOptions {
            workers: surroundings.cpus as usize,
            host: Arc::new(host.into()),
            exec: if surroundings.sanitize == Sanitize::Track { Exec::Interp } else { exec },
            ..LoadOptions::default()
        };
        surroundings.trust.apply(&mut options);
        surroundings.sanitize.prepare(&mut options);
        let mut session = Session::load(&opened, name, &options, |loader| {
            surroundings.map_init.as_deref().map_or(Ok(()), |path| mapfile::fill(path, loader))?;
            surroundings.calls.iter().try_for_each(|call| call_first(&opened, loader, call))
        })?;
        surroundings.sanitize.begin(&mut session.worker);
        if surroundings.sanitize == Sanitize::Track {
            opened.look_at_all(&mut session.tally);
        }
        Ok(session)
    }

    /// Loads a program that users call, and calls it; gives its result, and the context as it left
    /// it.
    pub(crate) fn call(
        opened: &Opened,
        name: &str,
        mut context: Vec<u8>,
        surroundings: &Surroundings,
    ) -> Result<(u32, Vec<u8>), CliError> {
        let workers = surroundings.cpus as usize;
        let options = LoadOptions { workers, exec: Exec::Interp, ..LoadOptions::default() };
        let mut session = Session::load(opened, name, &options, |loader| {
            surroundings.map_init.as_deref().map_or(Ok(()), |path| mapfile::fill(path, loader))?;
            surroundings.calls.iter().try_for_each(|call| call_first(opened, loader, call))
        })?;
        let returned = session.program.call(&mut session.worker, &mut context);
        let returned = returned.map_err(|error| refused(&opened.path, &error.to_string()))?;
        Ok((returned, context))
    }

    /// Findings of the sanitizer.
    pub(crate) fn findings(&mut self) -> Vec<Finding> {
        let Some(sanitizer) = self.worker.sanitizer() else { return Vec::new() };
        let mut findings = sanitizer.take();
        self.tally.add(sanitizer);
        findings.extend(self.tally.findings());
        findings
    }

    /// Verifies and loads a program of an opened object, and calls `fill` to fill the object's
    /// maps.
    pub(crate) fn load(
        opened: &Opened,
        name: &str,
        options: &LoadOptions,
        fill: impl FnOnce(&Loader<'_>) -> Result<(), CliError>,
    ) -> Result<Self, CliError> {
        let refused = |source| opened.load_error(source);
        let loader = Loader::new(&opened.object, opened.env(), options).map_err(refused)?;
        let program = loader.program(Select::Name(name)).map_err(refused)?;
        fill(&loader)?;
        Events::open(program.maps());
        Ok(Session { worker: program.worker(0), program, tally: Tally::default() })
    }
}

/// Calls a program before the one that is run.
fn call_first(opened: &Opened, loader: &Loader<'_>, call: &ProgramCall) -> Result<(), CliError> {
    let program = loader.program(Select::Name(&call.name));
    let program = program.map_err(|error| opened.load_error(error))?;
    let called = program.call(&mut program.worker(0), &mut call.context.clone());
    called.map(|_returned| ()).map_err(|error| refused(&opened.path, &error.to_string()))
}

fn refused(path: &Path, message: &str) -> CliError {
    CliError::Text { path: path.to_owned(), message: message.to_owned() }
}

/// Reads the file that `--fib` names.
pub(crate) fn read_host(path: &Path) -> Result<Host, CliError> {
    let refused = |message: String| CliError::Text { path: path.to_owned(), message };
    let bytes = files::read(path, "a table of routes", tables::FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| refused(format!("not text: byte {}", error.utf8_error().valid_up_to())))?;
    let (host, problems) = tables::parse(&text).map_err(refused)?.tables(&[]);
    match problems.first() {
        Some(problem) => Err(refused(problem.to_string())),
        None => Ok(host),
    }
}
