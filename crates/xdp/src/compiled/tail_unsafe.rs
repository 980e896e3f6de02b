//! Tail calls that compiled code leaves to the runtime: those whose target it does not find by
//! itself, or whose target has no machine code.

#![expect(unsafe_code, reason = "is called from machine code with a pointer to its own state")]

use std::sync::{Arc, OnceLock};

use towpath_bpf::interp::{Stop, Violation};
use towpath_jit::{Bridge, Machine};

use super::live_unsafe::{Live, finish, turn_to_frame};
use crate::run::Run;

/// Address that compiled code jumps to for a program without machine code; 0 if compiled code is
/// not supported at all.
pub(crate) fn bridge() -> u64 {
    static BRIDGE: OnceLock<Option<Bridge>> = OnceLock::new();
    BRIDGE.get_or_init(|| Bridge::to(interpret).ok()).as_ref().map_or(0, Bridge::entry)
}

/// Callee `(map, index)`: returns the address of the target in a slot, or 0.
pub(super) unsafe extern "C" fn tail_call(
    machine: *mut Machine,
    map: u64,
    index: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    let live = machine.cast::<Live<'_>>();
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { turn_to_frame(live) };
    let found = run.callee(map, index as u32);
    let found = found.map(|callee| callee.map_or(0, |callee| callee.target() as u64));
    // SAFETY: as above; the run is not used any more.
    unsafe { finish(live, found.map_err(Stop::from)) }
}

/// Callee `(frame pointer)`: the return value of a stopped tail call's target that threw.
pub(super) unsafe extern "C" fn catch(
    machine: *mut Machine,
    frame: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    let live = machine.cast::<Live<'_>>();
    // SAFETY: called by compiled code, with the machine it was entered with; the reference ends
    // before anything else uses the burst's state.
    let result = unsafe { &mut *live }.caught(frame);
    // SAFETY: as above.
    unsafe { finish(live, result) }
}

/// Runs the program that a tail call led to in the interpreter.
unsafe extern "C" fn interpret(
    machine: *mut Machine,
    frame: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    let live = machine.cast::<Live<'_>>();
    // SAFETY: called by compiled code, with the machine it was entered with.
    let run = unsafe { turn_to_frame(live) };
    // SAFETY: as above; the reference ends before anything else uses the burst's state.
    let result = interpret_in(unsafe { &mut *live }, run, frame);
    // SAFETY: as above.
    unsafe { finish(live, result) }
}

fn interpret_in(live: &mut Live<'_>, run: &mut Run<'_>, frame: u64) -> Result<u64, Stop> {
    let Some(callee) = live.callee() else {
        return Err(Violation::NotAFunction { addr: 0 }.into());
    };
    let (code, mut tail_calls) = (Arc::clone(&callee.code), live.machine.tail_calls);
    let result = run.interpret_tail_called(&code, frame, &mut tail_calls);
    live.machine.tail_calls = tail_calls;
    // The interpreter may have moved to other programs.
    run.turn_to_program(live.callee());
    result.map_err(|fault| fault.violation.into())
}
