//! The interpreter: the definition of a program's execution, written to be read beside RFC 9669.
//!
//! It is the specification that faster engines are compared with, so it favours plainness over
//! speed. It never touches memory: every load, store and atomic goes to a [`Runtime`], which checks
//! the address against the program's memory and only then performs the access. A runtime must never
//! refuse an access of a program that the verifier accepted; if it does, the returned [`Fault`] is
//! a bug in the verifier or in a helper, never undefined behaviour.
//!
//! ```text
//! Code::of(&Verified, &Resolver) -> Code         map indexes become addresses, as in the kernel
//! run(&Arc<Code>, ctx, &mut Runtime, &Limits) -> r0 | Fault
//! ```

mod alu;
mod code;
mod conformance;
mod fault;
mod jump;
mod machine;
mod memory;
mod runtime;

pub use code::{
    Access, Code, ResolveError, Resolver, function_address, function_slot, is_function,
    kfunc_address,
};
pub use conformance::{ConformanceError, run_conformance};
pub use fault::{Fault, Stop, Violation};
pub use machine::{Limits, run, run_function, run_tail_called};
pub use runtime::{AtomicOp, Callbacks, Observer, Runtime};

use machine::run_at;

/// Largest number of tail calls of one run (`MAX_TAIL_CALL_CNT`).
pub const MAX_TAIL_CALLS: u32 = 33;
/// Largest number of active functions of one program (`MAX_CALL_FRAMES` is 8 in 6.18 and 16 in
/// 7.3).
pub const MAX_CALL_FRAMES: usize = 16;
/// As [`MAX_CALL_FRAMES`], over all programs of a run: a tail call in a function keeps the
/// function's callers, seven at most, on the stack.
pub const MAX_CHAIN_FRAMES: usize = MAX_TAIL_CALLS as usize * 7 + MAX_CALL_FRAMES;
/// Largest number of rounds of a `may_goto` loop in one function call (`BPF_MAX_LOOPS`).
pub const MAX_LOOPS: u32 = 8 * 1024 * 1024;

#[cfg(test)]
mod tests;
