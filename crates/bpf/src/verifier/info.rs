//! Facts about each instruction and each function, gathered over all paths.

use super::facts::{InsnFacts, StackBytes};
use super::reg::{BtfRef, DynptrKind, RegType};

/// Facts about an instruction, gathered over all paths (`struct bpf_insn_aux_data`).
#[derive(Clone, Debug, Default)]
pub(crate) struct InsnAux {
    /// Reached on some path.
    pub(crate) seen: bool,
    /// States are compared here.
    pub(crate) prune_point: bool,
    /// The path's history records arriving here.
    pub(crate) jump_point: bool,
    /// A state is kept here whatever the heuristics say.
    pub(crate) force_checkpoint: bool,
    /// Calls a helper or kfunc that calls back into the program synchronously.
    pub(crate) calls_callback: bool,
    /// `*_next` of an open-coded iterator.
    pub(crate) iter_next: bool,
    /// `bpf_throw`.
    pub(crate) throws: bool,
    /// Spills or fills what a call keeps (`fastcall_pattern`).
    pub(crate) around_call: bool,
    /// 64-bit arithmetic that some path does with an arena pointer (`needs_zext`).
    pub(crate) of_arena: bool,
    /// Strongly connected part of the control flow, 0 outside of loops.
    pub(crate) scc: u32,
    /// Pointer type of the memory access, for those that must be the same on all paths.
    pub(crate) pointer_type: Option<RegType>,
    /// How its operand is masked against speculation, the same on all paths.
    pub(crate) masking: Option<Masking>,
    /// Registers (by bit) that may be read before being written from here on.
    pub(crate) live_regs: u16,
    /// Facts about the instruction that `Verified` hands to the compiler.
    pub(crate) facts: InsnFacts,
}

/// A function of the program (`struct bpf_subprog_info`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Subprog {
    pub(crate) start: usize,
    /// Exclusive end slot.
    pub(crate) end: usize,
    /// Bytes of stack it uses itself.
    pub(crate) stack_depth: u32,
    /// Stack slots excluded from the depth (bpf_fastcall spills).
    pub(crate) spills: Spills,
    /// Bytes of its stack that are touched through pointers; see [`super::SubprogramFacts`].
    pub(crate) reached: StackBytes,
    /// Index into `Linked::functions`, if the function is listed there.
    pub(crate) function: Option<usize>,
    pub(crate) global: bool,
    /// Called from a verified function (global functions that aren't may stay unverified).
    pub(crate) called: bool,
    pub(crate) has_tail_call: bool,
    pub(crate) tail_call_reachable: bool,
    /// Address taken to run later (timer, workqueue).
    pub(crate) is_async_callback: bool,
    pub(crate) is_callback: bool,
    pub(crate) is_exception_callback: bool,
    /// May change packet data, itself or through a callee.
    pub(crate) changes_packet: bool,
    pub(crate) might_sleep: bool,
    pub(crate) might_throw: bool,
    /// Checked argument types of global functions, once known.
    pub(crate) args: Option<SubprogArgs>,
}

impl Subprog {
    /// Runs on a stack of its own, below no caller.
    pub(crate) fn starts_stack(&self) -> bool {
        self.is_async_callback || self.is_exception_callback
    }
}

/// How an instruction's operand would be masked, over all paths (`alu_state`, `alu_limit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Masking {
    /// Numbers only.
    Number,
    Pointer {
        negative: bool,
        constant: bool,
        pointer_is_dst: bool,
        limit: u32,
    },
}

/// Where a function's stack holds nothing but spills around calls (`bpf_fastcall`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spills {
    /// The offset below which there are only spills (`fastcall_stack_off`); 0 without any, and as
    /// low as can be once something else was seen to touch them.
    pub(crate) limit: i64,
    /// Some call keeps its registers, so that spills are removed.
    pub(crate) removed: bool,
    /// Some call with spills like these does not, so that they are still needed.
    pub(crate) needed: bool,
}

/// The checked type of a global function's argument (`struct bpf_subprog_arg_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgKind {
    /// A number.
    Anything,
    Ctx,
    /// Memory of so many bytes.
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
