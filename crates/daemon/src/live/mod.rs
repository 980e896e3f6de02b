//! The actual state: the engine, its ports, programs and links, and their reconciliation with the
//! wanted state.
//!
//! Code that holds or reads resources of the machine belongs here: devices, objects, map elements,
//! files. Errors become a [`Failure`] with a code and a subject. Authors of wanted items, retries
//! and saving belong to `control`.
//!
//! [`Live::reconcile`] takes a whole [`State`] and changes only the differences. It reports each
//! part that fails, and continues with the rest: a port that cannot be opened does not affect other
//! ports. A port never forwards without its wanted programs: a port that lacks a program drops all
//! frames, and a program that cannot be replaced keeps running.

mod bonds;
mod contents;
pub(crate) mod cpus;
mod devices;
mod edge;
pub(crate) mod elements;
pub(crate) mod files;
mod guests;
mod host;
mod ike_door;
mod interfaces;
mod ipsec;
mod ipsec_doors;
pub(crate) mod keys;
mod layers;
mod links;
mod log_limit;
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
mod sas;
mod seen;
mod shadows;
mod sockets;
mod takeover;
pub(crate) mod traffic;
mod udp;
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
use self::sas::Ipsec;
use crate::live::files::ObjectFiles;
use crate::live::news::News;
use crate::model::state::{State, WorkerMode};

pub use crate::model::failure::Failure;
pub(crate) use links::engine_hook;
pub use parts::{LiveLink, LivePort, LiveProgram};
pub(crate) use programs::is_same_program;
pub use report::Report;
pub(crate) use returned::{Restored, RestoredMap, Returning};
pub use sas::LiveSa;
pub(crate) use seen::{Seen, bridges};
pub use sockets::Xsk;
pub(crate) use world::Known;

/// The engine, with everything that runs in it.
#[derive(Debug)]
pub struct Live {
    engine: Arc<Engine>,
    xsk: Xsk,
    env: Arc<Env>,
    objects: Arc<ObjectFiles>,
    /// Programs, maps and links with their ids, including those of `bpf(2)` clients.
    registry: Arc<Objects>,
    known: Arc<Known>,
    /// Routes and neighbours that programs can look up.
    host: HostTables,
    /// Host interfaces that ports use, followed for changes.
    interfaces: Interfaces,
    ports: BTreeMap<String, LivePort>,
    /// Shadow interfaces of ports, by the port's name.
    shadows: BTreeMap<String, LiveShadow>,
    /// Control threads of bonds, by the bond's name.
    bonds: BTreeMap<String, Controller>,
    /// SAs and policies of ports.
    ipsec: Ipsec,
    /// Virtual machines with programs in the host, by their port's name.
    guests: BTreeMap<String, LiveGuest>,
    /// Receiver of events of bonds and guests.
    news: Arc<News>,
    programs: BTreeMap<String, LiveProgram>,
    links: Vec<LiveLink>,
    /// Replaced programs, kept until no hook runs them.
    replaced: Vec<LiveProgram>,
    /// Map entries whose ports are closed.
    lost: Mutex<Vec<LostEntry>>,
    /// Known failures of open ports that still forward frames.
    known_broken: Vec<Failure>,
    /// The settings of the engine: its workers and frames, with which it was started, and how long
    /// a program may run.
    started: State,
    /// Whether the current reconciliation is undone if a part of it fails.
    is_trying: bool,
    /// Options of the compiler.
    compiler: towpath_jit::Options,
    /// The part of the saved state that has not been restored yet.
    returning: Mutex<Returning>,
}

impl Live {
    /// Starts an engine with the wanted workers, without ports or programs.
    ///
    /// # Errors
    ///
    /// Fails if memory, threads or descriptors run out.
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
            spin: worker.spin_us.map_or(WorkerOptions::default().spin, Duration::from_micros),
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
        engine.set_patience(patience_for_programs(wanted));
        let env = Arc::new(towpath_xdp::host::kernel_types());
        let started =
            State { workers: wanted.workers.clone(), frames: wanted.frames, ..State::new() };
        let started = State { stuck_ms: wanted.stuck_ms, ..started };
        let host = HostTables::default();
        let registry = Arc::new(Objects::new(&settings(&engine, &env, &host)));
        let known = Arc::new(Known::new(engine.workers(), &registry));
        // Tracing stays off until a client listens.
        registry.shared().surroundings().trace.keep(false);
        let xsk = Xsk::new(&engine, &known, &registry, host.live());
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
            ipsec: Ipsec::default(),
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

    /// Sets the compiler options for programs that are loaded from now on. Trust in each program is
    /// part of the state.
    pub fn set_compiler(&mut self, compiler: towpath_jit::Options) {
        self.compiler = compiler;
    }

    /// Reconciles the actual state with `wanted` as far as possible. `wanted` has no
    /// [`State::problems`].
    pub fn reconcile(&mut self, wanted: &State) -> Report {
        self.reconcile_within(wanted, PATIENCE)
    }

    /// Reconciles for a change that is undone if a part of it fails: a port that passes frames is
    /// not shut for a missing program.
    pub(crate) fn try_reconcile(&mut self, wanted: &State) -> Report {
        self.is_trying = true;
        let report = self.reconcile(wanted);
        self.is_trying = false;
        report
    }

    /// Reconciles, and waits at most `patience` where the kernel has not yet released an old
    /// device. Retries wait briefly, since other ports would wait with them.
    pub(crate) fn reconcile_within(&mut self, wanted: &State, patience: Duration) -> Report {
        let mut report = Report::default();
        if wanted.workers != self.started.workers || wanted.frames != self.started.frames {
            report
                .restart
                .push("[[worker]] and the frames of [engine] are read when it starts".to_owned());
        }
        self.set_patience(wanted, &mut report);
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
        self.set_ipsec(wanted, &mut report);
        self.set_ports(wanted, &incomplete, &mut report);
        self.set_bonds(wanted, &mut report);
        self.follow_ports(&mut report);
        self.finish_returning(wanted, &mut report);
        self.store_again(wanted, &mut report);
        self.forget_programs(wanted);
        self.note_presences();
        self.tell_stopped(&mut report);
        self.tell_broken(&mut report);
        // The problems of the host tables are already in the report.
        self.set_host(wanted, &mut Report::default());
        report
    }

    /// Takes over the time after which a program that does not return is stopped.
    fn set_patience(&mut self, wanted: &State, report: &mut Report) {
        if wanted.stuck_ms == self.started.stuck_ms {
            return;
        }
        let patience = patience_for_programs(wanted);
        self.engine.set_patience(patience);
        self.started.stuck_ms = wanted.stuck_ms;
        let ms = patience.as_millis();
        report.change(format!("programs that do not return are stopped after {ms} ms"));
    }

    /// Updates the host tables: before ports come up, and again afterwards.
    fn set_host(&mut self, wanted: &State, report: &mut Report) {
        let ports = self.engine.read(|_, snapshot| snapshot.interfaces());
        self.host.set(wanted.host.as_ref(), ports, report);
        self.xsk.follow_host(wanted.host.is_none(), self.shadow_interfaces());
    }

    /// The engine: counters, ports, conservation.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Programs, maps and links with their ids and pins, including those of `bpf(2)` clients.
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

    /// Control threads of bonds, by the bond's name.
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

    /// Stops the workers after their current bursts.
    pub fn stop(&mut self) {
        self.bonds.clear();
        self.guests.clear();
        self.engine.stop();
    }
}

/// Settings of the object registry, for objects that clients create.
fn settings(engine: &Arc<Engine>, env: &Arc<Env>, host: &HostTables) -> Settings {
    let mut settings = Settings::new();
    settings.load.workers = engine.workers();
    settings.load.host = Arc::clone(host.live());
    settings.env = Arc::clone(env);
    settings.devices = Arc::new(devices::Ports(Arc::clone(engine)));
    settings
}

fn patience_for_programs(wanted: &State) -> Duration {
    wanted.stuck_ms.map_or(towpath_engine::PATIENCE, Duration::from_millis)
}

/// Time to wait for the kernel to release a device, for a change that is not retried.
const PATIENCE: Duration = Duration::from_secs(3);
