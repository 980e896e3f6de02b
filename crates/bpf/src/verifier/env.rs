//! The state of a verification: the program, the path being followed, and the facts learned so far.
//!
//! It corresponds to the kernel's `struct bpf_verifier_env`. Each module of the verifier adds the
//! methods of its subject to [`Verifier`].

use crate::btf::Btf;
use crate::insn::Insn;
use crate::program::{AttachType, Linked, MapDef};

use super::arena::Arena;
use super::call::record::Records;
use super::info::{InsnAux, Subprog};
use super::log::Log;
use super::loops::Loops;
use super::options::{Options, Stats};
use super::reg::{BtfSource, MapRef, Reg};
use super::rejection::{Note, Rejection};
use super::state::{Frame, NO_INSN, State};

/// Result of a step of verification.
pub(crate) type Result<T, E = Box<Rejection>> = std::result::Result<T, E>;

/// Direction of a memory access (`enum bpf_access_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    /// The direction in messages about the stack.
    pub(crate) fn on_stack(self) -> &'static str {
        match self {
            Access::Read => " read from",
            Access::Write => " write to",
        }
    }
}

/// The environment of one verification.
pub(crate) struct Verifier<'p> {
    pub(crate) input: Input<'p>,
    pub(crate) path: Path,
    pub(crate) search: Search,
    pub(crate) learned: Learned,
    pub(crate) log: Log,
    pub(crate) stats: Stats,
    last_id: u32,
}

/// The program and its surroundings, which do not change while it is verified.
pub(crate) struct Input<'p> {
    pub(crate) prog: &'p Linked,
    pub(crate) options: &'p Options,
    /// Special fields of maps and types.
    pub(crate) records: Records,
}

/// The path being followed: its state, and its current instruction.
pub(crate) struct Path {
    pub(crate) cur: State,
    pub(crate) insn_idx: usize,
    pub(crate) prev_insn_idx: usize,
    /// Whether the current instruction has an entry in the path's history.
    pub(crate) history_entry: bool,
}

/// The exploration of the current function: states seen so far, and paths still to follow.
#[derive(Default)]
pub(crate) struct Search {
    /// Explored states, and the list of those at each instruction.
    pub(crate) arena: Arena,
    /// Paths still to be followed (`push_stack`).
    pub(crate) pending: Vec<Pending>,
    /// Loops over several states being explored (see `scc.rs`).
    pub(crate) loops: Loops,
    /// Instructions and jumps processed when the last state was kept.
    pub(crate) insns_at_last_state: u64,
    pub(crate) jumps_at_last_state: u64,
    pub(crate) jumps_processed: u64,
}

/// Facts about the program, gathered over all paths.
#[derive(Default)]
pub(crate) struct Learned {
    /// Facts by instruction slot.
    pub(crate) aux: Vec<InsnAux>,
    pub(crate) subprogs: Vec<Subprog>,
    /// The function that runs if the program throws, if the program has one.
    pub(crate) exception_callback: Option<usize>,
    /// Whether some path may change the packet's contents.
    pub(crate) changes_packet: bool,
    /// Size in bytes of the context that a syscall program accesses (`max_ctx_offset`).
    pub(crate) context_bytes: u32,
    /// Instruction that last computed the distance between two packet pointers, for hints.
    pub(crate) distance_at: Option<usize>,
    /// Likely mistakes, at most one for each instruction.
    pub(crate) notes: Vec<Note>,
}

/// A path to be followed later.
pub(crate) struct Pending {
    pub(crate) state: State,
    pub(crate) insn_idx: usize,
    pub(crate) prev_insn_idx: usize,
}

impl<'p> Verifier<'p> {
    /// A verifier at the start of the entry function.
    pub(crate) fn new(prog: &'p Linked, options: &'p Options) -> Self {
        Verifier {
            input: Input { prog, options, records: Records::of(prog) },
            path: Path {
                cur: State::new(0),
                insn_idx: 0,
                prev_insn_idx: NO_INSN,
                history_entry: false,
            },
            search: Search::default(),
            learned: Learned {
                aux: vec![InsnAux::default(); prog.insns.len()],
                ..Learned::default()
            },
            log: Log::new(options.log_level, options.log_bytes_max),
            stats: Stats::default(),
            last_id: 0,
        }
    }

    /// An id that no register has yet.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Whether users call the program (`BPF_PROG_TYPE_SYSCALL`).
    pub(crate) fn is_syscall(&self) -> bool {
        self.input.prog.attach == AttachType::Syscall
    }

    /// Whether the program itself may sleep: only programs that users call may.
    pub(crate) fn may_sleep(&self) -> bool {
        self.is_syscall()
    }

    /// The instruction being checked.
    pub(crate) fn insn(&self) -> Insn {
        self.insn_at(self.path.insn_idx)
    }

    /// The instruction at a slot; an empty one behind the end.
    pub(crate) fn insn_at(&self, idx: usize) -> Insn {
        self.input.prog.insns.get(idx).copied().unwrap_or_default()
    }

    /// A register of the running frame.
    pub(crate) fn reg(&self, regno: u8) -> &Reg {
        &self.path.cur.frame().regs[usize::from(regno)]
    }

    /// As [`Verifier::reg`], mutable.
    pub(crate) fn reg_mut(&mut self, regno: u8) -> &mut Reg {
        &mut self.path.cur.frame_mut().regs[usize::from(regno)]
    }

    /// The frame that a stack pointer points into (`func()` of the kernel).
    pub(crate) fn frame_of(&self, reg: &Reg) -> &Frame {
        let last = self.path.cur.depth();
        &self.path.cur.frames[(reg.frame as usize).min(last)]
    }

    /// As [`Verifier::frame_of`], mutable.
    pub(crate) fn frame_of_mut(&mut self, reg: &Reg) -> &mut Frame {
        let last = self.path.cur.depth();
        &mut self.path.cur.frames[(reg.frame as usize).min(last)]
    }

    /// Makes a register an unknown number (`mark_reg_unknown`).
    pub(crate) fn mark_reg_unknown(&mut self, regno: u8) {
        *self.reg_mut(regno) = Reg::UNKNOWN;
    }

    /// Makes a register unreadable (`mark_reg_not_init`).
    pub(crate) fn mark_reg_not_init(&mut self, regno: u8) {
        *self.reg_mut(regno) = Reg::NOT_INIT;
    }

    /// The definition that a map reference refers to.
    pub(crate) fn map_def(&self, map: MapRef) -> Option<&'p MapDef> {
        let def = self.input.prog.maps.get(map.index as usize)?;
        if map.inner { def.inner.as_deref() } else { Some(def) }
    }

    /// The definition of the map that a register (map pointer, value or key) refers to.
    pub(crate) fn map_of(&self, reg: &Reg) -> Option<&'p MapDef> {
        self.map_def(reg.map()?)
    }

    /// Types of the kernel, or of the object.
    pub(crate) fn btf(&self, source: BtfSource) -> Option<&'p Btf> {
        match source {
            BtfSource::Kernel => Some(&self.input.prog.kernel_btf),
            BtfSource::Object => self.input.prog.btf.as_deref(),
        }
    }
}
