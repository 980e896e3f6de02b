//! One guest: its objects, and the answers to its requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_bpf::{Env, Errno};
use towpath_guest_client::wire::{Counters, Direction, Limit, ObjectRecord};
use towpath_objects::{Device, Devices, Object, Objects, ProgramObject, Settings, XdpMode};
use towpath_xdp::{Exec, LoadOptions, Program, Trust};

use crate::edge::Edge;
use crate::handles::Made;
use crate::limits::{Bucket, Limits, Rules};
use crate::memory::Memory;
use crate::session::Session;

/// A virtual machine that offloads programs.
#[derive(Debug)]
pub struct Guest {
    pub(crate) name: String,
    /// Number of CPUs of per-CPU values.
    pub(crate) workers: usize,
    env: Arc<Env>,
    pub(crate) edge: Arc<dyn Edge>,
    pub(crate) state: Mutex<State>,
    /// The previous status, for readers while a program or types are checked, which takes long.
    meanwhile: Mutex<Option<Status>>,
}

/// The mutable state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) session: Session,
    pub(crate) bucket: Bucket,
    pub(crate) owned: Owned,
    pub(crate) counts: Counts,
    /// The value of [`Edge::restarts`] at the last check.
    restarts: u64,
    /// Whether an agent is connected, and the number of connections so far.
    is_connected: bool,
    connections: u64,
}

/// State that a reset frees.
pub(crate) struct Owned {
    pub(crate) objects: Arc<Objects>,
    pub(crate) memory: Memory,
    pub(crate) made: BTreeMap<u32, Made>,
    /// Attached programs, by direction.
    pub(crate) attached: [Option<u32>; 2],
}

/// Counters for display.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) damaged: u64,
    pub(crate) resets: u64,
    pub(crate) refusal: Option<String>,
}

/// Status of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether an agent is connected to its channel.
    pub is_connected: bool,
    /// Attached programs.
    pub attached: Vec<Attached>,
    /// All of its objects.
    pub objects: Vec<ObjectRecord>,
    /// Limits of the guest.
    pub limits: Vec<Limit>,
    /// Number of requests so far.
    pub requests: u64,
    /// Number of refused requests.
    pub refused: u64,
    /// Number of damaged messages.
    pub damaged: u64,
    /// Number of times that its objects were freed at a restart.
    pub resets: u64,
    /// Text of the last refusal.
    pub refusal: Option<String>,
}

/// An attached program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Direction of the frames that it sees.
    pub direction: Direction,
    /// Handle of the program.
    pub handle: u32,
    /// Name of the program.
    pub name: String,
    /// A hash of its instructions, in hexadecimal.
    pub tag: String,
    /// Counters of the program.
    pub counters: Counters,
    /// Reason why it no longer runs, if it doesn't: every frame is aborted until it is detached or
    /// replaced.
    pub halted: Option<String>,
}

impl Guest {
    /// A guest without objects, whose programs run on this number of workers.
    pub fn new(name: &str, workers: usize, limits: Limits, edge: Arc<dyn Edge>) -> Guest {
        let env = Arc::new(Env::builtin());
        let owned = Owned::new(workers, &limits, &env, &edge);
        let state = State {
            session: Session::default(),
            bucket: Bucket::new(&limits, Instant::now()),
            owned,
            limits,
            counts: Counts::default(),
            restarts: edge.restarts(),
            is_connected: false,
            connections: 0,
        };
        Guest {
            name: name.to_owned(),
            workers,
            env,
            edge,
            state: Mutex::new(state),
            meanwhile: Mutex::default(),
        }
    }

    /// Sets the limits from now on. Existing objects stay, even if they exceed the limits.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// Frees all objects of the guest: its programs are detached, and its handles become invalid.
    pub fn reset(&self, why: &str) {
        let mut state = self.state.lock();
        self.reset_locked(&mut state, why);
    }

    pub(crate) fn reset_locked(&self, state: &mut State, why: &str) {
        if state.owned.made.is_empty() {
            return;
        }
        for direction in Direction::ALL {
            if state.owned.attached[place(*direction)].is_some()
                && let Err(why) = self.edge.set_program(*direction, None)
            {
                self.edge.tell(&format!("guest {}: {why}", self.name));
            }
        }
        state.owned = Owned::new(self.workers, &state.limits, &self.env, &self.edge);
        state.counts.resets += 1;
        self.edge.tell(&format!("guest {}: its programs and maps are gone: {why}", self.name));
    }

    /// Detects a restart of the guest.
    pub fn look(&self) {
        let mut state = self.state.lock();
        self.look_locked(&mut state);
    }

    pub(crate) fn look_locked(&self, state: &mut State) {
        let now = self.edge.restarts();
        if std::mem::replace(&mut state.restarts, now) != now {
            self.reset_locked(state, "it was reset or replaced");
        }
    }

    /// Records that an agent has connected or gone. The guest's objects stay.
    pub fn note_connection(&self, is_connected: bool) {
        let mut state = self.state.lock();
        state.is_connected = is_connected;
        state.connections += u64::from(is_connected);
    }

    /// Whether an agent is connected, and the number of connections so far.
    pub fn connections(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.is_connected, state.connections)
    }

    /// Attaches its programs again where they were, to a port that was replaced.
    ///
    /// # Errors
    ///
    /// Fails with the port's reason for not running the programs.
    pub fn attach_again(&self) -> Result<(), String> {
        let state = self.state.lock();
        Direction::ALL.iter().try_for_each(|&direction| {
            let Some(program) = state.owned.running(direction) else { return Ok(()) };
            self.edge.set_program(direction, Some(program.program()))
        })
    }

    /// The status; while a program is verified, the status before.
    pub fn status(&self) -> Status {
        loop {
            if let Some(state) = self.state.try_lock() {
                return self.status_locked(&state);
            }
            if let Some(status) = &*self.meanwhile.lock() {
                return status.clone();
            }
            // All other work is short.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Does long work; a request for the status gets the previous status meanwhile.
    pub(crate) fn take_long<R>(&self, state: &mut State, work: impl FnOnce(&mut State) -> R) -> R {
        let note = |status| {
            *self.meanwhile.lock() = status;
        };
        note(Some(self.status_locked(state)));
        let done = work(state);
        note(None);
        done
    }

    fn status_locked(&self, state: &State) -> Status {
        let State { owned, counts, limits, .. } = state;
        let attached = Direction::ALL.iter().filter_map(|&direction| {
            let (handle, program) = (owned.attached[place(direction)]?, owned.running(direction)?);
            Some(Attached {
                direction,
                handle,
                name: owned.made.get(&handle).map_or(String::new(), |made| made.name.clone()),
                tag: program.tag().to_string(),
                counters: self.edge.counters(direction).unwrap_or_default(),
                halted: halted(program),
            })
        });
        Status {
            is_connected: state.is_connected,
            attached: attached.collect(),
            objects: owned.list(),
            limits: owned.limits(limits),
            requests: counts.requests,
            refused: counts.refused,
            damaged: counts.damaged,
            resets: counts.resets,
            refusal: counts.refusal.clone(),
        }
    }
}

impl Owned {
    fn new(workers: usize, limits: &Limits, env: &Arc<Env>, edge: &Arc<dyn Edge>) -> Owned {
        let mut load = LoadOptions { workers, exec: Exec::Jit, ..LoadOptions::default() };
        (load.jit.trust, load.jit.budget) = (Trust::Guest, Some(limits.frame_budget()));
        load.jit.mask_speculation = true;
        match limits.rules {
            Rules::Masked => load.verifier.restrict_masked(),
            Rules::Kernel => load.verifier.restrict(),
        }
        load.limits.insns = limits.frame_budget().into();
        load.burst_time = Some(Duration::from_micros(limits.burst_us));
        let mut settings = Settings::new();
        settings.load = load;
        settings.env = Arc::clone(env);
        settings.devices = Arc::new(GuestDevices { edge: Arc::clone(edge) });
        Owned {
            objects: Arc::new(Objects::new(&settings)),
            memory: Memory::new(),
            made: BTreeMap::new(),
            attached: [None; 2],
        }
    }

    /// The attached program of a direction.
    pub(crate) fn running(&self, direction: Direction) -> Option<&Arc<ProgramObject>> {
        self.program(self.attached[place(direction)]?)
    }

    /// The program with this handle.
    pub(crate) fn program(&self, handle: u32) -> Option<&Arc<ProgramObject>> {
        match &self.memory.handles.get(&handle)?.object {
            Object::Program(program) => Some(program),
            _ => None,
        }
    }

    /// All limits, with the used amounts.
    pub(crate) fn limits(&self, limits: &Limits) -> Vec<Limit> {
        let named = self.used().of(limits).into_iter();
        named.map(|(name, limit, used)| Limit { name: name.to_owned(), limit, used }).collect()
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("made", &self.made.keys()).finish_non_exhaustive()
    }
}

/// The devices that a guest's maps may refer to: its targets, by its own numbers.
#[derive(Debug)]
struct GuestDevices {
    edge: Arc<dyn Edge>,
}

impl Devices for GuestDevices {
    fn device(&self, ifindex: u32) -> Option<Device> {
        let is_target = self.edge.targets().iter().any(|target| target.ifindex == ifindex);
        is_target.then(Device::default)
    }

    /// Does nothing: programs of a guest run on its own port, attached by [`Edge`].
    fn install(
        &self,
        _ifindex: u32,
        _mode: XdpMode,
        _program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn note_program(&self, _program: &Program, _is_there: bool) -> Result<(), Errno> {
        Ok(())
    }
}

/// Reason why a program no longer runs.
pub(crate) fn halted(program: &ProgramObject) -> Option<String> {
    program.program().standing().halted().map(|halt| halt.why.to_string())
}

/// Index of a direction in arrays.
pub(crate) fn place(direction: Direction) -> usize {
    direction as usize - 1
}
