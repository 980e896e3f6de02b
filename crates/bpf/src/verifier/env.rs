//! The verifier at work: the program, the path being followed, and what has been learned so far.
//!
//! The kernel's `struct bpf_verifier_env`. Each module of the verifier adds the methods of its
//! subject to [`Verifier`].

use crate::btf::Btf;
use crate::errno::Errno;
use crate::insn::Insn;
use crate::program::{Linked, MapDef};

use super::arena::Arena;
use super::facts::{InsnFacts, StackBytes};
use super::log::Log;
use super::reg::{Base, BtfSource, MapRef, Reg, RegType};
use super::rejection::Rejection;
use super::state::{Frame, State};
use super::{Options, Stats};

/// What a step of verification returns.
pub(crate) type Result<T, E = Box<Rejection>> = std::result::Result<T, E>;

/// Direction of a memory access (`enum bpf_access_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// How messages about the stack call it.
    pub(crate) fn on_stack(self) -> &'static str {
        match self {
            Access::Read => " read from",
            Access::Write => " write to",
        }
    }
}

/// The environment of one verification.
pub(crate) struct Verifier<'p> {
    pub(crate) prog: &'p Linked,
    pub(crate) options: &'p Options,
    /// The state of the path being followed.
    pub(crate) cur: State,
    pub(crate) insn_idx: usize,
    pub(crate) prev_insn_idx: usize,
    /// The current instruction has an entry in the path's history.
    pub(crate) history_entry: bool,
    /// By instruction slot.
    pub(crate) aux: Vec<InsnAux>,
    pub(crate) subprogs: Vec<Subprog>,
    /// Explored states, and which of them were taken at which instruction.
    pub(crate) arena: Arena,
    /// Paths still to be followed (`push_stack`).
    pub(crate) pending: Vec<Pending>,
    pub(crate) log: Log,
    pub(crate) stats: Stats,
    /// Loops over several states being explored (see `scc.rs`).
    pub(crate) loops: super::scc::Loops,
    /// Instructions and jumps processed when the last state was kept.
    pub(crate) insns_at_last_state: u64,
    pub(crate) jumps_at_last_state: u64,
    pub(crate) jumps_processed: u64,
    /// The function that runs when the program throws, if it named one.
    pub(crate) exception_callback: Option<usize>,
    /// Special fields of maps and types.
    pub(crate) records: super::call::Records,
    /// Some path may change what the packet says.
    pub(crate) changes_packet: bool,
    /// Where the distance between two packet pointers was computed last, for hints.
    pub(crate) distance_at: Option<usize>,
    /// Likely mistakes, at most one an instruction.
    pub(crate) notes: Vec<super::Note>,
    last_id: u32,
}

/// A path to be followed later.
pub(crate) struct Pending {
    pub(crate) state: State,
    pub(crate) insn_idx: usize,
    pub(crate) prev_insn_idx: usize,
}

/// What the verifier knows of an instruction, over all paths (`struct bpf_insn_aux_data`).
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
    pub(crate) masking: Option<super::speculation::Masking>,
    /// Registers (by bit) that may be read before being written from here on.
    pub(crate) live_regs: u16,
    /// What `Verified` tells about the instruction.
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
    pub(crate) spills: super::fastcall::Spills,
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
    pub(crate) args: Option<super::args::SubprogArgs>,
}

impl Subprog {
    /// Runs on a stack of its own, below no caller.
    pub(crate) fn starts_stack(&self) -> bool {
        self.is_async_callback || self.is_exception_callback
    }
}

impl<'p> Verifier<'p> {
    /// A verifier about to look at the entry function.
    pub(crate) fn new(prog: &'p Linked, options: &'p Options) -> Self {
        Verifier {
            prog,
            options,
            cur: State::new(0),
            insn_idx: 0,
            prev_insn_idx: super::state::NO_INSN,
            history_entry: false,
            aux: vec![InsnAux::default(); prog.insns.len()],
            subprogs: Vec::new(),
            arena: Arena::default(),
            pending: Vec::new(),
            log: Log::new(options.log_level, options.log_bytes_max),
            stats: Stats::default(),
            loops: super::scc::Loops::default(),
            insns_at_last_state: 0,
            jumps_at_last_state: 0,
            jumps_processed: 0,
            exception_callback: None,
            records: super::call::Records::of(prog),
            changes_packet: false,
            distance_at: None,
            notes: Vec::new(),
            last_id: 0,
        }
    }

    /// An id no register has yet.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// The instruction being checked.
    pub(crate) fn insn(&self) -> Insn {
        self.insn_at(self.insn_idx)
    }

    /// The instruction at a slot; an empty one behind the end.
    pub(crate) fn insn_at(&self, idx: usize) -> Insn {
        self.prog.insns.get(idx).copied().unwrap_or_default()
    }

    /// A register of the running frame.
    pub(crate) fn reg(&self, regno: u8) -> &Reg {
        &self.cur.frame().regs[usize::from(regno)]
    }

    /// As [`Verifier::reg`], to be changed.
    pub(crate) fn reg_mut(&mut self, regno: u8) -> &mut Reg {
        &mut self.cur.frame_mut().regs[usize::from(regno)]
    }

    /// The frame a stack pointer points into (`func()` of the kernel).
    pub(crate) fn frame_of(&self, reg: &Reg) -> &Frame {
        let last = self.cur.depth();
        &self.cur.frames[(reg.frame as usize).min(last)]
    }

    /// As [`Verifier::frame_of`], to be changed.
    pub(crate) fn frame_of_mut(&mut self, reg: &Reg) -> &mut Frame {
        let last = self.cur.depth();
        &mut self.cur.frames[(reg.frame as usize).min(last)]
    }

    /// Makes a register an unknown number (`mark_reg_unknown`).
    pub(crate) fn mark_reg_unknown(&mut self, regno: u8) {
        *self.reg_mut(regno) = Reg::UNKNOWN;
    }

    /// Makes a register unreadable (`mark_reg_not_init`).
    pub(crate) fn mark_reg_not_init(&mut self, regno: u8) {
        *self.reg_mut(regno) = Reg::NOT_INIT;
    }

    /// The definition a map reference means.
    pub(crate) fn map_def(&self, map: MapRef) -> Option<&'p MapDef> {
        let def = self.prog.maps.get(map.index as usize)?;
        if map.inner { def.inner.as_deref() } else { Some(def) }
    }

    /// The definition of the map of a map pointer, value or key.
    pub(crate) fn map_of(&self, reg: &Reg) -> Option<&'p MapDef> {
        self.map_def(reg.map()?)
    }

    /// A type table.
    pub(crate) fn btf(&self, source: BtfSource) -> Option<&'p Btf> {
        match source {
            BtfSource::Kernel => Some(&self.prog.kernel_btf),
            BtfSource::Object => self.prog.btf.as_deref(),
        }
    }

    /// Reads of a register (`check_reg_arg(SRC_OP)`).
    pub(crate) fn check_reg_read(&self, regno: u8) -> Result<()> {
        if usize::from(regno) >= crate::insn::REG_COUNT {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} is invalid")));
        }
        if self.reg(regno).is(Base::NotInit) {
            return Err(self.reject_hint(
                Errno::EACCES,
                format!("R{regno} !read_ok"),
                "the register has no value here: on some path it was never set, or a call \
                 destroyed it (calls keep only r6..r9); initialise the variable on every path",
            ));
        }
        Ok(())
    }

    /// Writes to a register (`check_reg_arg(DST_OP)`); `mark` makes it unknown.
    pub(crate) fn check_reg_write(&mut self, regno: u8, mark: bool) -> Result<()> {
        if usize::from(regno) >= crate::insn::REG_COUNT {
            return Err(self.reject(Errno::EINVAL, format!("R{regno} is invalid")));
        }
        if regno == crate::insn::REG_FP {
            return Err(self.reject(Errno::EACCES, "frame pointer is read only"));
        }
        if mark {
            self.mark_reg_unknown(regno);
        }
        Ok(())
    }

    /// Follow a path that starts in `state` later.
    pub(crate) fn push_pending_state(
        &mut self,
        mut state: State,
        insn_idx: usize,
        prev_insn_idx: usize,
    ) -> Result<()> {
        if self.pending.len() >= self.options.pending_max {
            let message =
                format!("The sequence of {} jumps is too complex.", self.pending.len() + 1);
            let hint = "a loop runs so often on one path that too many others wait: give it a \
                        constant bound, or make its body a function for bpf_loop()";
            return Err(self.reject_hint(Errno::E2BIG, message, hint));
        }
        state.branches = 1;
        if let Some(parent) = state.parent {
            self.arena.state_mut(parent).branches += 1;
        }
        self.pending.push(Pending { state, insn_idx, prev_insn_idx });
        Ok(())
    }

    /// A rejection at the current instruction.
    pub(crate) fn reject(&self, errno: Errno, message: impl Into<String>) -> Box<Rejection> {
        self.reject_hint(errno, message, "")
    }

    /// A rejection at the current instruction, with advice.
    pub(crate) fn reject_hint(
        &self,
        errno: Errno,
        message: impl Into<String>,
        hint: &str,
    ) -> Box<Rejection> {
        self.rejection_at(Some(self.insn_idx), errno, message.into(), hint)
    }

    /// A rejection at another instruction.
    pub(crate) fn reject_at(
        &self,
        insn_idx: usize,
        errno: Errno,
        message: impl Into<String>,
    ) -> Box<Rejection> {
        self.rejection_at(Some(insn_idx), errno, message.into(), "")
    }

    /// The program does what no path can do: a defect of the verifier itself.
    pub(crate) fn internal(&self, what: &str) -> Box<Rejection> {
        self.reject(Errno::EFAULT, format!("verifier internal error: {what}"))
    }
}
