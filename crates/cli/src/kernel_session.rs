//! The maps and programs of one object in the running kernel, for `--exec kernel`.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::object::POISON_CALL;
use towpath_bpf::program::{SlotInit, Unresolved};
use towpath_bpf::{Linked, MapDef};
use towpath_kernel::{Kernel, KernelMap, KernelProgram, LoadError, MapSet, TestRun, TestRunResult};
use towpath_maps::Value;
use towpath_maps::mapfile::parse;
use towpath_xdp::Poison;

use crate::args::{ProgramCall, Selection};
use crate::error::CliError;
use crate::mapfile::{Contents, Filling, Step, Stored, read};
use crate::program::Opened;

/// One object's maps in the kernel, and every program that they hold.
#[derive(Debug)]
pub(crate) struct KernelSession<'a> {
    kernel: Kernel,
    opened: &'a Opened,
    defs: Arc<[MapDef]>,
    maps: MapSet,
    /// Programs and inner maps that stay open as long as this: an entry of a map does not keep them
    /// alive.
    programs: Vec<KernelProgram>,
    inner: Vec<MapSet>,
}

impl<'a> KernelSession<'a> {
    /// Creates the object's maps and loads the programs it puts into program arrays.
    pub(crate) fn open(opened: &'a Opened, linked: &Linked) -> Result<Self, CliError> {
        let kernel = Kernel::open()?;
        let defs = Arc::clone(&linked.maps);
        let maps =
            kernel.load_maps(&defs).map_err(|error| CliError::KernelRefused(error.to_string()))?;
        let (programs, inner) = (Vec::new(), Vec::new());
        let mut session = KernelSession { kernel, opened, defs, maps, programs, inner };
        session.fill_slots()?;
        Ok(session)
    }

    /// Loads a program over these maps.
    pub(crate) fn load(&self, linked: &Linked) -> Result<KernelProgram, CliError> {
        self.kernel
            .load(linked, &self.maps)
            .map_err(|error| CliError::KernelRefused(load_message(linked, &error)))
    }

    /// Loads a program of the object that users call, and calls it; gives its result, and the
    /// context that it leaves.
    pub(crate) fn call(&self, call: &ProgramCall) -> Result<(u32, Vec<u8>), CliError> {
        let ProgramCall { name, context } = call;
        let program = self.load_by_name(name)?;
        let mut context = context.clone();
        let returned = program.call(&mut context);
        let refused = |errno| CliError::KernelRefused(format!("{name} can't be called: {errno}"));
        Ok((returned.map_err(refused)?, context))
    }

    /// Runs a program of these maps on a stack whose initial bytes are poisoned.
    pub(crate) fn run_poisoned(
        &self,
        program: &KernelProgram,
        linked: &Linked,
        poison: &mut Poison,
        run: &TestRun<'_>,
    ) -> Result<TestRunResult, CliError> {
        let poisoned = self.kernel.poisoned(program, linked, || poison.next_word());
        let refused = |message: String| CliError::KernelRefused(message);
        let poisoned = poisoned.map_err(|error| refused(error.to_string()))?;
        poisoned.test_run(run).map_err(|error| refused(error.to_string()))
    }

    /// Stores the contents of a map file.
    pub(crate) fn fill(&mut self, path: &Path) -> Result<(), CliError> {
        let fillings = read(path, &self.defs, self.kernel.possible_cpus())?;
        self.store_all(&fillings)
            .map_err(|message| CliError::Text { path: path.to_owned(), message })
    }

    /// Stores contents that were read before, as [`KernelSession::fill`] does.
    pub(crate) fn fill_from(&mut self, contents: &Object<String, Json>) -> Result<(), String> {
        let fillings = parse(contents, &self.defs, self.kernel.possible_cpus())?;
        self.store_all(&fillings)
    }

    fn store_all(&mut self, fillings: &[Filling]) -> Result<(), String> {
        for Filling { map, steps } in fillings {
            for step in steps {
                self.store(*map, step).map_err(|message| format!("{}: {message}", step.path))?;
            }
        }
        Ok(())
    }

    /// Stores an element that the map may refuse.
    pub(crate) fn put(&self, map: usize, key: &[u8], value: &[u8]) {
        if let Some(map) = self.maps.maps().get(map) {
            let _refused = map.update(key, value, 0);
        }
    }

    /// One of the object's maps.
    pub(crate) fn map(&self, index: usize) -> Option<&KernelMap> {
        self.maps.maps().get(index)
    }

    /// Number of possible CPUs: a per-CPU map has a value for each.
    pub(crate) fn possible_cpus(&self) -> usize {
        self.kernel.possible_cpus()
    }

    /// Contents of the maps now.
    pub(crate) fn contents(&self, names: &[String]) -> Contents {
        Contents::of_kernel(&self.defs, &self.maps, self.kernel.possible_cpus(), names)
    }

    fn fill_slots(&mut self) -> Result<(), CliError> {
        let defs = Arc::clone(&self.defs);
        let names: BTreeSet<&str> = defs
            .iter()
            .flat_map(|map| &map.slots)
            .filter_map(|(_, init)| match init {
                SlotInit::Program(name) => Some(name.as_str()),
                SlotInit::Map(_) => None,
            })
            .collect();
        for name in names {
            let program = self.load_by_name(name)?;
            self.maps
                .set_program(&program)
                .map_err(|error| CliError::KernelRefused(error.to_string()))?;
            self.programs.push(program);
        }
        Ok(())
    }

    fn load_by_name(&self, name: &str) -> Result<KernelProgram, CliError> {
        let selection = Selection { name: Some(name.to_owned()), section: None };
        self.load(&self.opened.link(self.opened.select(&selection)?)?)
    }

    fn store(&mut self, map: usize, step: &Step) -> Result<(), String> {
        let value = match &step.stored {
            Stored::Value(value) => in_kernel_form(value),
            Stored::Program(name) => self.program_number(name)?.to_vec(),
            Stored::Target(number, program) => {
                let mut value = number.to_le_bytes().to_vec();
                if let Some(name) = program {
                    value.extend(self.program_number(name)?);
                }
                value
            }
            Stored::Map(index) => {
                let inner = self.maps.maps().get(*index).ok_or("the object has no such map")?;
                number(inner).to_vec()
            }
            Stored::Inner(steps) => self.inner_map(map, steps)?.to_vec(),
        };
        let map = self.maps.maps().get(map).ok_or("the object has no such map")?;
        update(map, step.key.as_deref(), value)
    }

    /// File descriptor of another program of the object, which is loaded at the first use of its
    /// name.
    fn program_number(&mut self, name: &str) -> Result<[u8; 4], String> {
        if let Some(program) = self.programs.iter().find(|program| program.name() == name) {
            return Ok(number(program));
        }
        let program = self.load_by_name(name).map_err(|error| error.to_string())?;
        let found = number(&program);
        self.programs.push(program);
        Ok(found)
    }

    /// File descriptor of a new map like the template of map `outer`.
    fn inner_map(&mut self, outer: usize, steps: &[Step]) -> Result<[u8; 4], String> {
        let template = self.defs.get(outer).and_then(|def| def.inner.as_deref());
        let template = template.ok_or("the object does not define the inner maps")?.clone();
        let set = self.kernel.load_maps(&[template]).map_err(|error| error.to_string())?;
        let inner = set.maps().first().ok_or("the kernel made no map")?;
        for step in steps {
            let Stored::Value(value) = &step.stored else {
                return Err(format!("{}: only values can be stored here", step.path));
            };
            update(inner, step.key.as_deref(), in_kernel_form(value))
                .map_err(|message| format!("{}: {message}", step.path))?;
        }
        let found = number(inner);
        self.inner.push(set);
        Ok(found)
    }
}

fn update(map: &KernelMap, key: Option<&[u8]>, mut value: Vec<u8>) -> Result<(), String> {
    // Values of devmaps and cpumaps may have a program behind the number.
    value.resize(map.value_bytes(), 0);
    map.update(key.unwrap_or_default(), &value, 0)
        .map_err(|errno| format!("the kernel refuses it: {errno}"))
}

fn number(fd: &impl AsFd) -> [u8; 4] {
    fd.as_fd().as_raw_fd().to_le_bytes()
}

/// The value as the kernel's interface has it: values of a per-CPU element start at multiples of 8.
fn in_kernel_form(value: &Value) -> Vec<u8> {
    let padded = |bytes: &Vec<u8>| {
        let mut bytes = bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    match value {
        Value::One(bytes) => bytes.clone(),
        Value::PerCpu(all) => all.iter().flat_map(padded).collect(),
    }
}

/// Message of a refused program: the last lines of the kernel's log, which have the cause.
fn load_message(linked: &Linked, error: &LoadError) -> String {
    let program = &linked.name;
    let log: Vec<&str> =
        error.log().lines().filter(|line| !line.starts_with("processed")).collect();
    let mut tail = log[log.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
    if let Some(unresolved) = reached(linked, &log) {
        tail += &format!("\n  unresolved CO-RE relocation {}", unresolved.what);
    }
    match error.errno() {
        Some(errno) if !tail.is_empty() => format!("{program} is refused: {errno}\n  {tail}"),
        _ => format!("{program}: {error}"),
    }
}

/// The unresolved CO-RE relocation at which the kernel's log ends: the kernel knows only the call
/// that the linker put there.
fn reached<'a>(linked: &'a Linked, log: &[&str]) -> Option<&'a Unresolved> {
    let call = format!("call unknown#{POISON_CALL}");
    let line = log.iter().rev().find(|line| line.contains(&call))?;
    let insn: u32 = line.split(':').next()?.parse().ok()?;
    linked.unresolved.iter().find(|unresolved| unresolved.insn == insn)
}

const LOG_LINES_SHOWN: usize = 8;
