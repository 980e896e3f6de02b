//! An object file before and after it is loaded, and its programs.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towpath::{
    Errno, Exec, Frame, GlobalValue, LoadOptions, Loader, RedirectTarget, RxInfo, Select, Verdict,
    Worker,
};

use crate::error::Error;
use crate::map::Map;

/// `struct towpath_object`
pub(crate) struct Object(Mutex<State>);

struct State {
    stage: Stage,
    /// Objects to which C has pointers: boxes never move.
    programs: BTreeMap<String, Box<Program>>,
    maps: BTreeMap<String, Box<Map>>,
    printed: VecDeque<String>,
}

enum Stage {
    Opened(Box<towpath::Object>),
    Loaded(Box<Loader<'static>>, Workers),
}

/// Workers by CPU: each is used by one run at a time.
type Workers = Arc<[Mutex<Worker>]>;

/// `struct towpath_program`
pub(crate) struct Program {
    program: towpath::Program,
    workers: Workers,
}

/// The place where a packet arrives.
pub(crate) struct Arrival {
    pub(crate) ifindex: u32,
    pub(crate) queue_index: u32,
    pub(crate) cpu: u32,
}

impl Object {
    pub(crate) fn open(path: &Path) -> Result<Object, Error> {
        let bytes = std::fs::read(path).map_err(|error| {
            let errno = Errno(error.raw_os_error().unwrap_or(Errno::EINVAL.0));
            Error::new(errno, &format!("{}: {error}", path.display()))
        })?;
        let object = towpath::Object::open(&bytes, &path.display().to_string())
            .map_err(|error| Error::new(Errno::EINVAL, &error))?;
        Ok(Object(Mutex::new(State {
            stage: Stage::Opened(Box::new(object)),
            programs: BTreeMap::new(),
            maps: BTreeMap::new(),
            printed: VecDeque::new(),
        })))
    }

    pub(crate) fn set_global(&self, name: &str, value: &[u8]) -> Result<(), Error> {
        let value = GlobalValue::Bytes(value.to_vec());
        self.0.lock().opened()?.set_global(name, &value).map_err(|error| {
            let is_missing = matches!(error, towpath::GlobalError::Missing { .. });
            Error::new(if is_missing { Errno::ENOENT } else { Errno::EINVAL }, &error)
        })
    }

    pub(crate) fn set_map_size(&self, name: &str, entries: u32) -> Result<(), Error> {
        let result = self.0.lock().opened()?.set_map_size(name, entries);
        result.map_err(|error| Error::new(Errno::EINVAL, &error))
    }

    pub(crate) fn load(&self, exec: Exec, cpus: u32) -> Result<(), Error> {
        if !(1..=CPUS_MAX).contains(&cpus) {
            let text = format!("{cpus} CPUs, not 1 to {CPUS_MAX}");
            return Err(Error::new(Errno::EINVAL, &text));
        }
        if exec == Exec::Llvm
            && let Err(why) = towpath::llvm_library()
        {
            return Err(Error::new(Errno::EOPNOTSUPP, &why));
        }
        let mut state = self.0.lock();
        let options = LoadOptions { workers: cpus as usize, exec, ..LoadOptions::default() };
        let loader = Loader::new(state.opened()?, towpath::kernel_types(), &options)?.into_owned();
        for perf in loader.maps().maps().iter().filter_map(|map| map.perf()) {
            perf.open_all(PERF_RING_BYTES);
        }
        let workers = (0..cpus).map(|cpu| Mutex::new(Worker::new(cpu))).collect();
        state.stage = Stage::Loaded(Box::new(loader), workers);
        Ok(())
    }

    /// Returns a pointer that is valid until the object is closed.
    pub(crate) fn program(&self, name: Option<&str>) -> Result<*mut Program, Error> {
        let mut state = self.0.lock();
        let (loader, workers) = state.loaded()?;
        let program = loader.program(name.map_or(Select::Only, Select::Name))?;
        program.wait_for_tier2(TIER2_TIMEOUT);
        let (name, workers) = (program.name().to_owned(), Arc::clone(workers));
        // A program to which C has a pointer stays; both are the same program.
        let program =
            state.programs.entry(name).or_insert_with(|| Box::new(Program { program, workers }));
        Ok(&raw mut **program)
    }

    /// Returns a pointer that is valid until the object is closed.
    pub(crate) fn map(&self, name: &str) -> Result<*mut Map, Error> {
        let mut state = self.0.lock();
        let (loader, _workers) = state.loaded()?;
        let map = loader.maps().by_name(name).map(|map| Map::new(Arc::clone(map)));
        let map = map.ok_or_else(|| Error::new(Errno::ENOENT, &format!("no map {name:?}")))?;
        Ok(&raw mut **state.maps.entry(name.to_owned()).or_insert_with(|| Box::new(map)))
    }

    pub(crate) fn set_clock(&self, ns: u64) -> Result<(), Error> {
        self.0.lock().loaded()?.0.surroundings().clock.set(ns);
        Ok(())
    }

    pub(crate) fn printed(&self) -> Result<String, Error> {
        let mut state = self.0.lock();
        let lines = state.loaded()?.0.surroundings().trace.take();
        state.printed.extend(lines);
        state.printed.pop_front().ok_or_else(|| Error::new(Errno::ENOENT, &"no line"))
    }
}

impl State {
    fn opened(&mut self) -> Result<&mut towpath::Object, Error> {
        match &mut self.stage {
            Stage::Opened(object) => Ok(object),
            Stage::Loaded(..) => Err(Error::new(Errno::EBUSY, &"the object is loaded already")),
        }
    }

    fn loaded(&self) -> Result<(&Loader<'static>, &Workers), Error> {
        match &self.stage {
            Stage::Loaded(loader, workers) => Ok((loader, workers)),
            Stage::Opened(_) => Err(Error::new(Errno::EINVAL, &"the object is not loaded yet")),
        }
    }
}

impl Program {
    pub(crate) fn run(&self, packet: &[u8], at: &Arrival) -> Result<(Verdict, Frame), Error> {
        let mut frame = Frame::new(packet).map_err(|error| Error::new(Errno::EINVAL, &error))?;
        frame.rx = RxInfo { ifindex: at.ifindex, queue_index: at.queue_index, ..frame.rx };
        let worker = self.workers.get(at.cpu as usize).ok_or_else(|| {
            Error::new(Errno::EINVAL, &format!("CPU {} of {}", at.cpu, self.workers.len()))
        })?;
        let mut worker = worker.lock();
        let verdict = self.program.run(&mut worker, &mut frame);
        let verdict = verdict.map_err(|fault| Error::new(Errno::EFAULT, &fault))?;
        Ok((verdict, frame))
    }

    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }
}

/// The ifindex of a verdict's target, or 0.
pub(crate) fn ifindex(verdict: &Verdict) -> u32 {
    match &verdict.target {
        Some(RedirectTarget::Interface { ifindex }) => *ifindex,
        Some(RedirectTarget::Entry { entry, .. }) => entry.number,
        _ => 0,
    }
}

/// Most CPUs: per-CPU maps have values for as many.
const CPUS_MAX: u32 = 1024;
const PERF_RING_BYTES: usize = 1 << 20;
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
