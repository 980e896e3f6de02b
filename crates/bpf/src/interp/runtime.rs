//! The surroundings of a running program: memory, helpers, other programs.
//!
//! The interpreter and compiled code share one implementation of this trait's helper side, so that
//! a helper behaves equally in both. Addresses are real 64-bit addresses in both.

use std::sync::Arc;

use super::{Code, Stop, Violation};
use crate::insn::REG_COUNT;

/// The surroundings of one run. Every access is checked here: an access to an address outside the
/// program's memory returns a [`Violation`] and does not happen.
pub trait Runtime: Sized {
    /// Called before each instruction, as [`Observer::observe`].
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
    /// unreadable address gives 0.
    fn load_probe(&mut self, addr: u64, size: u32) -> u64 {
        self.load(addr, size).unwrap_or(0)
    }

    /// Stores the low `size` (1, 2, 4 or 8) bytes of `value`, little endian.
    fn store(&mut self, addr: u64, size: u32, value: u64) -> Result<(), Violation>;

    /// One atomic operation on `size` bytes (4 or 8; 1 and 2 too for acquire and release),
    /// sequentially consistent except for [`AtomicOp::LoadAcquire`] and [`AtomicOp::StoreRelease`].
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

    /// Address in user space of the arena's first byte, as the program sees it (`user_vm_start`).
    fn arena_user_base(&mut self) -> u64 {
        0
    }

    /// Enters a function: returns its frame pointer (r10), below which it has
    /// [`crate::insn::STACK_BYTES`] bytes. `depth` is 0 for the entry function.
    fn enter_frame(&mut self, depth: usize) -> Result<u64, Violation>;

    /// Leaves the function at `depth`, whose stack is then gone.
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

    /// The run continues in `code`, after a function that it had called made a tail call to another
    /// program, which has ended.
    fn resume(&mut self, code: &Arc<Code>) {
        let _ = code;
    }

    /// Checks, now and then, whether the run may go on.
    #[inline]
    fn look(&mut self) -> Result<(), Violation> {
        Ok(())
    }

    /// Cost of the functions called since the last time, in instructions.
    #[inline]
    fn take_cost(&mut self) -> u64 {
        0
    }

    /// Ends the run, after this number of instructions.
    fn ended(&mut self, insns: u64) {
        let _ = insns;
    }
}

/// An observer of each instruction before its execution; it may object, for example if a proved
/// fact does not hold.
pub trait Observer {
    /// Called before the instruction in this slot.
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
    /// `old + operand`.
    Add,
    /// `old | operand`.
    Or,
    /// `old & operand`.
    And,
    /// `old ^ operand`.
    Xor,
    /// `operand`.
    Exchange,
    /// `operand` if the old value equals `expected`, else the old value.
    CompareExchange {
        /// Value of r0, cut to the access size.
        expected: u64,
    },
    /// `BPF_LOAD_ACQ`: the operand is ignored.
    LoadAcquire,
    /// `BPF_STORE_REL`: the returned old value is meaningless.
    StoreRelease,
}

impl AtomicOp {
    /// Value in memory after the operation (before it is cut to the access size), for runtimes
    /// whose memory has no other users.
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
