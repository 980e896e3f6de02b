//! A burst in compiled code: entering it, and the functions it calls.
//!
//! Compiled code has one pointer, to the [`Machine`]. That is the first field of [`Live`], so the
//! functions it calls find the rest of the state behind it. Compiled code advances from frame to
//! frame by itself; the run is updated at the first call. While compiled code runs, no reference to
//! the run is in use; each called function makes one from the pointer and drops it before it
//! returns.

#![expect(unsafe_code, reason = "is called from machine code with a pointer to its own state")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use towpath_bpf::interp::{Callbacks, Code, Fault, MAX_CALL_FRAMES, Runtime, Stop, Violation};
use towpath_jit::xir::Need;
use towpath_jit::{
    Batch, Callee, Callees, CodeFault, GUEST_BUDGET, Machine, Packet, TailCallTarget, Trust,
};
use towpath_maps::MapSet;

use super::Compiled;
use super::direct_unsafe::{of_frame, of_kfunc};
use super::tail_unsafe::{catch, tail_call};
use crate::burst::Burst;
use crate::frame::Frame;
use crate::helpers::{self, Call};
use crate::pace::{End, Pace};
use crate::program::{Surroundings, TailCallee};
use crate::run::Run;
use crate::worker::{CHAIN_STACK_BYTES, Worker};

/// The functions compiled code calls.
pub(super) const CALLEES: Callees =
    Callees { helper, kfunc, tail_call, catch, probe, guard, direct: super::direct_unsafe::DIRECT };

/// State of a burst that compiled code processes.
#[repr(C)]
pub(super) struct Live<'a> {
    pub(super) machine: Machine,
    /// The frames of the burst.
    frames: *mut Frame,
    /// Index of the run's present frame; [`NO_FRAME`] before the first call.
    current: u32,
    /// The program the burst was given to.
    entry: &'a Arc<Compiled>,
    /// Its interpreted form, for callbacks that outlive the run.
    code: &'a Arc<Code>,
    /// The run's present program: `machine.target` at the last update.
    target: *const TailCallTarget,
    /// The reason for which `machine.stop` is set.
    stop: Option<Stop>,
    /// A machine fault, and the faulting code: no more compiled code may run.
    fault: Option<(Fault, Arc<Compiled>)>,
    /// Number of nested callbacks; each has its own part of the stack.
    nested: usize,
}

/// Results of a burst.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The frames whose run was stopped.
    pub(crate) stops: Vec<(u32, Stop)>,
    /// The frame at which code caused a machine fault; later frames are not judged.
    pub(crate) fault: Option<CodeStop>,
}

/// A machine fault caused by compiled code.
#[derive(Debug)]
pub(crate) struct CodeStop {
    /// Index of the frame that was processed.
    pub(crate) frame: u32,
    pub(crate) fault: Fault,
    /// The program whose code faulted: the burst's own, or the target of a tail call.
    pub(crate) program: Arc<Compiled>,
}

/// An index beyond every burst.
const NO_FRAME: u32 = u32::MAX;

impl Compiled {
    /// Runs the program on each frame. `burst` has an entry for each, and receives return values
    /// and redirect targets.
    pub(crate) fn run_burst<'a>(
        self: &'a Arc<Self>,
        code: &'a Arc<Code>,
        frames: &'a mut [Frame],
        (burst, pace): (&'a mut Burst, &mut Pace<'_>),
        worker: &'a mut Worker,
        maps: &'a MapSet,
        surroundings: &'a Surroundings,
    ) -> Judged {
        let frames = &raw mut *frames;
        if frames.len() == 0 {
            return Judged::default();
        }
        // SAFETY: there is a first frame; `turn_to_frame` replaces this reference.
        let first = unsafe { &mut *frames.cast::<Frame>() };
        let mut run = Run::new(first, worker, maps, surroundings);
        run.proved = self.trust == Trust::Verified;
        run.targets = std::mem::take(&mut burst.targets);
        // All of the stack is the program's: the verifier proved its depth.
        run.enter_compiled();
        let mut live = Live {
            machine: machine(&mut run),
            frames: frames.cast::<Frame>(),
            current: NO_FRAME,
            entry: self,
            code,
            target: std::ptr::null(),
            stop: None,
            fault: None,
            nested: 0,
        };
        let live = &raw mut live;
        let (program, trial) = self.for_burst();
        let started = trial.map(|_| Instant::now());
        let returned = &raw mut *burst.returned.as_mut_slice();
        assert!(returned.len() == frames.len(), "a place for each frame");
        // A frame is a pointer to its record, which starts with what compiled code reads.
        let frames_at = frames.cast::<*const Packet>();
        let (mut judged, mut next) = (Judged::default(), 0);
        while next < returned.len() && judged.fault.is_none() {
            let (first, until) = (next, next + pace.step(returned.len() - next));
            let places = std::ptr::slice_from_raw_parts_mut(returned.cast::<u32>(), until);
            let batch = Batch { frames: frames_at, returned: places };
            // SAFETY: `live` and the batch are valid and only used through these pointers
            // while compiled code runs; frames, worker and maps are held by our caller, and reached
            // through the run, whose pointer the machine carries.
            let came = unsafe { program.run_batch(live.cast::<Machine>(), batch, next) };
            // SAFETY: compiled code has returned; no other code knows either.
            let (live, places) = unsafe { (&mut *live, &mut *places) };
            next = came.unwrap_or_else(|fault| {
                live.note(&fault);
                live.reached(next, places)
            });
            let mut end = End::Returned;
            if let Some(place) = places.get_mut(next) {
                (*place, end) = live.stopped(next as u32, &mut run, &mut judged);
                next += 1;
            }
            if pace.ends(next - first, end, &mut run.worker.ticks) {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { (*live).leave_frame(&mut run) };
        burst.targets = run.targets;
        if let (Some(trial), Some(started)) = (trial, started) {
            trial.note(program.tier(), frames.len(), started.elapsed());
        }
        judged
    }
}

impl Live<'_> {
    /// The return value of a frame's stopped run, and the reason if it was not intended.
    fn stopped(&mut self, frame: u32, run: &mut Run<'_>, judged: &mut Judged) -> (u32, End) {
        self.machine.stop = 0;
        let result = match self.stop.take() {
            // The run was interrupted without a request: it is asked to end.
            None => Err(Violation::Stopped.into()),
            Some(Stop::Throw(cookie)) => self.catch(cookie, self.machine.stack_top),
            Some(stop) => Err(stop),
        };
        let fault = self.fault.take();
        if result.is_err() || fault.is_some() {
            run.abandon();
        }
        match (fault, result) {
            (Some((fault, program)), _) => {
                judged.fault = Some(CodeStop { frame, fault, program });
            }
            (None, Err(stop)) => {
                let end = End::of_stop(&stop);
                if end == End::Stopped {
                    self.settle(frame);
                }
                judged.stops.push((frame, stop));
                return (0, end);
            }
            (None, Ok(r0)) => return (r0 as u32, End::Returned),
        }
        (0, End::Fault)
    }

    /// Restores the consistency of a frame that code may have been changing when it stopped.
    #[cold]
    fn settle(&mut self, frame: u32) {
        // SAFETY: compiled code has returned, and counts no further than there are frames.
        unsafe { &mut *self.frames.add(frame as usize) }.settle();
    }

    /// Notes a machine fault and its instruction; or, after an interrupt, that the run is to end.
    #[cold]
    fn note(&mut self, fault: &CodeFault) -> Stop {
        if fault.is_interrupt() {
            return Violation::Stopped.into();
        }
        let (code, program) = (Arc::clone(self.code()), Arc::clone(self.program()));
        let slot = program.origin_of(fault.instruction).and_then(|origin| origin.slot);
        let violation = Violation::Machine { signal: fault.signal_name(), addr: fault.address };
        let insn = slot.unwrap_or(0) as usize;
        self.fault.get_or_insert_with(|| {
            let source_line = slot.and_then(|_| code.source_line(insn));
            let (name, violation) = (code.name.clone(), violation.clone());
            (Fault { program: name, insn, source_line, violation }, program)
        });
        violation.into()
    }

    /// The frame that code was processing when it ended early, after it was entered for frames from
    /// `first` on. Code notes the frame only for functions it calls, so the result may be an
    /// earlier frame that returned 0; that makes no difference, as both are aborted.
    fn reached(&self, first: usize, returned: &[u32]) -> usize {
        let last = returned.iter().rposition(|&returned| returned != 0);
        let behind = last.map_or(first, |last| first.max(last + 1));
        behind.max(self.machine.index as usize).min(returned.len().saturating_sub(1))
    }

    /// The return value of a stopped tail call's target with the frame pointer `frame`: that of its
    /// exception handler.
    pub(super) fn caught(&mut self, frame: u64) -> Result<u64, Stop> {
        self.machine.stop = 0;
        match self.stop.take() {
            Some(Stop::Throw(cookie)) => self.catch(cookie, frame),
            Some(stop) => Err(stop),
            None => Err(Violation::Stopped.into()),
        }
    }

    /// The running program's return value after `bpf_throw(cookie)`, its stack below `frame`.
    fn catch(&mut self, cookie: u64, frame: u64) -> Result<u64, Stop> {
        let program = Arc::clone(self.program());
        let Some(callback) = program.exception_callback else { return Ok(cookie) };
        let live = &raw mut *self;
        // SAFETY: as in `Compiled::run_burst`; all frames of the program are gone.
        let r0 = unsafe {
            program.best().call(live.cast::<Machine>(), callback, frame, [cookie, 0, 0, 0, 0])
        };
        self.machine.stop = 0;
        let r0 = r0.map_err(|fault| self.note(&fault))?;
        match self.stop.take() {
            Some(Stop::Throw(cookie)) => Ok(cookie),
            Some(stop) => Err(stop),
            None => r0.ok_or(Violation::NotAFunction { addr: callback }.into()),
        }
    }

    /// The running program: functions it refers to are its own.
    fn program(&self) -> &Arc<Compiled> {
        let called = self.callee().and_then(|callee| callee.compiled.as_ref());
        called.unwrap_or(self.entry)
    }

    /// The running program's interpreted form.
    fn code(&self) -> &Arc<Code> {
        self.callee().map_or(self.code, |callee| &callee.code)
    }

    /// The running program, if a tail call led to it.
    pub(super) fn callee(&self) -> Option<&TailCallee> {
        // SAFETY: compiled code found it in a slot of a program array, and the worker is not
        // quiescent before the burst is over.
        unsafe { TailCallee::of(self.machine.target) }
    }

    /// Updates the run with the present program.
    fn turn_to_program(&mut self, run: &mut Run<'_>) {
        self.target = self.machine.target;
        run.turn_to_program(self.callee());
        run.proved = self.program().trust == Trust::Verified;
    }

    /// Ends the run of the current frame. Ring buffer records stay noted: the next frame may have
    /// reserved one already, and none is left of other frames, except of a run that was ended
    /// early.
    #[inline(always)]
    fn leave_frame(&mut self, run: &mut Run<'_>) {
        if !run.extras.is_empty() {
            forget(run);
        }
    }
}

/// Releases state that few runs have.
#[inline(never)]
fn forget(run: &mut Run<'_>) {
    run.extras.clear();
}

/// Updates the run with compiled code's present frame and program; returns the run.
///
/// # Safety
///
/// `live` is the state of the burst that calls, and no reference to it or to the run is in use.
#[inline(always)]
pub(super) unsafe fn turn_to_frame<'r>(live: *mut Live<'_>) -> &'r mut Run<'r> {
    // SAFETY: the caller's promise; callers use the run while the burst lasts.
    let (live, run) = unsafe { (&mut *live, &mut *(*live).machine.runtime.cast::<Run<'r>>()) };
    if live.current != live.machine.index {
        // SAFETY: the caller's promise.
        unsafe { next_frame(live, run) };
    }
    if live.target != live.machine.target {
        live.turn_to_program(run);
    }
    run
}

/// [`turn_to_frame`] for another frame than the last one.
///
/// # Safety
///
/// As [`turn_to_frame`].
#[inline(always)]
unsafe fn next_frame<'r>(live: &mut Live<'_>, run: &mut Run<'r>) {
    let index = live.machine.index;
    live.leave_frame(run);
    live.current = index;
    run.index = index;
    // SAFETY: compiled code counts no further than there are frames, and the run forgets the frame
    // it had.
    run.frame = unsafe { &mut *live.frames.add(index as usize) };
}

/// The run of compiled code, not updated to the present frame; redirects need [`run_of_index`],
/// access to the frame [`run_of_frame`].
///
/// # Safety
///
/// As [`run_of_frame`].
pub(super) unsafe fn run_of<'r>(machine: *mut Machine) -> &'r mut Run<'r> {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*machine).runtime.cast::<Run<'r>>() }
}

/// The run of compiled code, updated with the present frame's index only.
///
/// # Safety
///
/// As [`run_of_frame`].
#[inline(always)]
pub(super) unsafe fn run_of_index<'r>(machine: *mut Machine) -> &'r mut Run<'r> {
    // SAFETY: the caller's promise.
    let run = unsafe { run_of(machine) };
    // SAFETY: as above.
    run.index = unsafe { (*machine).index };
    run
}

/// The run of compiled code, updated to the present frame.
///
/// # Safety
///
/// Compiled code calls with the machine it was entered with, and the reference ends before the
/// function called returns.
pub(super) unsafe fn run_of_frame<'r>(machine: *mut Machine) -> &'r mut Run<'r> {
    // SAFETY: the machine is the first field of the burst's state.
    unsafe { turn_to_frame(machine.cast::<Live<'_>>()) }
}

/// The machine for a burst that is about to start.
fn machine(run: &mut Run<'_>) -> Machine {
    let (redirects, burst) = run.targets.shared();
    let (number, asked) = run.worker.brake.word();
    Machine {
        packet: std::ptr::null(),
        redirects,
        burst,
        index: 0,
        worker: run.worker.number(),
        stop: 0,
        budget: 0,
        ctx: run.worker.context_addr(),
        stack_top: run.worker.stack_top(),
        tail_calls: 0,
        target: std::ptr::null(),
        jiffies: 0,
        callee: 0,
        run: number,
        asked,
        runtime: std::ptr::from_mut(run).cast::<c_void>(),
    }
}

/// The function that compiled code calls for a helper.
fn helper(id: u32) -> Callee {
    let native = || helpers::helper(id).map(|helper| helper.native);
    of_frame(id).or_else(native).unwrap_or(unknown)
}

/// The function that compiled code calls for a kfunc.
fn kfunc(number: u32) -> Callee {
    let native = || helpers::kfunc(number).map(|kfunc| kfunc.native);
    of_kfunc(number).or_else(native).unwrap_or(unknown)
}

/// Stands for functions that the runtime does not have; the verifier lets no program call them.
unsafe extern "C" fn unknown(machine: *mut Machine, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    let violation = Violation::UnknownKfunc { name: "that is missing here".into() };
    // SAFETY: called by compiled code, with the machine it was entered with.
    unsafe { finish(machine.cast::<Live<'_>>(), Err(violation.into())) }
}

/// Calls a helper or kfunc for compiled code.
///
/// # Safety
///
/// `machine` is the first field of the [`Live`] of the run that calls, and no reference to either
/// or to the run is in use.
#[inline(always)]
pub(crate) unsafe fn call(
    machine: *mut Machine,
    function: impl Fn(&mut Call<'_, '_>, [u64; 5]) -> Result<u64, Stop>,
    args: [u64; 5],
) -> u64 {
    let live = machine.cast::<Live<'_>>();
    // SAFETY: the caller's promise; both references end before compiled code runs on, or are passed
    // on to callbacks, which make theirs from them.
    let run = unsafe { turn_to_frame(live) };
    if !run.proved {
        // SAFETY: as above.
        let charged = unsafe { charge(live, run, &args) };
        if let Err(violation) = charged {
            // SAFETY: as above; the run is not used any more.
            return unsafe { halt(live, violation.into()) };
        }
    }
    let mut callbacks = Reenter { live };
    let result = function(&mut Call { run, callbacks: &mut callbacks }, args);
    // SAFETY: as above.
    unsafe { finish(live, result) }
}

/// Charges a call's variable cost to the run's budget, before the call is made.
///
/// # Safety
///
/// `live` is valid and unreferenced.
#[inline(never)]
unsafe fn charge(live: *mut Live<'_>, run: &Run<'_>, args: &[u64; 5]) -> Result<(), Violation> {
    // SAFETY: the caller's promise.
    let machine = unsafe { &mut (*live).machine };
    let cost = helpers::cost::beside(run, machine.callee, args);
    machine.budget = machine.budget.saturating_sub_unsigned(cost);
    if machine.budget < 0 {
        let insns = run.surroundings.limits.insns;
        let limit = if insns == u64::MAX { GUEST_BUDGET.into() } else { insns };
        return Err(Violation::Budget { limit });
    }
    Ok(())
}

/// Returns a result to compiled code, or orders it to stop.
///
/// # Safety
///
/// `live` is valid and unreferenced.
#[inline(always)]
pub(super) unsafe fn finish(live: *mut Live<'_>, result: Result<u64, Stop>) -> u64 {
    match result {
        Ok(r0) => r0,
        // SAFETY: the caller's promise.
        Err(stop) => unsafe { halt(live, stop) },
    }
}

/// Orders compiled code to stop.
///
/// # Safety
///
/// As [`finish`].
#[cold]
unsafe fn halt(live: *mut Live<'_>, stop: Stop) -> u64 {
    // SAFETY: the caller's promise.
    let live = unsafe { &mut *live };
    live.stop = Some(stop);
    live.machine.stop = 1;
    0
}

unsafe extern "C" fn probe(
    machine: *mut Machine,
    addr: u64,
    bytes: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { turn_to_frame(machine.cast::<Live<'_>>()) };
    run.load_probe(addr, bytes as u32)
}

/// Stops the run unless an operation is allowed: the check that the interpreter makes for each
/// access.
unsafe extern "C" fn guard(
    machine: *mut Machine,
    addr: u64,
    bytes: u64,
    need: u64,
    _: u64,
    _: u64,
) -> u64 {
    let live = machine.cast::<Live<'_>>();
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { turn_to_frame(live) };
    let refusal = if need == Need::Time as u64 {
        Some(Violation::Budget { limit: bytes })
    } else {
        let write = need != Need::Read as u64;
        let aligned = need != Need::Atomic as u64 || addr.is_multiple_of(bytes);
        let why = "an atomic is aligned to its size";
        match aligned {
            false => Some(Violation::Memory { addr, size: bytes, write, why }),
            true => run.grant_unproved(addr, bytes, write).err(),
        }
    };
    // SAFETY: `run` is not used any more.
    unsafe { finish(live, refusal.map_or(Ok(0), |violation| Err(violation.into()))) }
}

/// Calls functions of the compiled program on behalf of a helper.
struct Reenter<'a> {
    live: *mut Live<'a>,
}

impl<'r> Callbacks<Run<'r>> for Reenter<'_> {
    fn call(&mut self, runtime: &mut Run<'r>, function: u64, args: [u64; 5]) -> Result<u64, Stop> {
        // SAFETY: valid as long as the run; the helper that holds us uses no reference to it.
        let live = unsafe { &mut *self.live };
        if live.nested + 1 >= MAX_CALL_FRAMES {
            return Err(Violation::CallDepth { limit: MAX_CALL_FRAMES }.into());
        }
        live.nested += 1;
        let frame = live.machine.stack_top - (live.nested * CHAIN_STACK_BYTES) as u64;
        let program = Arc::as_ptr(live.program());
        // Functions that the callback calls access the run through the reference that the helper
        // lent us.
        let outer = live.machine.runtime;
        live.machine.runtime = std::ptr::from_mut(runtime).cast::<c_void>();
        // SAFETY: the run is valid, `live` is only used through `self.live` until the call returns,
        // and each nested callback has a stack of its own, as large as any chain of calls needs. No
        // program that a frame's run reached goes before that run is over.
        let r0 = unsafe { (*program).best().call(self.live.cast(), function, frame, args) };
        // SAFETY: compiled code has returned.
        let live = unsafe { &mut *self.live };
        live.machine.runtime = outer;
        live.nested -= 1;
        live.machine.stop = 0;
        let r0 = r0.map_err(|fault| live.note(&fault))?;
        match live.stop.take() {
            Some(stop) => Err(stop),
            None => r0.ok_or(Violation::NotAFunction { addr: function }.into()),
        }
    }

    fn code(&self) -> Arc<Code> {
        // SAFETY: valid as long as the run.
        unsafe { Arc::clone((*self.live).code()) }
    }
}
