//! Redirect calls whose effect is known when code is made: all that is left of them is to write
//! where the frame goes. Both tiers ask here what that is, and where the slots of tail calls are.

use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_maps::Layout;

use crate::environment::Environment;
use crate::xir::{Arg, Function, Op, RuntimeFunction, Value};

/// What a redirect call does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Redirect {
    /// To an interface.
    Interface { ifindex: Value },
    /// To an entry of a map: one of so many side by side, or one in a table. A miss forgets an
    /// earlier redirect and returns `action`.
    Entry { map: u32, entries: Option<u32>, key: Value, action: u64 },
    /// Into a queue, by a rank: whether that fits is found out when the frame comes.
    Queue { map: u32, rank: Value },
    /// To all entries of a map.
    Broadcast { map: u32, exclude_ingress: bool },
}

/// The slot of a tail call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// The program array.
    pub(crate) map: u32,
    /// How many slots it has.
    pub(crate) entries: u32,
    /// Whether the index is known, and below that.
    pub(crate) is_inside: bool,
}

/// The program's maps as targets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Targets {
    maps: Vec<Kind>,
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Number of entries, where they are words side by side.
    entries: Option<u32>,
    /// Entries are found in a table.
    is_table: bool,
    /// Frames can go to all of them.
    broadcasts: bool,
    /// It is a queue.
    is_queue: bool,
    /// Number of slots of a program array.
    slots: Option<u32>,
}

impl Targets {
    pub(crate) fn of(environment: &Environment<'_>) -> Self {
        let maps = environment.maps.iter().map(|map| Kind {
            entries: match map.layout() {
                Some(Layout::Targets { entries, .. }) => Some(entries),
                _ => None,
            },
            is_table: map.kind() == MapType::DevmapHash,
            broadcasts: map.kind().values() == Values::Device,
            is_queue: map.kind().values() == Values::Packets,
            slots: match map.layout() {
                Some(Layout::Programs { entries, .. }) => Some(entries),
                _ => None,
            },
        });
        Targets { maps: maps.collect() }
    }

    /// What a call does, if it is a redirect that needs nothing of the runtime. `is_own`: the
    /// function runs only for frames of the program's own bursts; in others, which tail calls and
    /// callbacks lead to, maps have other numbers.
    pub(crate) fn redirect(
        &self,
        function: &Function,
        callee: RuntimeFunction,
        args: &[Arg],
        is_own: bool,
    ) -> Option<Redirect> {
        let value = |number: usize| match args.get(number) {
            Some(Arg::Value(value)) => Some(*value),
            _ => None,
        };
        let constant = |value: Value| match op_of(function, value)? {
            Op::Const(constant) => Some(*constant),
            _ => None,
        };
        match callee {
            RuntimeFunction::Redirect if constant(value(1)?) == Some(0) => {
                Some(Redirect::Interface { ifindex: value(0)? })
            }
            RuntimeFunction::RedirectMap if is_own => {
                let Op::MapRef(map) = *op_of(function, value(0)?)? else { return None };
                self.by_map(map, value(1)?, constant(value(2)?)?)
            }
            _ => None,
        }
    }

    /// What a tail call through `map` looks at, when the map is known.
    pub(crate) fn slot(&self, function: &Function, map: Value, index: Value) -> Option<Slot> {
        let Op::MapRef(map) = *op_of(function, map)? else { return None };
        let entries = self.maps.get(map as usize)?.slots?;
        let is_inside = match op_of(function, index) {
            Some(Op::Const(index)) => *index < u64::from(entries),
            _ => false,
        };
        Some(Slot { map, entries, is_inside })
    }

    fn by_map(&self, map: u32, key: Value, flags: u64) -> Option<Redirect> {
        let kind = self.maps.get(map as usize)?;
        if kind.is_queue {
            return (flags <= ACTION_MASK).then_some(Redirect::Queue { map, rank: key });
        }
        if flags <= ACTION_MASK {
            let entry = Redirect::Entry { map, entries: kind.entries, key, action: flags };
            return (kind.is_table || kind.entries.is_some()).then_some(entry);
        }
        let is_broadcast = kind.broadcasts
            && flags & BROADCAST != 0
            && flags & !(ACTION_MASK | BROADCAST | EXCLUDE_INGRESS) == 0;
        let exclude_ingress = flags & EXCLUDE_INGRESS != 0;
        is_broadcast.then_some(Redirect::Broadcast { map, exclude_ingress })
    }
}

/// What makes a value; redirect calls are too few for a table.
fn op_of(function: &Function, value: Value) -> Option<&Op> {
    let mut insts = function.blocks.iter().flat_map(|block| &block.insts);
    let inst = insts.find(|&&inst| function.inst(inst).result == Some(value))?;
    Some(&function.inst(*inst).op)
}

/// What the calls return.
pub(crate) const XDP_REDIRECT: u64 = 4;
/// Flags that name what a miss returns (`BPF_F_ACTION_MASK`).
const ACTION_MASK: u64 = 3;
/// `BPF_F_BROADCAST`
const BROADCAST: u64 = 1 << 3;
/// `BPF_F_EXCLUDE_INGRESS`
const EXCLUDE_INGRESS: u64 = 1 << 4;
