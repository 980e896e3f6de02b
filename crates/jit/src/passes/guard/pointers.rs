//! Facts about an address from its computation in the program, independent of the verifier.

use super::super::{definition, definitions};
use crate::xir::{
    Arg, BinaryOp, Block, CtxField, Dominators, Function, Inst, MapMeta, Op, RuntimeFunction, Type,
    UnaryOp, Value,
};

/// Origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Origin {
    /// Result of a lookup in a hash table, or null.
    Lookup(u32),
    /// The running worker's part of a lookup's result, with this number of bytes for each worker;
    /// or null.
    Percpu(u32, u64),
    /// Null.
    Null,
    /// An offset from the frame pointer.
    Stack(i64),
    /// An offset in the value of a map of one entry.
    Value(u32, i64),
    /// Unknown.
    Unknown,
}

pub(super) struct Pointers<'a> {
    function: &'a Function,
    definitions: Vec<Option<Inst>>,
    /// Arguments of jumps, by parameter.
    incoming: Vec<Vec<Value>>,
}

impl<'a> Pointers<'a> {
    pub(super) fn new(function: &'a Function, dominators: &Dominators) -> Self {
        let mut incoming = vec![Vec::new(); function.values.len()];
        for &block in dominators.order() {
            for jump in function.block(block).end.jumps() {
                let params = &function.block(jump.target).params;
                for (param, arg) in params.iter().zip(&jump.args) {
                    incoming[param.0 as usize].push(*arg);
                }
            }
        }
        let definitions = definitions(function, dominators);
        Pointers { function, definitions, incoming }
    }

    pub(super) fn op(&self, value: Value) -> Option<&'a Op> {
        definition(self.function, &self.definitions, value)
    }

    pub(super) fn constant(&self, value: Value) -> Option<i64> {
        match self.op(value)? {
            Op::Const(constant) if self.function.ty(value) == Type::I64 => Some(*constant as i64),
            _ => None,
        }
    }

    /// A value as a base and a constant offset.
    pub(super) fn root(&self, mut value: Value) -> (Value, i64) {
        let mut offset = 0i64;
        for _ in 0..STEPS_MAX {
            let Some(Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b)) = self.op(value)
            else {
                break;
            };
            let (inner, by) = match (op, self.constant(*a), self.constant(*b)) {
                (BinaryOp::Add, _, Some(by)) => (*a, by),
                (BinaryOp::Add, Some(by), _) => (*b, by),
                (BinaryOp::Sub, _, Some(by)) => (*a, by.wrapping_neg()),
                _ => break,
            };
            if by.unsigned_abs() > DISTANCE_MAX || offset.unsigned_abs() > DISTANCE_MAX {
                break;
            }
            (value, offset) = (inner, offset + by);
        }
        (value, offset)
    }

    pub(super) fn origin(&self, value: Value) -> Origin {
        self.origin_among(value, &mut Vec::new()).unwrap_or(Origin::Unknown)
    }

    /// The origin; `None` if it depends only on values that are being examined already.
    fn origin_among(&self, value: Value, seen: &mut Vec<Value>) -> Option<Origin> {
        if seen.contains(&value) {
            return None;
        }
        if seen.len() >= STEPS_MAX {
            return Some(Origin::Unknown);
        }
        seen.push(value);
        let Some(op) = self.op(value) else {
            let args = &self.incoming[value.0 as usize];
            if args.is_empty() {
                return Some(Origin::Unknown);
            }
            let found: Vec<Origin> =
                args.iter().filter_map(|arg| self.origin_among(*arg, seen)).collect();
            return found.into_iter().reduce(both);
        };
        Some(match op {
            Op::Const(0) => Origin::Null,
            Op::StackAddr(offset) => Origin::Stack(i64::from(*offset)),
            Op::MapValueAddr { map, offset } => Origin::Value(*map, i64::from(*offset)),
            Op::MapLookup { map, .. } => Origin::Lookup(*map),
            Op::CallRuntime { function: RuntimeFunction::HashLookup { .. }, args } => {
                self.found_in(args.first())
            }
            Op::CallRuntime {
                function: RuntimeFunction::MapLookup | RuntimeFunction::TrieLookup { .. },
                args,
            }
            | Op::CallHelper { id: towpath_bpf::proto::id::MAP_LOOKUP_ELEM, args } => {
                self.found_in(args.first())
            }
            // If nothing was found, this is never used: null is selected, or branched on.
            Op::Binary(BinaryOp::Add, a, b) => match self.origin_among(*a, seen)? {
                Origin::Lookup(map) => {
                    self.by_worker(*b).map_or(Origin::Unknown, |by| Origin::Percpu(map, by))
                }
                _ => Origin::Unknown,
            },
            Op::Select(_, a, b) => {
                let (a, b) = (self.origin_among(*a, seen), self.origin_among(*b, seen));
                match (a, b) {
                    (Some(a), Some(b)) => both(a, b),
                    (Some(one), None) | (None, Some(one)) => one,
                    (None, None) => return None,
                }
            }
            _ => Origin::Unknown,
        })
    }

    /// The constant that the running worker's number is multiplied with.
    fn by_worker(&self, value: Value) -> Option<u64> {
        let is_worker = |value: Value| match self.op(value) {
            Some(Op::Unary(UnaryOp::Zext, number)) => {
                matches!(self.op(*number), Some(Op::WorkerId))
            }
            _ => false,
        };
        match self.op(value)? {
            Op::Binary(BinaryOp::Mul, number, by) if is_worker(*number) => {
                u64::try_from(self.constant(*by)?).ok()
            }
            Op::Binary(BinaryOp::Shl, number, by) if is_worker(*number) => {
                1u64.checked_shl(u32::try_from(self.constant(*by)?).ok()?)
            }
            _ => None,
        }
    }

    fn found_in(&self, table: Option<&Arg>) -> Origin {
        let Some(Arg::Value(table)) = table else { return Origin::Unknown };
        match self.op(*table) {
            Some(Op::MapMetaAddr { map, what: MapMeta::HashView } | Op::MapRef(map)) => {
                Origin::Lookup(*map)
            }
            _ => Origin::Unknown,
        }
    }

    /// Whether a value is `data` or `data_meta` plus numbers of 32 bits: it can't lie in front of
    /// the packet.
    pub(super) fn is_behind_start(&self, value: Value) -> bool {
        self.behind(value, &mut Vec::new())
    }

    fn behind(&self, value: Value, seen: &mut Vec<Value>) -> bool {
        if seen.contains(&value) {
            return true;
        }
        if seen.len() >= STEPS_MAX {
            return false;
        }
        seen.push(value);
        match self.op(value) {
            None => {
                let args = &self.incoming[value.0 as usize];
                !args.is_empty() && args.iter().all(|arg| self.behind(*arg, seen))
            }
            Some(Op::CtxLoad(CtxField::Data | CtxField::DataMeta)) => true,
            Some(Op::Binary(BinaryOp::Add, a, b)) => {
                let (a, b) = (*a, *b);
                (self.is_small(b) && self.behind(a, seen))
                    || (self.is_small(a) && self.behind(b, seen))
            }
            _ => false,
        }
    }

    /// Whether a value is from 0 to 2^32 - 1, so that no sum that a budget allows wraps.
    fn is_small(&self, value: Value) -> bool {
        match self.op(value) {
            Some(Op::Const(constant)) => *constant <= u64::from(u32::MAX),
            Some(Op::Unary(UnaryOp::Zext, _)) => true,
            Some(Op::Binary(BinaryOp::And, a, b)) => {
                let low = |v: &Value| self.constant(*v).is_some_and(|c| (0..1 << 32).contains(&c));
                low(a) || low(b)
            }
            _ => false,
        }
    }

    /// Whether a value is `data_end`, or `data`, which lies before it.
    pub(super) fn is_end(&self, value: Value) -> bool {
        matches!(self.op(value), Some(Op::CtxLoad(CtxField::DataEnd | CtxField::Data)))
    }

    /// The instructions of a block.
    pub(super) fn ops(&self, block: Block) -> impl Iterator<Item = (usize, &'a Op)> {
        let function = self.function;
        let insts = function.block(block).insts.iter();
        insts.enumerate().map(move |(position, &inst)| (position, &function.inst(inst).op))
    }
}

fn both(a: Origin, b: Origin) -> Origin {
    match (a, b) {
        (a, b) if a == b => a,
        (Origin::Null, found @ (Origin::Lookup(_) | Origin::Percpu(..)))
        | (found @ (Origin::Lookup(_) | Origin::Percpu(..)), Origin::Null) => found,
        _ => Origin::Unknown,
    }
}

/// Largest number of values to examine for one answer.
const STEPS_MAX: usize = 64;
/// Largest constant that counts as an offset.
const DISTANCE_MAX: u64 = 1 << 30;
