//! The surroundings of a running program: memory, helpers, other programs.
//!
//! The interpreter and compiled code share one implementation of this trait's helper side, so a
//! helper behaves the same whatever runs the program. Addresses are real 64-bit addresses in both.

use std::sync::Arc;

use super::{Code, Stop, Violation};
use crate::insn::REG_COUNT;

/// The surroundings of one run. Every access is checked here: an address the program may not touch
/// comes back as a [`Violation`], never as an access.
pub trait Runtime: Sized {
    /// As [`Observer::observe`].
    #[inline]
    fn observe(
        &mut self,
        code: &Code,
        slot: usize,
        regs: &[u64; REG_COUNT],
    ) -> Result<(), Violation> {
        let _ = (code, slot, regs);
        Ok(())
    }

    /// Loads `size` (1, 2, 4 or 8) bytes, little endian, zero-extended.
    ///
    /// A 4-byte load of a context field that holds a pointer (`xdp_md.data`) yields all 64 bits of
    /// it: the kernel's verifier rewrites such loads to the same effect (`convert_ctx_accesses`).
    fn load(&mut self, addr: u64, size: u32) -> Result<u64, Violation>;

    /// As [`Runtime::load`] for a pointer the verifier could not prove valid (`BPF_PROBE_MEM`): an
    /// address that is not ours to read gives 0.
    fn load_probe(&mut self, addr: u64, size: u32) -> u64 {
        self.load(addr, size).unwrap_or(0)
    }

    /// Stores the low `size` (1, 2, 4 or 8) bytes of `value`, little endian.
    fn store(&mut self, addr: u64, size: u32, value: u64) -> Result<(), Violation>;

    /// One atomic operation on `size` (4 or 8; 1, 2 too for acquire and release) bytes,
    /// sequentially consistent but for [`AtomicOp::LoadAcquire`] and [`AtomicOp::StoreRelease`].
    /// Returns the old value, zero-extended.
    fn atomic(
        &mut self,
        addr: u64,
        size: u32,
        op: AtomicOp,
        operand: u64,
    ) -> Result<u64, Violation>;

    /// Turns an address inside the program's arena (its low 32 bits count) into a real one; `None`
    /// when the program has no arena.
    fn arena_address(&mut self, addr: u64) -> Option<u64> {
        let _ = addr;
        None
    }

    /// What the program sees as the address of an arena byte in user space (`user_vm_start`).
    fn arena_user_base(&mut self) -> u64 {
        0
    }

    /// A function is entered: returns its frame pointer (r10), below which it has
    /// [`crate::insn::STACK_BYTES`] bytes. `depth` is 0 for the entry function.
    fn enter_frame(&mut self, depth: usize) -> Result<u64, Violation>;

    /// The function at `depth` returns; its stack is gone.
    fn leave_frame(&mut self, depth: usize);

    /// Calls helper `id`. `callbacks` runs functions of the program that the helper was given.
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop>;

    /// Calls the kfunc that [`super::Resolver::kfunc`] numbered `id`.
    fn call_kfunc(
        &mut self,
        id: u32,
        args: [u64; 5],
        callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop>;

    /// The program in slot `index` of the program array at `map` (a `bpf_map` address), if any.
    /// The interpreter counts tail calls and does the jump.
    fn tail_call(&mut self, map: u64, index: u32) -> Result<Option<Arc<Code>>, Stop>;

    /// A program goes on whose function had called one that made a tail call.
    fn resume(&mut self, code: &Arc<Code>) {
        let _ = code;
    }

    /// Asked now and then: whether the run may go on.
    #[inline]
    fn look(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// Cost of the functions called since the last time, in instructions.
    #[inline]
    fn take_cost(&mut self) -> u64 {
        0
    }

    /// The run is over, after so many instructions.
    fn ended(&mut self, insns: u64) {
        let _ = insns;
    }
}

/// Sees each instruction before it is executed, and may object: what was proved of it can be
/// compared with what is.
pub trait Observer {
    /// The instruction in this slot is next.
    fn observe(&self, code: &Code, slot: usize, regs: &[u64; REG_COUNT]) -> Result<(), Violation>;
}

/// Runs functions of the program on behalf of a helper (`bpf_loop`, `bpf_for_each_map_elem`, ...).
pub trait Callbacks<R> {
    /// Calls the function whose address the program passed, and returns its r0.
    fn call(&mut self, runtime: &mut R, function: u64, args: [u64; 5]) -> Result<u64, Stop>;

    /// The running program, for callbacks that outlive the call (timers, work queues).
    fn code(&self) -> Arc<Code>;
}

/// The atomic operations of RFC 9669 section 5.3 and their acquire and release companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// `old + operand`
    Add,
    /// `old | operand`
    Or,
    /// `old & operand`
    And,
    /// `old ^ operand`
    Xor,
    /// `operand`
    Exchange,
    /// `operand` when the old value equals `expected`, else unchanged.
    CompareExchange {
        /// r0, cut to the access size.
        expected: u64,
    },
    /// `BPF_LOAD_ACQ`: the operand is not used.
    LoadAcquire,
    /// `BPF_STORE_REL`: the returned old value means nothing.
    StoreRelease,
}

impl AtomicOp {
    /// The value memory holds afterwards (before it is cut to the access size), for runtimes whose
    /// memory no one else sees.
    pub fn apply(self, old: u64, operand: u64) -> u64 {
        match self {
            AtomicOp::Add => old.wrapping_add(operand),
            AtomicOp::Or => old | operand,
            AtomicOp::And => old & operand,
            AtomicOp::Xor => old ^ operand,
            AtomicOp::Exchange | AtomicOp::StoreRelease => operand,
            AtomicOp::CompareExchange { expected } if expected == old => operand,
            AtomicOp::CompareExchange { .. } | AtomicOp::LoadAcquire => old,
        }
    }
}
