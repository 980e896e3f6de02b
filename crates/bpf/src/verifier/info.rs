//! Facts about each instruction and each function, gathered over all paths.

use super::facts::{InsnFacts, StackBytes};
use super::reg::{BtfRef, DynptrKind, RegType};

/// Facts about an instruction, gathered over all paths (`struct bpf_insn_aux_data`).
#[derive(Clone, Debug, Default)]
pub(crate) struct InsnAux {
    /// Whether some path reaches it.
    pub(crate) seen: bool,
    /// Whether states are compared here.
    pub(crate) prune_point: bool,
    /// Whether the path's history records arrivals here.
    pub(crate) jump_point: bool,
    /// Whether a state is always kept here, without heuristics.
    pub(crate) force_checkpoint: bool,
    /// Whether it calls a helper or kfunc that calls back into the program synchronously.
    pub(crate) calls_callback: bool,
    /// Whether it is the `*_next` of an open-coded iterator.
    pub(crate) iter_next: bool,
    /// Whether it is `bpf_throw`.
    pub(crate) throws: bool,
    /// Whether it spills or fills a register around a call that keeps it (`fastcall_pattern`).
    pub(crate) around_call: bool,
    /// Whether it is 64-bit arithmetic that some path does with an arena pointer (`needs_zext`).
    pub(crate) of_arena: bool,
    /// Number of the strongly connected component; 0 outside of loops.
    pub(crate) scc: u32,
    /// Pointer type of the memory access, if it must be the same on all paths.
    pub(crate) pointer_type: Option<RegType>,
    /// Masking of its operand against speculation, the same on all paths.
    pub(crate) masking: Option<Masking>,
    /// Registers (by bit) that may be read later without a write before.
    pub(crate) live_regs: u16,
    /// Facts about the instruction that `Verified` passes to compilers.
    pub(crate) facts: InsnFacts,
}

/// A function of the program (`struct bpf_subprog_info`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Subprog {
    pub(crate) start: usize,
    /// Exclusive end slot.
    pub(crate) end: usize,
    /// Bytes of stack that it uses itself.
    pub(crate) stack_depth: u32,
    /// Stack slots excluded from the depth (bpf_fastcall spills).
    pub(crate) spills: Spills,
    /// Bytes of its stack that are accessed through pointers; see [`super::SubprogramFacts`].
    pub(crate) reached: StackBytes,
    /// Index into `Linked::functions`, if the function is listed there.
    pub(crate) function: Option<usize>,
    pub(crate) global: bool,
    /// Whether a verified function calls it (global functions that aren't called may stay
    /// unverified).
    pub(crate) called: bool,
    pub(crate) has_tail_call: bool,
    pub(crate) tail_call_reachable: bool,
    /// Whether its address is taken to run later (timer, workqueue).
    pub(crate) is_async_callback: bool,
    pub(crate) is_callback: bool,
    pub(crate) is_exception_callback: bool,
    /// Whether it may change packet data, itself or through a callee.
    pub(crate) changes_packet: bool,
    pub(crate) might_sleep: bool,
    pub(crate) might_throw: bool,
    /// Checked argument types of global functions, once known.
    pub(crate) args: Option<SubprogArgs>,
}

impl Subprog {
    /// Whether it runs on a stack of its own, without a caller.
    pub(crate) fn starts_stack(&self) -> bool {
        self.is_async_callback || self.is_exception_callback
    }
}

/// Masking of an instruction's operand, over all paths (`alu_state`, `alu_limit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masking {
    /// Numbers only, without a pointer.
    Number,
    Pointer {
        negative: bool,
        constant: bool,
        pointer_is_dst: bool,
        limit: u32,
    },
}

/// Part of a function's stack that has only spills around calls (`bpf_fastcall`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spills {
    /// Offset below which there are only spills (`fastcall_stack_off`); 0 if there are none, and
    /// the lowest possible one once another access to them was seen.
    pub(crate) limit: i64,
    /// Whether some call keeps its registers, so that spills are removed.
    pub(crate) removed: bool,
    /// Whether some call with such spills does not keep its registers, so that they are needed.
    pub(crate) needed: bool,
}

/// The checked type of a global function's argument (`struct bpf_subprog_arg_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// A number.
    Anything,
    Ctx,
    /// Memory of this number of bytes.
    Mem {
        size: u32,
        nullable: bool,
    },
    Dynptr(DynptrKind),
    Arena,
    /// A typed kernel pointer.
    Trusted {
        ty: BtfRef,
        nullable: bool,
        untrusted: bool,
    },
    /// Memory of any size, read with probe semantics.
    UntrustedMem,
}

/// The arguments of a global function, checked.
pub(crate) type SubprogArgs = Vec<ArgKind>;
