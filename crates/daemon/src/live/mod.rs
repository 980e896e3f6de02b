//! What there is: the engine, its ports, programs and links, and how they become what is wanted.
//!
//! Whatever holds or reads something of the machine's belongs here: devices, objects, elements of
//! maps, files. What fails is a [`Failure`] with a code and a subject. Who wanted it, when it is
//! tried again, and what is saved of it is `control`'s business.
//!
//! [`Live::reconcile`] is given a whole [`State`] and changes only what differs from what is there.
//! What it cannot do it reports, and goes on with the rest: a port that cannot be opened keeps no
//! other from working. A port never forwards without the programs it was meant to have: one of
//! which a program is missing drops everything, and a program that cannot be replaced stays.

mod bonds;
mod contents;
pub(crate) mod cpus;
mod devices;
mod edge;
pub(crate) mod elements;
pub(crate) mod files;
mod guests;
mod host;
mod interfaces;
mod layers;
mod links;
mod lost;
pub(crate) mod map_file;
pub(crate) mod memory;
mod namespaces;
pub(crate) mod news;
mod parts;
pub(crate) mod pins;
mod ports;
mod programs;
mod report;
mod returned;
mod returning;
mod seen;
mod shadows;
mod sockets;
mod takeover;
mod told;
pub(crate) mod traffic;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towpath_bpf::Env;
use towpath_engine::{Engine, Options, WorkerOptions};
use towpath_objects::{Objects, Settings};
use towpath_ports::bond::Controller;

use self::edge::LiveGuest;
use self::host::HostTables;
use self::namespaces::Interfaces;
use self::parts::{LiveShadow, LostEntry};
use crate::live::files::ObjectFiles;
use crate::live::news::News;
use crate::model::state::{State, WorkerMode};

pub use crate::model::failure::Failure;
pub(crate) use links::engine_hook;
pub use parts::{LiveLink, LivePort, LiveProgram};
pub(crate) use programs::is_same_program;
pub use report::Report;
pub(crate) use returned::{Restored, RestoredMap, Returning};
pub(crate) use seen::{Seen, bridges};
pub use sockets::Xsk;
pub(crate) use world::Known;

/// The engine and everything in it.
#[derive(Debug)]
pub struct Live {
    engine: Arc<Engine>,
    xsk: Xsk,
    env: Arc<Env>,
    objects: Arc<ObjectFiles>,
    /// Programs, maps and links with their ids, whoever made them.
    registry: Arc<Objects>,
    known: Arc<Known>,
    /// Routes and neighbours that programs can ask for.
    host: HostTables,
    /// Which of the host's interfaces there are.
    interfaces: Interfaces,
    ports: BTreeMap<String, LivePort>,
    /// Interfaces of the host's that stand for ports, by the port's name.
    shadows: BTreeMap<String, LiveShadow>,
    /// Who looks after bonds, by the bonds' names.
    bonds: BTreeMap<String, Controller>,
    /// Virtual machines that have programs run, by their ports.
    guests: BTreeMap<String, LiveGuest>,
    /// Where what happens to bonds and guests is told.
    news: Arc<News>,
    programs: BTreeMap<String, LiveProgram>,
    links: Vec<LiveLink>,
    /// Programs whose successors are loaded, until no hook has them any more.
    replaced: Vec<LiveProgram>,
    /// Entries of maps that led to ports which are not there.
    lost: Mutex<Vec<LostEntry>>,
    /// What of ports was found not to work although frames go on.
    known_broken: Vec<Failure>,
    /// What was wanted of the workers when they started.
    started: State,
    /// What is being done is undone if anything fails.
    is_trying: bool,
    /// How programs are compiled.
    compiler: towpath_jit::Options,
    /// What was saved before the daemon started, and did not come back yet.
    returning: Mutex<Returning>,
}

impl Live {
    /// Starts an engine with the workers that the state wants, and nothing else yet.
    ///
    /// # Errors
    ///
    /// Memory, threads or descriptors ran out.
    pub fn start(
        wanted: &State,
        objects: Arc<ObjectFiles>,
        news: Arc<News>,
    ) -> Result<Live, String> {
        let worker = |worker: &crate::model::state::WorkerState| WorkerOptions {
            cpu: worker.cpu,
            mode: match worker.mode {
                WorkerMode::Adaptive => towpath_engine::Mode::Adaptive,
                WorkerMode::Busy => towpath_engine::Mode::Busy,
            },
        };
        let defaults = Options::default();
        let options = Options {
            workers: match wanted.workers.len() {
                0 => defaults.workers,
                _ => wanted.workers.iter().map(worker).collect(),
            },
            frames: wanted.frames.unwrap_or(defaults.frames),
        };
        memory::check_frames(options.frames)?;
        let engine = Arc::new(Engine::start(&options).map_err(|error| error.to_string())?);
        wanted.stuck_ms.into_iter().for_each(|ms| engine.set_patience(Duration::from_millis(ms)));
        let env = Arc::new(towpath_xdp::host::kernel_types());
        let started =
            State { workers: wanted.workers.clone(), frames: wanted.frames, ..State::new() };
        let started = State { stuck_ms: wanted.stuck_ms, ..started };
        let host = HostTables::default();
        let registry = Arc::new(Objects::new(&settings(&engine, &env, &host)));
        let known = Arc::new(Known::new(engine.workers(), &registry));
        // Until somebody listens.
        registry.shared().surroundings().trace.keep(false);
        let xsk = Xsk::new(&engine, &known, &registry);
        Ok(Live {
            engine,
            xsk,
            registry,
            env,
            objects,
            known,
            host,
            interfaces: Interfaces::default(),
            ports: BTreeMap::new(),
            bonds: BTreeMap::new(),
            shadows: BTreeMap::new(),
            guests: BTreeMap::new(),
            news,
            programs: BTreeMap::new(),
            links: Vec::new(),
            replaced: Vec::new(),
            lost: Mutex::default(),
            known_broken: Vec::new(),
            started,
            is_trying: false,
            compiler: towpath_jit::Options::default(),
            returning: Mutex::default(),
        })
    }

    /// Sets how programs are compiled that are loaded from now on; how far each is trusted is in
    /// the state.
    pub fn set_compiler(&mut self, compiler: towpath_jit::Options) {
        self.compiler = compiler;
    }

    /// Makes what there is what is wanted, as far as that can be done. `wanted` has no
    /// [`State::problems`].
    pub fn reconcile(&mut self, wanted: &State) -> Report {
        self.reconcile_within(wanted, PATIENCE)
    }

    /// The same for a change that is undone if anything of it fails: a port that lets frames pass
    /// isn't shut for it.
    pub(crate) fn try_reconcile(&mut self, wanted: &State) -> Report {
        self.is_trying = true;
        let report = self.reconcile(wanted);
        self.is_trying = false;
        report
    }

    /// The same for whoever comes again: what the kernel has not let go of yet, which another port
    /// would wait for as well, is waited for no longer than that.
    pub(crate) fn reconcile_within(&mut self, wanted: &State, patience: Duration) -> Report {
        let mut report = Report::default();
        if wanted.workers != self.started.workers || wanted.frames != self.started.frames {
            report.restart.push("[[worker]] and [engine] are read when it starts".to_owned());
        }
        self.interfaces.follow(wanted, &self.news);
        self.close_ports(wanted, &mut report);
        self.make_bridges(wanted, &mut report);
        self.open_ports(wanted, patience, &mut report);
        self.release_members(wanted, &mut report);
        self.set_shadows(wanted, &mut report);
        self.load_retired(&mut report);
        self.load_programs(wanted, &mut report);
        let incomplete = self.attach(wanted, &mut report);
        self.set_host(wanted, &mut report);
        self.set_guests(wanted, &mut report);
        self.set_ports(wanted, &incomplete, &mut report);
        self.set_bonds(wanted, &mut report);
        self.follow_ports(&mut report);
        self.finish_returning(wanted, &mut report);
        self.store_again(wanted, &mut report);
        self.forget_programs(wanted);
        self.note_presences();
        self.tell_stopped(&mut report);
        self.tell_broken(&mut report);
        // What has been told once is enough.
        self.set_host(wanted, &mut Report::default());
        report
    }

    /// Shows programs the host: before ports come up, and as they are then.
    fn set_host(&mut self, wanted: &State, report: &mut Report) {
        let ports = self.engine.read(|_, snapshot| snapshot.interfaces());
        self.host.set(wanted.host.as_ref(), ports, report);
    }

    /// The engine: counters, ports, conservation.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Programs, maps and links with their ids and pins, whoever made them.
    pub fn registry(&self) -> &Arc<Objects> {
        &self.registry
    }

    /// AF_XDP sockets of applications.
    pub fn xsk(&self) -> &Xsk {
        &self.xsk
    }

    /// Open ports by name.
    pub fn ports(&self) -> &BTreeMap<String, LivePort> {
        &self.ports
    }

    /// Who looks after bonds, by the bonds' names.
    pub fn bonds(&self) -> &BTreeMap<String, Controller> {
        &self.bonds
    }

    /// Loaded programs by key.
    pub fn programs(&self) -> &BTreeMap<String, LiveProgram> {
        &self.programs
    }

    /// Programs on hooks.
    pub fn links(&self) -> &[LiveLink] {
        &self.links
    }

    /// Stops the workers after the bursts they are at.
    pub fn stop(&mut self) {
        self.bonds.clear();
        self.guests.clear();
        self.engine.stop();
    }
}

/// How objects are made that do not come from what is wanted.
fn settings(engine: &Arc<Engine>, env: &Arc<Env>, host: &HostTables) -> Settings {
    let mut settings = Settings::new();
    settings.load.workers = engine.workers();
    settings.load.host = Arc::clone(host.live());
    settings.env = Arc::clone(env);
    settings.devices = Arc::new(devices::Ports(Arc::clone(engine)));
    settings
}

/// How long a change that nobody repeats waits for what the kernel has not let go of yet.
const PATIENCE: Duration = Duration::from_secs(3);
