//! From the arguments to a linked or verified program: open, set globals, select, link, verify.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::object::ObjectError;
use towpath_bpf::suggest;
use towpath_bpf::{Env, Linked, Object};
use towpath_daemon::globals::parse_value;
use towpath_xdp::Tally;
use towpath_xdp::host;
use towpath_xdp::program::LoadError;

use crate::args::{Assignment, MapSize, ProgramArgs, Selection};
use crate::error::CliError;
use crate::{files, leftover};

/// An object file and what to link it against.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Path of the object file.
    pub path: PathBuf,
    /// The object, with its globals set.
    pub object: Object,
    env: Env,
}

/// Reads and opens an object file, nothing more.
pub(crate) fn open_object(path: &Path) -> Result<Object, CliError> {
    let bytes = files::read(path, "an object file", OBJECT_BYTES_MAX)?;
    let name = path.display().to_string();
    Object::open(&bytes, &name)
        .map_err(|source| CliError::Object { path: path.to_owned(), source: Box::new(source) })
}

impl Opened {
    /// Opens an object file and sets the globals and the sizes of maps that the arguments name.
    pub(crate) fn new(path: &Path, args: &ProgramArgs) -> Result<Self, CliError> {
        Self::with_env(path, args, kernel_types(args.btf.as_deref())?)
    }

    /// As [`Opened::new`], with kernel types found before.
    pub(crate) fn with_env(path: &Path, args: &ProgramArgs, env: Env) -> Result<Self, CliError> {
        let mut object = open_object(path)?;
        for Assignment { name, value } in &args.set {
            let parsed = parse_value(value)
                .ok_or_else(|| CliError::Value { name: name.clone(), value: value.clone() })?;
            object.set_global(name, &parsed).map_err(|source| CliError::Global {
                path: path.to_owned(),
                source: Box::new(source),
            })?;
        }
        for MapSize { name, entries } in &args.map_sizes {
            object
                .set_map_size(name, *entries)
                .map_err(|source| CliError::MapSize { path: path.to_owned(), source })?;
        }
        Ok(Opened { path: path.to_owned(), object, env })
    }

    /// The index of the program that the arguments choose.
    pub(crate) fn select(&self, selection: &Selection) -> Result<usize, CliError> {
        let Selection { name, section } = selection;
        self.object.select(name.as_deref(), section.as_deref()).map_err(|source| CliError::Select {
            path: self.path.clone(),
            source: Box::new(source),
        })
    }

    /// Links a program.
    pub(crate) fn link(&self, program: usize) -> Result<Linked, CliError> {
        self.object.link(program, &self.env).map_err(|source| self.link_error(program, source))
    }

    /// Registers all programs with a sanitizer's tally, also those that do not run.
    pub(crate) fn look_at_all(&self, tally: &mut Tally) {
        for (index, program) in self.object.programs().iter().enumerate() {
            if !tally.has_seen(&program.name)
                && let Ok(linked) = self.link(index)
            {
                tally.look_at(&linked);
            }
        }
    }

    /// The name of a program.
    pub(crate) fn program_name(&self, program: usize) -> &str {
        self.object.programs().get(program).map_or("", |program| program.name.as_str())
    }

    /// The kernel that programs are linked against.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// The error for a program of this object that can't be loaded.
    pub(crate) fn load_error(&self, source: LoadError) -> CliError {
        let is_rejected = matches!(source, LoadError::Rejected { .. });
        let constants = is_rejected.then(|| leftover::constants(&self.object)).flatten();
        CliError::Load { path: self.path.clone(), source: Box::new(source), constants }
    }

    fn link_error(&self, program: usize, source: ObjectError) -> CliError {
        let program = self.program_name(program).to_owned();
        CliError::Link { path: self.path.clone(), program, source: Box::new(source) }
    }
}

/// The kernel types to link against: those in the arguments, else the running kernel's, else the
/// built-in ones.
pub(crate) fn kernel_types(wanted: Option<&Path>) -> Result<Env, CliError> {
    match wanted {
        Some(path) if path == Path::new("builtin") => Ok(Env::builtin()),
        Some(path) => {
            let bytes = files::read(path, "kernel BTF", BTF_BYTES_MAX)?;
            let btf = Btf::parse(&bytes).map_err(|error| CliError::Text {
                path: path.to_owned(),
                message: error.to_string(),
            })?;
            Ok(Env::new(Arc::new(btf)))
        }
        None => Ok(host::kernel_types()),
    }
}

/// Fails if the compiler has no pass of a name: leaving it out would change nothing.
pub(crate) fn check_passes(without: &[String]) -> Result<(), CliError> {
    let passes = towpath_jit::passes::PASSES.iter().map(|pass| pass.name);
    let known: Vec<&str> = passes.chain([towpath_jit::passes::LOOK_AHEAD]).collect();
    let unknown = without.iter().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        let hint = suggest::among(name, known.iter().copied());
        Err(CliError::NoPass { name: name.clone(), hint })
    })
}

const OBJECT_BYTES_MAX: u64 = 256 << 20;
const BTF_BYTES_MAX: u64 = 64 << 20;
