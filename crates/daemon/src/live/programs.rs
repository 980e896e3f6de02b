//! Programs: loading, filling their maps, forgetting.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_objects::{MapUse, ProgramObject};
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Exec, Program, Trust};

use super::world::World;
use super::{Live, Report};
use crate::mapfile::{self, Filling};
use crate::run_config::{RunConfig, run_config};
use crate::state::{ExecState, ProgramState, State, TrustState};

/// A program that is loaded.
#[derive(Debug)]
pub struct LiveProgram {
    /// What was wanted.
    pub state: ProgramState,
    /// Its id, name, tag and maps, as everybody knows them.
    pub object: Arc<ProgramObject>,
    /// The program.
    pub program: Program,
    /// What its object says about priority and actions.
    pub run_config: RunConfig,
    /// Its maps are in use: an array of programs that nobody uses is emptied.
    _uses: Vec<MapUse>,
}

impl LiveProgram {
    /// Its id.
    pub fn id(&self) -> u32 {
        self.object.id()
    }
}

impl Live {
    /// Loads what is wanted and not there, or there from other bytes. What cannot be loaded leaves
    /// what was there.
    pub(super) fn load_programs(&mut self, wanted: &State, report: &mut Report) {
        for state in &wanted.programs {
            let before = self.programs.get(&state.key);
            if before.is_some_and(|live| is_same_program(&live.state, state)) {
                continue;
            }
            let is_new = before.is_none();
            match self.load(state) {
                Ok(program) => {
                    let what = if is_new { "loaded" } else { "replaced" };
                    let name = program.program.name();
                    report.change(format!("program {name}: {what}, id {}", program.id()));
                    if let Some(old) = self.programs.insert(state.key.clone(), program) {
                        self.replaced.push(old);
                    }
                }
                Err(why) => report.fail(format!("program {}", state.key), why),
            }
        }
    }

    fn load(&self, state: &ProgramState) -> Result<LiveProgram, String> {
        let (file, index) = self.objects.program(state)?;
        let name = file.programs()[index].name.clone();
        let world = Arc::new(World::new(&self.known));
        let mut options = LoadOptions {
            workers: self.engine.workers(),
            environment: Some(Arc::clone(&world) as Arc<dyn towpath_maps::Environment>),
            exec: exec(state.exec),
            host: Arc::clone(self.host.live()),
            ..LoadOptions::default()
        };
        options.jit.trust = match state.trust {
            TrustState::Verified => Trust::Verified,
            TrustState::Guest => Trust::Guest,
        };
        let loader = Loader::new(&file, &self.env, &options).map_err(|e| e.to_string())?;
        let program = loader.program(Select::Name(&name)).map_err(|error| error.to_string())?;
        let object = self.register(&program)?;
        world.add_sibling(object.id(), program.id());
        if let Some(contents) = &state.maps {
            self.fill(contents, &loader, &world, &object)?;
        }
        let run_config = run_config(&file, &name);
        let _uses = object.maps().into_iter().map(MapUse::new).collect();
        Ok(LiveProgram { state: state.clone(), object, run_config, program, _uses })
    }

    /// Gives a program and its maps ids; a program for entries of maps is known to workers from
    /// then on, as long as somebody has it.
    fn register(&self, program: &Program) -> Result<Arc<ProgramObject>, String> {
        let registered =
            self.registry.register_program(program, rustix::process::getuid().as_raw());
        registered.map_err(|errno| format!("it can't be made known: {errno}"))
    }

    /// Puts into the maps what is wanted to be there at first. Programs that it names are loaded
    /// from the same object.
    fn fill(
        &self,
        contents: &serde_json::Map<String, serde_json::Value>,
        loader: &Loader<'_>,
        world: &World,
        owner: &ProgramObject,
    ) -> Result<(), String> {
        let maps = loader.maps();
        let defs: Vec<_> = maps.maps().iter().map(|map| map.def().clone()).collect();
        let fillings = mapfile::parse(contents, &defs, self.engine.workers());
        let loaded: RefCell<BTreeMap<String, Arc<ProgramObject>>> = RefCell::default();
        let program = |name: &str, _kind| {
            if let Some(object) = loaded.borrow().get(name) {
                return Ok(object.id());
            }
            let program = loader.program(Select::Name(name)).map_err(|error| error.to_string())?;
            let object = self.register(&program)?;
            let id = object.id();
            world.add_sibling(id, program.id());
            loaded.borrow_mut().insert(name.to_owned(), object);
            Ok(id)
        };
        let mut result = Ok(());
        for Filling { map, steps } in fillings.map_err(|problem| format!("maps: {problem}"))? {
            let Some(map) = maps.map(map) else { continue };
            for step in &steps {
                let stored = mapfile::store(maps, &program, map, step);
                result = result.and(stored.map_err(|why| format!("maps: {}: {why}", step.path)));
            }
        }
        let loaded: Vec<_> = loaded.into_inner().into_values().collect();
        owner.maps().iter().for_each(|map| map.keep_named(&loaded));
        result
    }

    /// Programs that no link uses go, and those their maps name.
    pub(super) fn forget_programs(&mut self) {
        let links = &self.links;
        let is_used = |key: &String| links.iter().any(|link| link.attach.program == *key);
        let gone: Vec<String> = self.programs.keys().filter(|it| !is_used(it)).cloned().collect();
        self.replaced.clear();
        for key in gone {
            self.programs.remove(&key);
        }
    }
}

/// Where the object file is makes no difference, what is in it does.
fn is_same_program(one: &ProgramState, other: &ProgramState) -> bool {
    let named_alike =
        ProgramState { key: other.key.clone(), object: other.object.clone(), ..one.clone() };
    named_alike == *other
}

fn exec(wanted: Option<ExecState>) -> Exec {
    match wanted {
        Some(ExecState::Interp) => Exec::Interp,
        Some(ExecState::Jit) => Exec::Jit,
        Some(ExecState::Llvm) => Exec::Llvm,
        None if cfg!(feature = "llvm") => Exec::Llvm,
        None => Exec::Jit,
    }
}
