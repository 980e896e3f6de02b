//! The state of a program at one point of one path: frames, their registers and stacks, and the
//! references and locks that the program holds.

use crate::insn::{REG_COUNT, STACK_BYTES};

use super::reg::{Base, BtfSource, Flags, MapRef, Reg, RegType};
use super::scalar::Scalar;

/// Size of one stack slot, in bytes.
pub(crate) const SLOT_BYTES: usize = 8;
/// Number of slots of one frame.
pub(crate) const SLOT_COUNT: usize = STACK_BYTES / SLOT_BYTES;
/// Largest call depth, the entry function included (`MAX_CALL_FRAMES`).
pub(crate) const FRAME_COUNT_MAX: usize = 8;

/// Content of one byte of the stack (`enum bpf_stack_slot_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotKind {
    /// Never written.
    Invalid,
    /// Part of a spilled register.
    Spill,
    /// Unknown data.
    Misc,
    /// Zero.
    Zero,
    Dynptr,
    Iter,
    Irq,
}

/// Eight bytes of stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StackSlot {
    /// The spilled register, or the state of a dynptr, iterator or saved interrupt flag.
    pub(crate) reg: Reg,
    /// Content of each byte; index 0 is the byte with the highest address (as in the kernel).
    pub(crate) kinds: [SlotKind; SLOT_BYTES],
}

impl StackSlot {
    pub(crate) const EMPTY: StackSlot =
        StackSlot { reg: Reg::NOT_INIT, kinds: [SlotKind::Invalid; SLOT_BYTES] };

    /// Whether it holds a register, spilled with at least its lowest byte (`is_spilled_reg`).
    pub(crate) fn is_spill(&self) -> bool {
        self.kinds[SLOT_BYTES - 1] == SlotKind::Spill
    }

    /// Whether all eight bytes are a spilled register.
    pub(crate) fn is_full_spill(&self) -> bool {
        self.kinds[0] == SlotKind::Spill
    }

    /// Whether it holds a spilled number (`is_spilled_scalar_reg`).
    pub(crate) fn is_scalar_spill(&self) -> bool {
        self.is_spill() && self.reg.is_scalar()
    }

    /// The common kind of dynptr, iterator and interrupt slots, which fill all eight bytes.
    pub(crate) fn special(&self) -> Option<SlotKind> {
        let kind = self.kinds[SLOT_BYTES - 1];
        matches!(kind, SlotKind::Dynptr | SlotKind::Iter | SlotKind::Irq).then_some(kind)
    }

    /// Makes every byte `kind` and forgets the register.
    pub(crate) fn fill(&mut self, kind: SlotKind) {
        *self = StackSlot { reg: Reg::NOT_INIT, kinds: [kind; SLOT_BYTES] };
    }
}

/// One activation of a function (`struct bpf_func_state`).
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) regs: [Reg; REG_COUNT],
    /// Slot `i` holds bytes `fp-8*(i+1) .. fp-8*i`; as long as the deepest slot used.
    pub(crate) stack: Vec<StackSlot>,
    /// The calling instruction; `usize::MAX` for the entry function.
    pub(crate) callsite: usize,
    pub(crate) subprog: usize,
    /// Whether it was called by a helper or kfunc, not by a call instruction.
    pub(crate) in_callback: bool,
    pub(crate) in_async_callback: bool,
    pub(crate) in_exception_callback: bool,
    /// Number that distinguishes entries into async callbacks.
    pub(crate) async_entry_count: u32,
    /// Smallest and largest value that a callback may return.
    pub(crate) callback_ret_range: (i32, i32),
    /// Number of calls of the callback in the state of its caller.
    pub(crate) callback_depth: u32,
    /// Slots (by bit) read by the paths below this state before being written.
    pub(crate) stack_read: u64,
    /// Slots (by bit) fully written since the parent state.
    pub(crate) stack_written: u64,
}

impl Frame {
    /// A frame at a call: only the frame pointer is set.
    pub(crate) fn new(depth: usize, callsite: usize, subprog: usize) -> Self {
        let mut regs = [Reg::NOT_INIT; REG_COUNT];
        regs[REG_COUNT - 1] = Reg {
            kind: RegType::new(Base::Stack, Flags::NONE),
            var: Scalar::constant(0),
            frame: depth as u32,
            ..Reg::NOT_INIT
        };
        Frame {
            regs,
            stack: Vec::new(),
            callsite,
            subprog,
            in_callback: false,
            in_async_callback: false,
            in_exception_callback: false,
            async_entry_count: 0,
            callback_ret_range: (0, 0),
            callback_depth: 0,
            stack_read: 0,
            // A new frame has no reads to report to its parent state.
            stack_written: u64::MAX,
        }
    }

    /// The slot, if the stack was used to that depth.
    pub(crate) fn slot(&self, spi: usize) -> Option<&StackSlot> {
        self.stack.get(spi)
    }

    /// Makes the stack at least `slots` deep (`grow_stack_state`); at most [`SLOT_COUNT`].
    pub(crate) fn grow_stack(&mut self, slots: usize) {
        let wanted = slots.min(SLOT_COUNT);
        if self.stack.len() < wanted {
            self.stack.resize(wanted, StackSlot::EMPTY);
        }
    }

    /// Registers, then spilled registers.
    pub(crate) fn all_regs(&self) -> impl Iterator<Item = &Reg> {
        let spilled = self.stack.iter().filter(|slot| slot.is_spill()).map(|slot| &slot.reg);
        self.regs.iter().chain(spilled)
    }

    /// As [`Frame::all_regs`], mutable (`bpf_for_each_reg_in_vstate`).
    pub(crate) fn all_regs_mut(&mut self) -> impl Iterator<Item = &mut Reg> {
        let spilled =
            self.stack.iter_mut().filter(|slot| slot.is_spill()).map(|slot| &mut slot.reg);
        self.regs.iter_mut().chain(spilled)
    }
}

/// Kind of a held resource (`enum ref_state_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefKind {
    /// A pointer that must be released.
    Ptr,
    /// A saved interrupt state.
    Irq,
    /// A `bpf_spin_lock`.
    Lock,
    ResLock,
    ResLockIrq,
}

impl RefKind {
    /// Whether it is a spin lock of any sort.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, RefKind::Lock | RefKind::ResLock | RefKind::ResLockIrq)
    }
}

/// The object that contains a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockOwner {
    None,
    Map(MapRef),
    Btf(BtfSource),
}

/// One held resource (`struct bpf_reference_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ref {
    pub(crate) kind: RefKind,
    pub(crate) id: u32,
    /// Instruction that acquired it.
    pub(crate) insn_idx: usize,
    /// For locks: the object that contains it.
    pub(crate) owner: LockOwner,
}

/// All resources that are held at one point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refs {
    /// Resources in the order of acquisition.
    pub(crate) list: Vec<Ref>,
    pub(crate) active_locks: u32,
    pub(crate) active_preempt_locks: u32,
    /// Depth of `bpf_rcu_read_lock`.
    pub(crate) active_rcu_locks: u32,
    /// The innermost saved interrupt state (0: none).
    pub(crate) active_irq_id: u32,
    /// The innermost lock.
    pub(crate) active_lock_id: u32,
    pub(crate) active_lock_owner: LockOwner,
}

impl Default for Refs {
    fn default() -> Self {
        Refs {
            list: Vec::new(),
            active_locks: 0,
            active_preempt_locks: 0,
            active_rcu_locks: 0,
            active_irq_id: 0,
            active_lock_id: 0,
            active_lock_owner: LockOwner::None,
        }
    }
}

/// Index of an explored state in the arena.
pub(crate) type StateId = usize;

/// One step of a path that can't be inferred from the program text (`bpf_jmp_history_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryEntry {
    pub(crate) idx: usize,
    pub(crate) prev_idx: usize,
    /// The instruction accessed the stack at this frame and slot.
    pub(crate) stack_access: Option<(u8, u8)>,
    /// The operands of a comparison were stack pointers, which precision doesn't follow.
    pub(crate) dst_is_stack: bool,
    pub(crate) src_is_stack: bool,
    /// Scalars refined together at a conditional jump.
    pub(crate) linked: LinkedRegs,
}

impl HistoryEntry {
    /// Arrival at `idx` from `prev_idx`.
    pub(crate) fn jump(idx: usize, prev_idx: usize) -> Self {
        HistoryEntry {
            idx,
            prev_idx,
            stack_access: None,
            dst_is_stack: false,
            src_is_stack: false,
            linked: LinkedRegs::default(),
        }
    }
}

/// Index that stands for "before the first instruction".
pub(crate) const NO_INSN: usize = usize::MAX;

/// Up to six registers or slots linked by id at a conditional jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LinkedRegs {
    pub(crate) count: u8,
    pub(crate) items: [LinkedReg; LINKED_REGS_MAX],
}

impl LinkedRegs {
    /// The first of `linked` that fit.
    pub(crate) fn first_of(linked: &[LinkedReg]) -> Self {
        let mut kept = LinkedRegs::default();
        for (item, from) in kept.items.iter_mut().zip(linked) {
            *item = *from;
            kept.count += 1;
        }
        kept
    }
}

/// The kernel's `LINKED_REGS_MAX`.
pub(crate) const LINKED_REGS_MAX: usize = 6;

/// One of [`LinkedRegs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct LinkedReg {
    pub(crate) frame: u8,
    /// Register number or slot index.
    pub(crate) index: u8,
    pub(crate) is_reg: bool,
}

/// The state at one point of one path (`struct bpf_verifier_state`).
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Frames, outermost first; never empty.
    pub(crate) frames: Vec<Frame>,
    pub(crate) refs: Refs,
    /// The checkpoint from which this path continued.
    pub(crate) parent: Option<StateId>,
    /// Number of paths from this state that are not yet followed to their end.
    pub(crate) branches: u32,
    /// Instruction of the state (explored states only).
    pub(crate) insn_idx: usize,
    /// First and last instruction of the segment since the parent.
    pub(crate) first_insn_idx: usize,
    pub(crate) last_insn_idx: usize,
    pub(crate) history: Vec<HistoryEntry>,
    pub(crate) callback_unroll_depth: u32,
    pub(crate) may_goto_depth: u32,
    pub(crate) dfs_depth: u32,
    pub(crate) in_sleepable: bool,
    /// Whether dead registers and slots have been removed.
    pub(crate) cleaned: bool,
}

impl State {
    /// The state at the start of `subprog`, with only a frame pointer.
    pub(crate) fn new(subprog: usize) -> Self {
        State {
            frames: vec![Frame::new(0, usize::MAX, subprog)],
            refs: Refs::default(),
            parent: None,
            branches: 1,
            insn_idx: 0,
            first_insn_idx: 0,
            last_insn_idx: NO_INSN,
            history: Vec::new(),
            callback_unroll_depth: 0,
            may_goto_depth: 0,
            dfs_depth: 0,
            in_sleepable: false,
            cleaned: false,
        }
    }

    /// Index of the running frame.
    pub(crate) fn depth(&self) -> usize {
        self.frames.len() - 1
    }

    /// The running frame.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    /// The running frame, mutable.
    pub(crate) fn frame_mut(&mut self) -> &mut Frame {
        let depth = self.depth();
        &mut self.frames[depth]
    }

    /// Every register and spilled register of every frame.
    pub(crate) fn all_regs(&self) -> impl Iterator<Item = &Reg> {
        self.frames.iter().flat_map(Frame::all_regs)
    }

    /// As [`State::all_regs`], mutable.
    pub(crate) fn all_regs_mut(&mut self) -> impl Iterator<Item = &mut Reg> {
        self.frames.iter_mut().flat_map(Frame::all_regs_mut)
    }

    /// The slot `spi` of a frame, if it was ever used.
    pub(crate) fn slot(&self, frame: usize, spi: usize) -> Option<&StackSlot> {
        self.frames.get(frame)?.stack.get(spi)
    }

    /// The current instruction of a frame: its own, or the call it waits for.
    pub(crate) fn frame_insn(&self, frame: usize) -> usize {
        self.frames.get(frame + 1).map_or(self.insn_idx, |callee| callee.callsite)
    }
}

/// Index into [`StackSlot::kinds`] of the byte at a negative offset.
pub(crate) fn kind_index(off: i64) -> usize {
    ((-off - 1) % SLOT_BYTES as i64) as usize
}

/// The byte offset from the frame pointer as a slot index, for a negative offset.
pub(crate) fn slot_index(off: i64) -> usize {
    ((-off - 1) / SLOT_BYTES as i64) as usize
}
