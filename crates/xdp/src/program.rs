//! Programs: loading them from an object, running them on frames, and access to their maps.

mod call;
#[cfg(feature = "disasm")]
mod disasm;
mod error;
mod listing;
mod load;
mod registry_unsafe;
mod shared;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;
use towpath_bpf::interp::{self, Code, Fault, Limits, Observer, Stop, Violation};
use towpath_bpf::map::Values;
use towpath_bpf::program::AttachType;
use towpath_bpf::verifier::{self, Verified};
use towpath_bpf::{Env, Errno, Linked, Object};
use towpath_jit::Upgrade;
use towpath_maps::{Environment, Map, MapSet};

use crate::burst::Burst;
use crate::clock::Clock;
use crate::compiled::{CodeStop, Compiled, Exec, ExecStatus, Judged};
use crate::conntrack::{Asking, Conntrack, KnownConnection};
use crate::frame::Frame;
use crate::held::Dequeued;
use crate::helpers::{self, CookieSecret};
use crate::host::Live;
use crate::objects::{Objects, Releaser};
use crate::pace::{End, Pace};
use crate::printed::{Streams, Trace};
use crate::run::{EGRESS_IFINDEX, Extra, Run};
use crate::standing::Standing;
use crate::timers::{Callback, Due, Timers};
use crate::verdict::Verdict;
use crate::worker::Worker;
use crate::xfrm::Layouts;

pub use call::CallError;
#[cfg(feature = "disasm")]
pub use disasm::{MachineInsn, disassemble};
pub use error::LoadError;
pub use listing::{Form, MachineCode};
pub(crate) use load::stored_field;
pub use load::{Loader, map_fields};
pub use registry_unsafe::Programs;
pub(crate) use registry_unsafe::TailCallee;
pub use shared::Shared;

/// Most timers that run before a burst, which takes some microseconds.
pub const DUE_TIMERS_MAX: usize = 8;

/// A program that is ready to run, with its maps.
#[derive(Debug, Clone)]
pub struct Program {
    id: u32,
    code: Arc<Code>,
    /// Its machine code, if it is compiled.
    compiled: Option<Arc<Compiled>>,
    /// The requested executor.
    wanted: Exec,
    /// Why it has no machine code, if that was requested.
    refused: Option<Arc<str>>,
    verified: Option<Arc<Verified>>,
    /// Some path may change the packet's contents ([`Verified::changes_packet`]).
    changes_packet: bool,
    attach: AttachType,
    has_frags: bool,
    maps: Arc<MapSet>,
    streams: Arc<Streams>,
    standing: Arc<Standing>,
    surroundings: Arc<Surroundings>,
}

/// Selects a program of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Select<'a> {
    /// The only program of the object.
    #[default]
    Only,
    /// By its C function's name.
    Name(&'a str),
    /// By its section.
    Section(&'a str),
}

/// Options for loading a program.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Workers that will run it at the same time (at least one): the CPUs of per-CPU maps.
    pub workers: usize,
    /// Interfaces, routes, neighbours and sockets for helpers.
    pub host: Arc<Live>,
    /// The devices, CPUs, programs and sockets that exist for maps of targets; without it, all do.
    pub environment: Option<Arc<dyn Environment>>,
    /// Existing maps to use in place of the object's maps with the same name, with their contents.
    /// They must belong to the same workers ([`Shared::domain`]), and match the object's
    /// definitions ([`towpath_maps::shape::difference`]).
    pub existing: BTreeMap<String, Arc<Map>>,
    /// Limits and log level of the verifier.
    pub verifier: verifier::Options,
    /// Runs without a proof. Only for tests of the interpreter: it checks every access anyway, but
    /// a program may then fault, loop for long or leave a map locked.
    #[cfg(any(test, feature = "unverified"))]
    pub unverified: bool,
    /// Bound on one run in the interpreter.
    pub limits: Limits,
    /// The longest time for a burst, for untrusted programs: beyond it the remaining frames are
    /// aborted, as are frames after one that took too many instructions. A program that does so
    /// repeatedly is halted ([`crate::standing`]).
    pub burst_time: Option<Duration>,
    /// The requested executor.
    pub exec: Exec,
    /// Options of the compiler.
    pub jit: towpath_jit::Options,
}

/// State shared by all programs of an object, and all runs, besides maps.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Interfaces, routes, neighbours and sockets for helpers.
    pub host: Arc<Live>,
    /// The clock of programs.
    pub clock: Clock,
    /// Output of programs.
    pub trace: Trace,
    /// Programs by the ids that maps contain.
    pub programs: Programs,
    /// The secret of the SYN cookies they make.
    pub(crate) cookies: CookieSecret,
    pub(crate) objects: Arc<Objects>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) conntrack: Conntrack,
    /// Layouts of `struct xfrm_state`.
    pub(crate) xfrm: Layouts,
    pub(crate) limits: Limits,
    pub(crate) burst_time: Option<Duration>,
}

/// Programs of this process whose machine code had to be stopped.
static STOPS: AtomicU64 = AtomicU64::new(0);

/// Number of programs of this process that were stopped ([`Program::stopped`]) or halted
/// ([`Standing::halted`]) so far: programs need a check only when this number has changed.
pub fn stops() -> u64 {
    STOPS.load(Ordering::Relaxed) + crate::standing::halts()
}

impl Surroundings {
    /// Releases resources owned by values of maps.
    fn releaser(&self) -> Arc<Releaser> {
        let (objects, timers) = (Arc::clone(&self.objects), Arc::clone(&self.timers));
        Arc::new(Releaser { objects, timers })
    }
}

impl Program {
    /// Links, verifies and prepares one program of `object`, creates the object's maps and fills
    /// its program arrays.
    pub fn load(
        object: &Object,
        select: Select<'_>,
        env: &Env,
        options: &LoadOptions,
    ) -> Result<Program, LoadError> {
        Loader::new(object, env, options)?.program(select)
    }

    /// Verifies and prepares a program that was linked elsewhere, with maps of its own made from
    /// [`Linked::maps`]. Its program arrays stay empty.
    pub fn from_linked(linked: Linked, options: &LoadOptions) -> Result<Program, LoadError> {
        load::from_linked(linked, options)
    }

    /// As [`Program::from_linked`], for a verified program: one proof serves any number of
    /// executors.
    pub fn from_verified(verified: Verified, options: &LoadOptions) -> Result<Program, LoadError> {
        load::from_verified(verified, options)
    }

    /// Adds a connection known to the host, for all programs of the object; otherwise only
    /// connections made by programs are known.
    ///
    /// # Errors
    ///
    /// `EINVAL` if its ends are of two address families, `EEXIST` if it or its reverse is known,
    /// `ENOMEM` if there is no room.
    pub fn enter_connection(&self, known: &KnownConnection) -> Result<(), Errno> {
        let Surroundings { objects, conntrack, clock, .. } = &*self.surroundings;
        let domain = self.maps.domain();
        let connection = helpers::class_of(&self.code, objects, domain);
        let now_ns = helpers::time(clock, ClockId::MonotonicCoarse);
        // A thread that is no worker counts as the one after the last.
        let by = Asking { objects, worker: domain.workers(), now_ns };
        conntrack.enter(known, &connection, domain, by)
    }

    /// A worker for [`Program::run`].
    ///
    /// # Panics
    ///
    /// If `number` is not below [`LoadOptions::workers`]: per-CPU maps have no values for it.
    pub fn worker(&self, number: u32) -> Worker {
        let workers = self.maps.domain().workers();
        assert!((number as usize) < workers, "worker {number} of {workers}");
        Worker::new(number)
    }

    /// Runs timers and work items of the object's programs that are due, up to [`DUE_TIMERS_MAX`]
    /// of them; the rest stays due. To be called when there is no traffic: [`Program::run_burst`]
    /// does it before each burst, and [`Program::run`] runs all that are due before its frame.
    pub fn run_timers(&self, worker: &mut Worker) -> Result<(), Fault> {
        self.run_due(worker, DUE_TIMERS_MAX, None)
    }

    /// Time at which the first timer of the object's programs is due, in nanoseconds of the
    /// monotonic clock; `None` if none is pending.
    #[inline]
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.surroundings.timers.next_ns()
    }

    fn run_due(
        &self,
        worker: &mut Worker,
        most: usize,
        observer: Option<&dyn Observer>,
    ) -> Result<(), Fault> {
        let timers = &self.surroundings.timers;
        if !timers.may_be_due() {
            return Ok(());
        }
        let now = helpers::time(&self.surroundings.clock, ClockId::Monotonic);
        let mut result = Ok(());
        for due in timers.take_due(now, most) {
            // A timer that faults does not affect the others.
            result = result.and(self.fire(worker, &due, observer));
        }
        result
    }

    /// Calls a timer's function, of any program, with its map, key and value.
    fn fire(
        &self,
        worker: &mut Worker,
        due: &Due,
        observer: Option<&dyn Observer>,
    ) -> Result<(), Fault> {
        let Some((key, value)) = due.element() else { return Ok(()) };
        // A timer has no frame, and functions it may call access none.
        let mut none = Frame::default();
        let Callback { code, maps, function } = &due.callback;
        let callee = self.surroundings.programs.of_code(code);
        let standing = callee.as_ref().map_or(&self.standing, |callee| &callee.standing);
        if standing.halted().is_some() {
            return Ok(());
        }
        let brake = Arc::clone(&worker.brake);
        brake.begin(standing);
        worker.begin_watched(false);
        let mut run = Run::new(&mut none, worker, maps, &self.surroundings);
        run.set_observer(observer);
        run.extras.push(Extra { addr: key.addr(), len: key.len() as u64, writable: false });
        let args = [due.map.handle(), key.addr(), value, 0, 0];
        let limits = &self.surroundings.limits;
        let result = interp::run_function(code, *function, args, &mut run, limits);
        if result.is_err() {
            run.abandon();
        }
        brake.end();
        result.map(|_r0| ())
    }

    /// Runs the program on one frame. A [`Fault`] is something a verified program cannot do.
    pub fn run(&self, worker: &mut Worker, frame: &mut Frame) -> Result<Verdict, Fault> {
        let number = worker.number() as usize;
        self.run_due(worker, usize::MAX, None)?;
        let verdict = self.run_busy(worker, frame);
        self.maps.domain().quiesce(number);
        verdict
    }

    /// Runs the program in the interpreter, whatever its executor, with an observer. Also ends with
    /// a fault if the program kept a resource that a verified program releases.
    pub fn run_observed(
        &self,
        worker: &mut Worker,
        frame: &mut Frame,
        observer: &dyn Observer,
    ) -> Result<u32, Fault> {
        self.run_due(worker, usize::MAX, Some(observer))?;
        let (number, context) = (worker.number() as usize, worker.context_addr());
        worker.begin_watched(true);
        let mut run = Run::new(frame, worker, &self.maps, &self.surroundings);
        run.set_observer(Some(observer));
        let result = interp::run(&self.code, context, &mut run, &self.surroundings.limits);
        let kept = (!run.records.is_empty()).then_some("a ring buffer record");
        if self.changes_packet {
            run.frame.distrust_checksum();
        }
        self.maps.domain().quiesce(number);
        match (result, kept) {
            (Ok(_), Some(what)) => Err(self.fault(Violation::Kept { what }.into())),
            (result, _) => Ok(result? as u32),
        }
    }

    /// As [`Program::run`], for use inside a burst: the worker is not quiescent afterwards and may
    /// hold addresses from maps, until the caller announces it ([`towpath_maps::Domain::quiesce`]).
    pub fn run_busy(&self, worker: &mut Worker, frame: &mut Frame) -> Result<Verdict, Fault> {
        let mut burst = std::mem::take(&mut worker.single);
        self.judge(worker, std::slice::from_mut(frame), &mut burst);
        let result = burst.take_single();
        worker.single = burst;
        result
    }

    /// Runs the program on each frame, in order, which is the fastest way for many frames. Due
    /// timers run first; an error is a timer's, and the frames are judged all the same. A fault on
    /// a frame ends the run of that frame only ([`Burst::faults`]).
    pub fn run_burst(
        &self,
        worker: &mut Worker,
        frames: &mut [Frame],
        burst: &mut Burst,
    ) -> Result<(), Fault> {
        let timers = self.run_timers(worker);
        self.judge(worker, frames, burst);
        self.maps.domain().quiesce(worker.number() as usize);
        timers
    }

    fn judge(&self, worker: &mut Worker, frames: &mut [Frame], burst: &mut Burst) {
        burst.begin(frames.len());
        // All frames of a halted program are aborted.
        if self.standing.halted().is_none() {
            self.judge_running(worker, frames, burst);
        }
        if self.changes_packet {
            frames.iter_mut().for_each(|frame| frame.distrust_checksum());
        }
        burst.conclude();
        burst.keep_maps(&self.maps);
    }

    fn judge_running(&self, worker: &mut Worker, frames: &mut [Frame], burst: &mut Burst) {
        worker.brake.begin(&self.standing);
        let mut pace = Pace::new(&self.standing, self.surroundings.burst_time, &mut worker.ticks);
        let judged = match &self.compiled {
            Some(compiled) if compiled.stopped().is_none() && worker.sanitizer.is_none() => {
                self.judge_compiled(compiled, worker, frames, (burst, &mut pace))
            }
            _ => 0,
        };
        for (index, frame) in frames.iter_mut().enumerate().skip(judged) {
            let end = self.interpret(worker, frame, index, burst);
            if pace.ends(1, end, &mut worker.ticks) {
                break;
            }
        }
        pace.finish();
        worker.brake.end();
    }

    /// Runs compiled code; returns the number of frames judged: all, unless the code had to be
    /// stopped.
    fn judge_compiled(
        &self,
        compiled: &Arc<Compiled>,
        worker: &mut Worker,
        frames: &mut [Frame],
        (burst, pace): (&mut Burst, &mut Pace<'_>),
    ) -> usize {
        worker.poison_stack();
        let (maps, surroundings) = (&*self.maps, &*self.surroundings);
        let burst_and_pace = (&mut *burst, pace);
        let judged =
            compiled.run_burst(&self.code, frames, burst_and_pace, worker, maps, surroundings);
        let Judged { stops, fault } = judged;
        burst.faults.extend(stops.into_iter().map(|(frame, stop)| (frame, self.fault(stop))));
        let Some(CodeStop { frame, fault, program }) = fault else { return frames.len() };
        program.stop(&fault);
        surroundings.programs.divert(&program);
        STOPS.fetch_add(1, Ordering::Relaxed);
        burst.faults.push((frame, fault));
        frame as usize + 1
    }

    /// Runs one frame in the interpreter; returns how its run ended.
    fn interpret(
        &self,
        worker: &mut Worker,
        frame: &mut Frame,
        index: usize,
        burst: &mut Burst,
    ) -> End {
        let dequeues = self.attach == AttachType::Dequeue;
        let own_field = if dequeues { EGRESS_IFINDEX } else { 0 };
        worker.begin_watched(!dequeues);
        let context = worker.context_addr() + own_field;
        let mut run = Run::new(frame, worker, &self.maps, &self.surroundings);
        run.index = index as u32;
        run.targets = std::mem::take(&mut burst.targets);
        let result = interp::run(&self.code, context, &mut run, &self.surroundings.limits);
        burst.targets = std::mem::take(&mut run.targets);
        burst.executed += run.executed;
        match result {
            Ok(r0) => {
                burst.returned[index] = r0 as u32;
                End::Returned
            }
            Err(fault) => {
                run.abandon();
                let end = End::of(&fault.violation);
                burst.faults.push((index as u32, fault));
                end
            }
        }
    }

    /// Runs a dequeue program up to `runs` times for the port with this ifindex, at monotonic time
    /// `now_ns` (0: read when needed). Due timers run first; an error is a timer's.
    ///
    /// # Errors
    ///
    /// Fails with a fault of a timer, which no verified program can have.
    ///
    /// # Panics
    ///
    /// If the program has another type.
    pub fn dequeue(
        &self,
        worker: &mut Worker,
        (egress_ifindex, runs): (u32, usize),
        now_ns: u64,
        out: &mut Dequeued,
    ) -> Result<(), Fault> {
        assert!(self.attach == AttachType::Dequeue, "who attaches it sees to that");
        let timers = self.run_timers(worker);
        let Dequeued { blanks, burst, .. } = out;
        if blanks.len() < runs {
            blanks.resize_with(runs, Frame::default);
        }
        let blanks = &mut blanks[..runs];
        blanks.iter_mut().for_each(|blank| blank.egress_ifindex = egress_ifindex);
        worker.held.now_ns = now_ns;
        self.judge(worker, blanks, burst);
        self.maps.domain().quiesce(worker.number() as usize);
        // At its end a verified program holds only the packet that it returns.
        out.faults.append(&mut burst.faults);
        out.take(worker, runs);
        timers
    }

    /// The present executor: the interpreter if it could not be compiled, or was stopped.
    pub fn exec(&self) -> Exec {
        let compiled = self.compiled.as_ref().filter(|compiled| compiled.stopped().is_none());
        compiled.map_or(Exec::Interp, |compiled| compiled.exec())
    }

    /// The fault that stopped its machine code. From then on the interpreter runs it, which checks
    /// every access; the owner may want to detach it.
    pub fn stopped(&self) -> Option<&Fault> {
        self.compiled.as_ref().and_then(|compiled| compiled.stopped())
    }

    /// The present executor, and why it is not the requested one.
    pub fn exec_status(&self) -> ExecStatus {
        let (wanted, runs) = (self.wanted, self.exec());
        let measured = self.compiled.as_ref().and_then(|compiled| compiled.measured());
        let measured = measured.map(|measured| measured.to_string());
        let fallback = match &self.compiled {
            None => self.refused.as_deref().map(str::to_owned),
            Some(compiled) if let Some(fault) = compiled.stopped() => {
                Some(format!("stopped: {fault}"))
            }
            Some(compiled) => {
                compiled.upgrade().and_then(Upgrade::failure).map(|error| error.to_string())
            }
        };
        ExecStatus { wanted, runs, fallback, measured }
    }

    /// Waits until it runs on tier 2, or cannot, at most for `timeout`; returns whether it does.
    /// Frames need not wait: they run on tier 1.
    pub fn wait_for_tier2(&self, timeout: Duration) -> bool {
        let upgrade = self.compiled.as_ref().and_then(|compiled| compiled.upgrade());
        upgrade.is_some_and(|upgrade| upgrade.wait(timeout) && upgrade.program().is_some())
    }

    /// Whether it may run on a packet that another process can write meanwhile: each access is
    /// checked at run time, on the value that is then used. The interpreter does that, and tier 1
    /// for [`towpath_jit::Trust::Guest`]. Tier 2 may load twice what the program loads once, and
    /// programs in program arrays are unknown.
    pub fn checks_accesses(&self) -> bool {
        let leads_away = self.maps.maps().iter().any(|map| map.kind().values() == Values::Program);
        let checks = |compiled: &Arc<Compiled>| compiled.checks() && compiled.upgrade().is_none();
        !leads_away && self.compiled.as_ref().is_none_or(checks)
    }

    /// Its present machine code; `None` in the interpreter.
    pub fn machine_code(&self) -> Option<&towpath_jit::Program> {
        self.compiled.as_ref().map(|compiled| compiled.best())
    }

    /// The origin of the machine instruction at an address, if it is in this program's code on one
    /// of the tiers.
    pub fn origin_of(&self, address: u64) -> Option<towpath_jit::Origin> {
        self.compiled.as_ref()?.origin_of(address)
    }

    /// Compile time; `None` if it was not compiled.
    pub fn compile_time(&self) -> Option<Duration> {
        self.compiled.as_ref().map(|compiled| compiled.compile_time())
    }

    /// Whether bursts are preceded by prefetches of hash buckets at present.
    pub fn looks_ahead(&self) -> bool {
        self.compiled.as_ref().is_some_and(|compiled| compiled.looks_ahead())
    }

    /// The fault of compiled code, without an instruction; only the interpreter knows that.
    fn fault(&self, stop: Stop) -> Fault {
        let violation = match stop {
            Stop::Violation(violation) => *violation,
            Stop::Throw(cookie) => Violation::NotAFunction { addr: cookie },
        };
        Fault { program: self.code.name.clone(), insn: 0, source_line: None, violation }
    }

    /// Its id in [`Surroundings::programs`], as stored in program arrays.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The C function's name.
    pub fn name(&self) -> &str {
        &self.code.name
    }

    /// Its attach type.
    pub fn attach(&self) -> AttachType {
        self.attach
    }

    /// Whether it supports frames of several buffers.
    pub fn has_frags(&self) -> bool {
        self.has_frags
    }

    /// Its object's maps.
    pub fn maps(&self) -> &Arc<MapSet> {
        &self.maps
    }

    /// Its standing; a halted program aborts every frame.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Its output streams.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// State shared with other programs: printed lines, program arrays.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.surroundings
    }

    /// The resolved instructions.
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// The verified form, unless it was loaded without verification.
    pub fn verified(&self) -> Option<&Arc<Verified>> {
        self.verified.as_ref()
    }
}
