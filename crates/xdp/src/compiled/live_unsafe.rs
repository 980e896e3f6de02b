//! A run of compiled code: entering it, and the functions it calls.
//!
//! Compiled code knows one pointer, to the [`Machine`]. It is the first field of [`Live`], so the
//! functions it calls find everything else behind it. While compiled code runs nobody uses a
//! reference to the run; each function called makes one from the pointer and is done with it when
//! it returns.

#![expect(unsafe_code, reason = "is called from machine code with a pointer to its own state")]

use std::ffi::c_void;
use std::sync::Arc;

use towpath_bpf::insn::STACK_BYTES;
use towpath_bpf::interp::{
    Callbacks, Code, MAX_CALL_FRAMES, MAX_TAIL_CALLS, Runtime, Stop, Violation,
};
use towpath_jit::{Callees, Machine};

use super::Compiled;
use crate::helpers::{self, Call, Helper};
use crate::run::Run;

/// The functions compiled code calls.
pub(super) const CALLEES: Callees = Callees { helper, kfunc, tail_call, probe };

/// State of a run of compiled code.
#[repr(C)]
struct Live {
    machine: Machine,
    /// The running program: functions it refers to are its own.
    program: Arc<Compiled>,
    /// Its interpreted form, for callbacks that outlive the run.
    code: Arc<Code>,
    /// Why `machine.stop` is set.
    stop: Option<Stop>,
    /// Callbacks inside each other; each has its own piece of stack.
    nested: usize,
    tail_calls: u32,
    /// Programs that were left by a tail call; frames of theirs may still be active.
    left: Vec<Arc<Compiled>>,
}

impl Compiled {
    /// Runs the program; gives r0.
    pub(crate) fn run(self: &Arc<Self>, code: &Arc<Code>, run: &mut Run<'_>) -> Result<u64, Stop> {
        // All of the stack is the program's: the verifier proved its depth.
        run.enter_frame(MAX_CALL_FRAMES - 1)?;
        let mut live = Live {
            machine: machine(run),
            program: Arc::clone(self),
            code: Arc::clone(code),
            stop: None,
            nested: 0,
            tail_calls: 0,
            left: Vec::new(),
        };
        let live = &raw mut live;
        // SAFETY: `live` is valid and only used through this pointer until the run is over; frame,
        // worker and maps are held by `run`, whose pointer the machine carries.
        let r0 = unsafe { self.program.run(live.cast::<Machine>()) };
        // SAFETY: compiled code has returned; nobody else knows `live`.
        let live = unsafe { &mut *live };
        match live.stop.take() {
            None => Ok(r0),
            Some(Stop::Throw(cookie)) => live.catch(cookie),
            Some(stop) => Err(stop),
        }
    }
}

impl Live {
    /// What the program returns after `bpf_throw(cookie)`.
    fn catch(&mut self, cookie: u64) -> Result<u64, Stop> {
        let Some(callback) = self.program.exception_callback else { return Ok(cookie) };
        let program = Arc::clone(&self.program);
        self.machine.stop = 0;
        let frame = self.machine.stack_top;
        let live = &raw mut *self;
        // SAFETY: as in `Compiled::run`; all frames of the program are gone.
        let r0 = unsafe {
            program.program.call(live.cast::<Machine>(), callback, frame, [cookie, 0, 0, 0, 0])
        };
        match self.stop.take() {
            Some(Stop::Throw(cookie)) => Ok(cookie),
            Some(stop) => Err(stop),
            None => r0.ok_or(Violation::NotAFunction { addr: callback }.into()),
        }
    }
}

/// The machine for a run that is about to start.
fn machine(run: &mut Run<'_>) -> Machine {
    let mut machine = Machine {
        data: 0,
        data_end: 0,
        data_meta: 0,
        ingress_ifindex: run.frame.rx.ifindex,
        rx_queue_index: run.frame.rx.queue_index,
        egress_ifindex: run.frame.egress_ifindex,
        worker: run.worker.number(),
        stop: 0,
        callee: 0,
        ctx: run.worker.context_addr(),
        stack_top: run.worker.stack_top(),
        runtime: std::ptr::from_mut(run).cast::<c_void>(),
    };
    mirror_frame(&mut machine, run);
    machine
}

/// Tells compiled code where the packet is now.
fn mirror_frame(machine: &mut Machine, run: &Run<'_>) {
    machine.data = run.frame.data_addr();
    machine.data_end = run.frame.data_end_addr();
    machine.data_meta = run.frame.data_meta_addr();
}

unsafe extern "C" fn helper(
    machine: *mut Machine,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
) -> u64 {
    let find = |id| helpers::helper(id).ok_or(Violation::UnknownHelper { id });
    // SAFETY: called by compiled code, with the machine it was entered with.
    unsafe { call(machine, find, [r1, r2, r3, r4, r5]) }
}

unsafe extern "C" fn kfunc(
    machine: *mut Machine,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
) -> u64 {
    let find = |id: u32| {
        helpers::kfunc(id).ok_or_else(|| Violation::UnknownKfunc { name: id.to_string() })
    };
    // SAFETY: called by compiled code, with the machine it was entered with.
    unsafe { call(machine, find, [r1, r2, r3, r4, r5]) }
}

/// Calls the helper or kfunc that `find` knows by the machine's `callee`.
///
/// # Safety
///
/// `machine` is the first field of the [`Live`] of the run that calls, and no reference to either
/// or to the run is in use.
unsafe fn call(
    machine: *mut Machine,
    find: impl Fn(u32) -> Result<Helper, Violation>,
    args: [u64; 5],
) -> u64 {
    let live = machine.cast::<Live>();
    // SAFETY: the caller's promise; both references end before compiled code runs on, or are passed
    // on to callbacks, which make theirs from them.
    let (id, run) = unsafe { ((*machine).callee, &mut *(*machine).runtime.cast::<Run<'_>>()) };
    let mut callbacks = Reenter { live };
    let result = find(id).map_err(Stop::from).and_then(|function| {
        function(&mut Call { run: &mut *run, callbacks: &mut callbacks }, args)
    });
    // SAFETY: as above; the machine is not otherwise referenced.
    mirror_frame(unsafe { &mut *machine }, run);
    // SAFETY: as above.
    unsafe { finish(live, result) }
}

/// Gives compiled code a result, or the order to stop.
///
/// # Safety
///
/// `live` is valid and unreferenced.
unsafe fn finish(live: *mut Live, result: Result<u64, Stop>) -> u64 {
    result.unwrap_or_else(|stop| {
        // SAFETY: the caller's promise.
        let live = unsafe { &mut *live };
        live.stop = Some(stop);
        live.machine.stop = 1;
        0
    })
}

unsafe extern "C" fn tail_call(
    machine: *mut Machine,
    map: u64,
    index: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    let live = machine.cast::<Live>();
    // SAFETY: called by compiled code, with the machine it was entered with.
    let (live_ref, run) = unsafe { (&mut *live, &mut *(*machine).runtime.cast::<Run<'_>>()) };
    if live_ref.tail_calls >= MAX_TAIL_CALLS {
        return 0;
    }
    let found = run.tail_call_compiled(map, index as u32);
    let result = found.map(|target| match target {
        None => 0,
        Some((code, program)) => {
            live_ref.tail_calls += 1;
            live_ref.code = code;
            let left = std::mem::replace(&mut live_ref.program, program);
            live_ref.left.push(left);
            live_ref.program.program.entry()
        }
    });
    // SAFETY: `live_ref` is not used any more.
    unsafe { finish(live, result) }
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
    let run = unsafe { &mut *(*machine).runtime.cast::<Run<'_>>() };
    run.load_probe(addr, bytes as u32)
}

/// Calls functions of the compiled program on behalf of a helper.
struct Reenter {
    live: *mut Live,
}

impl<'r> Callbacks<Run<'r>> for Reenter {
    fn call(&mut self, runtime: &mut Run<'r>, function: u64, args: [u64; 5]) -> Result<u64, Stop> {
        // SAFETY: valid as long as the run; the helper that holds us uses no reference to it.
        let live = unsafe { &mut *self.live };
        if live.nested + 1 >= MAX_CALL_FRAMES {
            return Err(Violation::CallDepth { limit: MAX_CALL_FRAMES }.into());
        }
        mirror_frame(&mut live.machine, runtime);
        live.nested += 1;
        let frame = live.machine.stack_top - (live.nested * STACK_BYTES) as u64;
        let program = Arc::clone(&live.program);
        // What the callback calls reaches the run through the reference the helper lent us.
        let outer = live.machine.runtime;
        live.machine.runtime = std::ptr::from_mut(runtime).cast::<c_void>();
        // SAFETY: the run is valid, `live` is only used through `self.live` until the call returns,
        // and each nested callback has a stack of its own, as large as any program may use.
        let r0 = unsafe { program.program.call(self.live.cast(), function, frame, args) };
        // SAFETY: compiled code has returned.
        let live = unsafe { &mut *self.live };
        live.machine.runtime = outer;
        live.nested -= 1;
        live.machine.stop = 0;
        match live.stop.take() {
            Some(stop) => Err(stop),
            None => r0.ok_or(Violation::NotAFunction { addr: function }.into()),
        }
    }

    fn code(&self) -> Arc<Code> {
        // SAFETY: valid as long as the run.
        unsafe { Arc::clone(&(*self.live).code) }
    }
}
