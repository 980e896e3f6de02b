//! Entry points of helpers, for the interpreter and for compiled code.
//!
//! The interpreter finds a helper by its number, calls it through a pointer and checks its result.
//! For compiled code there is a separate function for each helper, into which the helper is
//! inlined.

#![expect(unsafe_code, reason = "makes a function of nothing but its type")]

use std::ptr::NonNull;

use towpath_bpf::interp::Stop;
use towpath_jit::{Callee, Machine};

use super::Call;
use super::cost::{self, Cost};
use crate::compiled::call;

/// A helper or kfunc.
#[derive(Clone, Copy)]
pub(crate) struct Helper {
    /// For the interpreter.
    pub(crate) function: fn(&mut Call<'_, '_>, [u64; 5]) -> Result<u64, Stop>,
    /// For compiled code.
    pub(crate) native: Callee,
    /// The cost of a call beyond the cost of every call.
    pub(crate) cost: Cost,
    /// Whether it can move the packet's start or end (`bpf_helper_changes_pkt_data`).
    #[cfg_attr(not(test), expect(dead_code, reason = "compiled code knows it; tests compare"))]
    pub(crate) moves: bool,
}

impl Helper {
    /// The same helper with its own cost function.
    pub(super) const fn costing(self, cost: Cost) -> Helper {
        Helper { cost, ..self }
    }
}

/// The type of a function that is a helper.
pub(super) trait Function:
    Fn(&mut Call<'_, '_>, [u64; 5]) -> Result<u64, Stop> + Copy
{
}

impl<F> Function for F where F: Fn(&mut Call<'_, '_>, [u64; 5]) -> Result<u64, Stop> + Copy {}

/// A helper that does not move the packet.
pub(super) const fn entry<F: Function>(function: F) -> Helper {
    of(function, false)
}

/// A helper that may move the packet's ends.
pub(super) const fn moving<F: Function>(function: F) -> Helper {
    of(function, true)
}

const fn of<F: Function>(_function: F, moves: bool) -> Helper {
    Helper {
        function: |call, args| instance::<F>()(call, args),
        native: native::<F>,
        cost: cost::by_arguments,
        moves,
    }
}

/// The function of a zero-sized function type.
fn instance<F: Function>() -> F {
    const { assert!(size_of::<F>() == 0, "a function, and not a pointer to one") };
    // SAFETY: a value of no size is read from nowhere, and `of` was given one, so there are any.
    unsafe { NonNull::<F>::dangling().read() }
}

unsafe extern "C" fn native<F: Function>(
    machine: *mut Machine,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
) -> u64 {
    // SAFETY: called by compiled code, with the machine it was entered with.
    unsafe { call(machine, instance::<F>(), [r1, r2, r3, r4, r5]) }
}
