//! Programs: loading, filling their maps, removal.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::map::Values;
use towpath_maps::mapfile::{self, Filling, Step, Stored};
use towpath_maps::{Environment as _, Map, number};
use towpath_objects::{MapUse, ProgramObject, Session};
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Exec, Program, Trust};

use super::Live;
use super::contents::Contents;
use super::parts::{LiveLink, LiveProgram};
use super::report::Report;
use super::takeover::Takeover;
use crate::model::failure::FailureCode;
use crate::model::run_config::run_config;
use crate::model::state::{ExecState, ProgramState, State, TrustState};

impl Live {
    /// Loads programs that are wanted and missing, or loaded from other bytes. A program that
    /// cannot be loaded leaves the previous one running.
    pub(super) fn load_programs(&mut self, wanted: &State, report: &mut Report) {
        for state in &wanted.programs {
            self.load_running(&state.key, report);
            let before = self.programs.get(&state.key);
            let is_same = |live: &LiveProgram| {
                is_same_program(&live.state, state) && self.is_where_bound(live)
            };
            if before.is_some_and(is_same) {
                continue;
            }
            self.news.doing(format!("loading program {}", state.key));
            let is_new = before.is_none();
            let before = match &state.maps_of {
                Some(key) => self.programs.get(key).or(before),
                None => before,
            };
            match self.load(state, before, report) {
                Ok(program) => {
                    let what = if is_new { "loaded" } else { "replaced" };
                    let name = program.program.name();
                    report.change(format!("program {name}: {what}, id {}", program.id()));
                    if let Some(old) = self.programs.insert(state.key.clone(), program) {
                        self.replaced.push(old);
                    }
                }
                Err(why) => report.fail(
                    FailureCode::Program,
                    format!("program {}", state.file_and_program()),
                    why,
                ),
            }
        }
    }

    /// Loads the program that ran when the daemon ended, if it ran in place of a wanted one. The
    /// wanted program is then tried again, with the maps of this one.
    fn load_running(&mut self, key: &str, report: &mut Report) {
        let Some(running) = self.take_running(key) else { return };
        if self.programs.contains_key(key) {
            return;
        }
        match self.load(&running, None, report) {
            Ok(program) => {
                let name = program.program.name();
                report.change(format!("program {name}: loaded again, id {}", program.id()));
                self.programs.insert(key.to_owned(), program);
            }
            Err(why) => {
                let subject = format!("program {}", running.file_and_program());
                report.fail(FailureCode::Program, subject, why);
                self.put_running_back(running);
            }
        }
    }

    /// Whether the program is still bound to its port: a port that went and returned is another
    /// device.
    fn is_where_bound(&self, live: &LiveProgram) -> bool {
        let port = live.state.bound_to.as_ref().map(|name| self.ports.get(name));
        port.is_none_or(|port| live.object.bound_to() == port.map(|port| port.ifindex))
    }

    /// Loads a program that replaces `before`.
    pub(crate) fn load(
        &self,
        state: &ProgramState,
        before: Option<&LiveProgram>,
        report: &mut Report,
    ) -> Result<LiveProgram, String> {
        let (file, index) = self.objects.program(state)?;
        let name = file.programs()[index].name.clone();
        let takeover = Takeover::find(self, state, &file, before)?;
        let mut options = LoadOptions {
            workers: self.engine.workers(),
            environment: Some(Arc::clone(&self.known) as Arc<dyn towpath_maps::Environment>),
            exec: exec(state.exec),
            host: Arc::clone(self.host.live()),
            existing: takeover.existing.clone(),
            jit: self.compiler.clone(),
            ..LoadOptions::default()
        };
        let bound_to = match &state.bound_to {
            None => None,
            Some(name) => {
                let port = self.ports.get(name);
                let port =
                    port.ok_or_else(|| format!("port {name}, to which it is bound, is not open"))?;
                Some(port.ifindex)
            }
        };
        options.verifier.device_bound = bound_to.is_some();
        options.jit.trust = match state.trust {
            TrustState::Verified => Trust::Verified,
            TrustState::Checked | TrustState::Guest => Trust::Guest,
        };
        if state.trust == TrustState::Guest {
            options.jit.mask_speculation = true;
            options.verifier.restrict();
        }
        let loader = Loader::within(&file, &self.env, &options, self.registry.shared());
        let loader = loader.map_err(|error| error.to_string())?;
        let loading = Loading { live: self, loader, bound_to, loaded: RefCell::default() };
        let program = loading.program(&name)?;
        let _uses = program.object.maps().into_iter().map(MapUse::new).collect();
        let (maps, cpus) = (loading.loader.maps(), self.engine.workers());
        let contents = Contents::new(state.maps.as_ref(), maps, before, &takeover.kept, cpus)?;
        loading.fill(&contents)?;
        loading.keep(&program.object);
        contents.forget_old(&self.registry)?;
        takeover.finish(&self.registry, maps, &program.object, before, report)?;
        self.fill_again(&state.key, &program.object);
        let run_config = run_config(&file, &name);
        let Loaded { object, program } = program;
        Ok(LiveProgram { state: state.clone(), object, run_config, program, _uses })
    }

    /// Removes programs that are neither wanted nor used by a link, with the programs that their
    /// maps refer to. A wanted program stays, even if its port is missing or the program was
    /// stopped: after a reload, it would be stopped again, without the contents of its maps.
    pub(super) fn forget_programs(&mut self, wanted: &State) {
        let attached = self.links.iter().map(|link| &link.attach.program);
        let used: HashSet<&String> =
            attached.chain(wanted.programs.iter().map(|state| &state.key)).collect();
        let is_used = |(key, _): &(&String, &LiveProgram)| used.contains(*key);
        let unused = self.programs.iter().filter(|it| !is_used(it));
        let gone: Vec<String> = unused.map(|(key, _)| key.clone()).collect();
        self.replaced.clear();
        for key in gone {
            self.programs.remove(&key);
        }
        let is_there = |link: &LiveLink| self.programs.contains_key(&link.attach.program);
        assert!(self.links.iter().all(is_there), "a link keeps its program");
    }

    /// Reports programs that were stopped or halted, including those of `bpf(2)` clients.
    pub(super) fn tell_stopped(&self, report: &mut Report) {
        let session = Session::new(&self.registry, 0);
        for object in session.progs() {
            let halted = object.program().standing().halted();
            let halted = halted.map(|halt| format!("halted, its frames are dropped: {}", halt.why));
            let stopped = object.program().stopped().map(|fault| format!("stopped: {fault}"));
            if let Some(why) = stopped.or(halted) {
                report.fail(
                    FailureCode::ProgramStopped,
                    format!("program {} (id {})", object.name(), object.id()),
                    why,
                );
            }
        }
    }
}

/// Programs of one object file that are being loaded.
struct Loading<'a> {
    live: &'a Live,
    loader: Loader<'a>,
    /// Ifindex of the port to which the programs are bound.
    bound_to: Option<u32>,
    /// Loaded programs by name.
    loaded: RefCell<BTreeMap<String, Loaded>>,
}

/// A program that has been registered.
#[derive(Debug, Clone)]
struct Loaded {
    object: Arc<ProgramObject>,
    program: Program,
}

impl Loading<'_> {
    /// Loads a program if necessary, with the programs that the file's program arrays refer to. All
    /// of them are registered; those for map entries are also known to the workers until they are
    /// freed.
    fn program(&self, name: &str) -> Result<Loaded, String> {
        if let Some(known) = self.loaded.borrow().get(name) {
            return Ok(known.clone());
        }
        let result = self.loader.program(Select::Name(name)).map_err(|error| error.to_string());
        // Includes programs loaded before an error: each is registered, or freed.
        let new = self.loader.programs().into_iter();
        let new = new.filter(|it| !self.loaded.borrow().contains_key(it.name()));
        let registered: Vec<Result<Loaded, String>> =
            new.collect::<Vec<_>>().into_iter().map(|it| self.register(it)).collect();
        result?;
        let registered: Vec<Loaded> = registered.into_iter().collect::<Result<_, _>>()?;
        if self.bound_to.is_some() && self.loaded.borrow().len() > 1 {
            // It is undefined which device they would run on.
            return Err("programs of maps can't be bound to a port (EINVAL)".to_owned());
        }
        let meant = registered.into_iter().find(|it| it.program.name() == name);
        meant.ok_or_else(|| format!("no program {name}"))
    }

    fn register(&self, program: Program) -> Result<Loaded, String> {
        let uid = rustix::process::getuid().as_raw();
        let object = self.live.registry.register_program(&program, uid, self.bound_to);
        let object = object.map_err(|errno| match errno {
            Errno::EINVAL => {
                "all programs around a program array take frames of several buffers, and \
                 all are compiled, or none (EINVAL)"
                    .to_owned()
            }
            errno => format!("it can't be made known: {errno}"),
        })?;
        let loaded = Loaded { object, program };
        self.loaded.borrow_mut().insert(loaded.program.name().to_owned(), loaded.clone());
        Ok(loaded)
    }

    /// Stores initial contents of maps. Programs in these contents are loaded from the same object
    /// file. Entries whose ports are closed are stored when the ports open.
    fn fill(&self, contents: &Contents) -> Result<(), String> {
        let maps = self.loader.maps();
        let program = |name: &str, _kind| Ok(self.program(name)?.object.id());
        for Filling { map, steps } in &contents.fillings {
            let Some(map) = maps.map(*map) else { continue };
            for step in steps {
                if self.is_late(map, step)? {
                    continue;
                }
                let stored = mapfile::store(maps, &program, map, step);
                stored.map_err(|why| format!("maps: {}: {why}", step.path))?;
            }
        }
        Ok(())
    }

    /// Whether a step refers to a port that is closed; notes the entry in that case.
    fn is_late(&self, map: &Arc<Map>, step: &Step) -> Result<bool, String> {
        let (Stored::Target(ifindex, program), Some(key)) = (&step.stored, &step.key) else {
            return Ok(false);
        };
        let is_device = map.kind().values() == Values::Device;
        if !is_device || *ifindex == 0 || self.live.known.has_device(*ifindex) {
            return Ok(false);
        }
        let Some(object) = self.live.registry.map_object(map) else { return Ok(false) };
        let program = program.as_ref().map(|name| self.program(name)).transpose()?;
        let program = program.map(|loaded| loaded.object);
        self.live.note_late(&object, number(key), *ifindex, program);
        Ok(true)
    }

    /// Makes the maps keep the programs that they refer to.
    fn keep(&self, owner: &ProgramObject) {
        let loaded: Vec<_> = self.loaded.borrow().values().map(|it| it.object.clone()).collect();
        owner.maps().iter().for_each(|map| map.keep_named(&loaded));
    }
}

/// Whether both states load the same program. The path of the object file and the treatment of maps
/// on a replacement make no difference; the file's contents do.
pub(crate) fn is_same_program(one: &ProgramState, other: &ProgramState) -> bool {
    let named_alike = ProgramState {
        key: other.key.clone(),
        name: other.name.clone(),
        object: other.object.clone(),
        fresh_maps: other.fresh_maps,
        map_migrate: other.map_migrate.clone(),
        map_rename: other.map_rename.clone(),
        lossy: other.lossy,
        maps_of: other.maps_of.clone(),
        ..one.clone()
    };
    named_alike == *other
}

fn exec(wanted: Option<ExecState>) -> Exec {
    match wanted {
        Some(ExecState::Interp) => Exec::Interp,
        Some(ExecState::Jit) => Exec::Jit,
        Some(ExecState::Llvm) => Exec::Llvm,
        None => Exec::Auto,
    }
}
