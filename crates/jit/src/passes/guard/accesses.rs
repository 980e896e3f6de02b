//! Checks in front of accesses, unless an access is known to be valid.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_bpf::insn::STACK_BYTES;
use towpath_bpf::map::flags::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};
use towpath_bpf::map::{MapType, Shape, Values};
use towpath_bpf::proto;
use towpath_maps::{Layout, Map};

use super::super::Context;
use super::Writer;
use super::facts::{Area, Facts, Range};
use super::pointers::{Origin, Pointers};
use crate::xir::{
    Alias, BinaryOp, Block, Cond, CtxField, Dominators, Function, Need, Op, Place, Type, Value,
};

pub(super) fn check(function: &mut Function, context: Context<'_>) {
    let dominators = Dominators::new(function);
    let plans = plan(function, &dominators, context);
    for &block in dominators.order() {
        let Some(checks) = plans.get(&block) else { continue };
        let end = function.block(block).end.clone();
        let (mut writer, old) = Writer::new(function, block);
        let mut checks = checks.iter().peekable();
        for (position, inst) in old.into_iter().enumerate() {
            writer.origin = writer.function.inst(inst).origin;
            while let Some(check) = checks.next_if(|check| check.position == position) {
                check.write(&mut writer);
            }
            writer.insts.push(inst);
        }
        writer.finish(end);
    }
}

/// A check in front of an instruction.
struct Check {
    position: usize,
    root: Value,
    range: Range,
    need: Need,
    quick: Quick,
}

/// The comparison that usually suffices.
#[derive(Clone, Copy)]
enum Quick {
    /// A comparison with the packet's bounds; with its end alone if the start is known to be below.
    Packet { start: bool },
    /// A comparison with an array's memory of this number of bytes.
    Map(u32, u64),
    /// A comparison with the function's frame.
    Stack,
    /// A test for null: the address is the result of a lookup.
    NotNull,
    /// No comparison: the runtime checks.
    None,
}

/// Requirements of an instruction.
struct Access {
    place: Place,
    need: Need,
}

fn access(op: &Op) -> Option<Access> {
    let (place, need) = match op {
        Op::Load { place, probe: false } => (*place, Need::Read),
        Op::Store { place, .. } => (*place, Need::Write),
        Op::AtomicRmw { place, .. }
        | Op::CompareExchange { place, .. }
        | Op::StoreRelease { place, .. } => (*place, Need::Atomic),
        Op::LoadAcquire(place) => (*place, Need::Read),
        _ => return None,
    };
    Some(Access { place, need })
}

fn plan(
    function: &Function,
    dominators: &Dominators,
    context: Context<'_>,
) -> HashMap<Block, Vec<Check>> {
    let pointers = Pointers::new(function, dominators);
    let mut moving = vec![false; function.blocks.len()];
    for &block in dominators.order() {
        moving[block.0 as usize] = pointers.ops(block).any(|(_, op)| moves_packet(op));
    }
    let facts = Facts::new(function, dominators, &moving);
    let mut planner = Planner { pointers, dominators, context, facts };
    let mut plans = HashMap::new();
    for &block in dominators.order() {
        planner.facts.enter(function, dominators, &planner.pointers, block);
        let checks = planner.block(block);
        if !checks.is_empty() {
            plans.insert(block, checks);
        }
    }
    plans
}

fn is_call(op: &Op) -> bool {
    matches!(op, Op::CallHelper { .. } | Op::CallKfunc { .. } | Op::Call { .. })
}

/// Whether the packet's bounds may change at an instruction.
fn moves_packet(op: &Op) -> bool {
    match op {
        Op::CallHelper { id, .. } => proto::helper(*id).is_none_or(|proto| {
            proto.changes_packet || proto.args.iter().any(|arg| arg.kind == proto::ArgKind::Func)
        }),
        Op::CallKfunc { .. } | Op::Call { .. } => true,
        _ => false,
    }
}

struct Planner<'a> {
    pointers: Pointers<'a>,
    dominators: &'a Dominators,
    context: Context<'a>,
    facts: Facts,
}

impl Planner<'_> {
    fn block(&mut self, block: Block) -> Vec<Check> {
        let mut checks: Vec<Check> = Vec::new();
        let ops: Vec<(usize, &Op)> = self.pointers.ops(block).collect();
        // Up to the next call, one check serves all accesses around an address.
        for part in ops.split_inclusive(|(_, op)| is_call(op)) {
            for (index, (position, op)) in part.iter().enumerate() {
                let Some(access) = access(op) else { continue };
                if let Some(check) = self.check(block, *position, &access, &part[index..]) {
                    checks.push(check);
                }
            }
            let Some((_, last)) = part.last() else { continue };
            if is_call(last) {
                self.facts.called(block, moves_packet(last));
            }
        }
        checks
    }

    fn check(
        &mut self,
        block: Block,
        position: usize,
        access: &Access,
        rest: &[(usize, &Op)],
    ) -> Option<Check> {
        let (root, range) = self.range(access.place);
        let (area, quick) = self.quick(root, range, access)?;
        let covers = |known: Range| known.0 <= range.0 && range.1 <= known.1;
        let find = |area| self.facts.find(self.dominators, block, root, area);
        let known = match area {
            // Writable memory is readable.
            Area::Any { write: false } => {
                let written = find(Area::Any { write: true }).filter(|&known| covers(known));
                written.or_else(|| find(area))
            }
            _ => find(area),
        };
        let atomic = access.need == Need::Atomic;
        if !atomic && known.is_some_and(covers) {
            return None;
        }
        let mut whole = range;
        let mut need = access.need;
        if !atomic && area != Area::NotNull {
            for other in rest.iter().filter_map(|(_, op)| self::access(op)) {
                let (other_root, (low, high)) = self.range(other.place);
                let near = low.min(whole.0).abs_diff(high.max(whole.1)) <= SPAN_MAX;
                let same = other_root == root && other.place.alias == access.place.alias;
                let same = same && (other.need == access.need || area.is_all_writable());
                if same && near && other.need != Need::Atomic {
                    whole = (whole.0.min(low), whole.1.max(high));
                    need = if other.need == Need::Write { Need::Write } else { need };
                }
            }
        }
        let quick = match quick {
            Quick::Packet { .. } => {
                Quick::Packet { start: !self.is_behind(block, root, whole, known) }
            }
            other => other,
        };
        self.facts.add(block, root, area, whole);
        Some(Check { position, root, range: whole, need, quick })
    }

    fn range(&self, place: Place) -> (Value, Range) {
        let (root, offset) = self.pointers.root(place.base);
        let low = offset + i64::from(place.offset);
        (root, (low, low + i64::from(place.width.bytes())))
    }

    /// Whether the start of a range is known to be inside the packet.
    fn is_behind(&self, block: Block, root: Value, range: Range, known: Option<Range>) -> bool {
        let above = |limit: Range| limit.0 <= range.0;
        let computed = !self.facts.may_have_moved(block)
            && range.0 >= 0
            && self.pointers.is_behind_start(root);
        computed || known.is_some_and(above)
    }

    /// The area and the comparison for an access. `None` if it needs no check.
    fn quick(&self, root: Value, range: Range, access: &Access) -> Option<(Area, Quick)> {
        let any = Area::Any { write: access.need != Need::Read };
        match access.place.alias {
            Alias::Ctx | Alias::MapMeta(_) => return None,
            Alias::Packet => return Some((Area::Packet, Quick::Packet { start: true })),
            Alias::Stack => return self.stack(root, range, any),
            // Its address was computed so that it cannot leave the arena's memory.
            Alias::Map(map) if self.is_arena(map) => return None,
            Alias::Map(_) | Alias::Other => {}
        }
        match (self.pointers.origin(root), access.place.alias) {
            (Origin::Stack(_), _) => self.stack(root, range, any),
            (Origin::Lookup(map), _) if self.fits(map, range) && self.allows(map) => {
                Some((Area::NotNull, Quick::NotNull))
            }
            (Origin::Percpu(map, by), _)
                if self.percpu_stride(map) == Some(by)
                    && self.fits(map, range)
                    && self.allows(map) =>
            {
                Some((Area::NotNull, Quick::NotNull))
            }
            (Origin::Value(map, at), _)
                if self.fits(map, (range.0 + at, range.1 + at)) && self.allows(map) =>
            {
                None
            }
            (_, Alias::Map(map)) => match self.array_bytes(map) {
                Some(bytes) => Some((Area::Map(map), Quick::Map(map, bytes))),
                None => Some((any, Quick::None)),
            },
            // Usually a key that lies in the packet; the runtime handles all other cases.
            _ => Some((any, Quick::Packet { start: true })),
        }
    }

    fn stack(&self, root: Value, (low, high): Range, any: Area) -> Option<(Area, Quick)> {
        match self.pointers.op(root) {
            Some(Op::StackAddr(at)) => {
                let at = i64::from(*at);
                let inside = at + low >= -(STACK_BYTES as i64) && at + high <= 0;
                if inside { None } else { Some((any, Quick::None)) }
            }
            _ => Some((Area::Stack, Quick::Stack)),
        }
    }

    fn fits(&self, map: u32, (low, high): Range) -> bool {
        let map = self.context.maps.get(map as usize);
        let fits = |map: &Arc<Map>| high <= i64::from(map.value_size()) && has_values(map.kind());
        low >= 0 && map.is_some_and(fits)
    }

    fn is_arena(&self, map: u32) -> bool {
        self.context.maps.get(map as usize).is_some_and(|map| map.kind().values() == Values::Pages)
    }

    /// Whether programs may read and write the map's values, so that no rule forbids the access.
    fn allows(&self, map: u32) -> bool {
        let map = self.context.maps.get(map as usize);
        map.is_some_and(|map| map.def().flags & PROGRAM_ACCESS == 0)
    }

    /// Bytes from one worker's part of a value to the next one's, in a hash table.
    fn percpu_stride(&self, map: u32) -> Option<u64> {
        match self.context.maps.get(map as usize)?.layout()? {
            Layout::Hash { percpu: Some((_, _, stride)), .. } => Some(stride),
            _ => None,
        }
    }

    /// Size in bytes of all values of an array, which are contiguous.
    fn array_bytes(&self, map: u32) -> Option<u64> {
        let found = self.context.maps.get(map as usize)?;
        let plain = found.kind().spec().shape == Shape::Array;
        match found.layout()? {
            Layout::Array { entries, stride, cpu_stride, .. } if plain && self.allows(map) => {
                let cpus = found.cpus().max(1) as u64;
                let one = stride.checked_mul(entries.into())?;
                if cpu_stride == 0 { Some(one) } else { cpu_stride.checked_mul(cpus) }
            }
            _ => None,
        }
    }
}

impl Check {
    fn write(&self, writer: &mut Writer<'_>) {
        let (low, high) = self.range;
        let bytes = (high - low) as u64;
        let address = offset(writer, self.root, low);
        let mut fine = match self.quick {
            Quick::Packet { start } => packet(writer, address, bytes, start),
            Quick::Map(map, size) => {
                let first = writer.value(Type::I64, Op::MapValueAddr { map, offset: 0 });
                below(writer, address, first, size, bytes)
            }
            Quick::Stack => {
                let lowest = Op::StackAddr(-(STACK_BYTES as i16));
                let lowest = writer.value(Type::I64, lowest);
                below(writer, address, lowest, STACK_BYTES as u64, bytes)
            }
            Quick::NotNull => {
                let null = writer.constant(0);
                writer.value(Type::I32, Op::Compare(Cond::Ne, self.root, null))
            }
            Quick::None => writer.value(Type::I32, Op::Const(0)),
        };
        if self.need == Need::Atomic {
            let mask = writer.constant(bytes - 1);
            let rest = writer.value(Type::I64, Op::Binary(BinaryOp::And, address, mask));
            let zero = writer.constant(0);
            let aligned = writer.value(Type::I32, Op::Compare(Cond::Eq, rest, zero));
            fine = writer.value(Type::I32, Op::Binary(BinaryOp::And, fine, aligned));
        }
        writer.guard(fine, address, bytes as u32, self.need);
    }
}

fn offset(writer: &mut Writer<'_>, root: Value, by: i64) -> Value {
    if by == 0 {
        return root;
    }
    let by = writer.constant(by as u64);
    writer.value(Type::I64, Op::Binary(BinaryOp::Add, root, by))
}

/// `data_meta <= address && address <= data_end - bytes`: neither side can wrap around.
fn packet(writer: &mut Writer<'_>, address: Value, bytes: u64, start: bool) -> Value {
    let end = writer.value(Type::I64, Op::CtxLoad(CtxField::DataEnd));
    let size = writer.constant(bytes);
    let last = writer.value(Type::I64, Op::Binary(BinaryOp::Sub, end, size));
    let fine = writer.value(Type::I32, Op::Compare(Cond::Ule, address, last));
    if !start {
        return fine;
    }
    let meta = writer.value(Type::I64, Op::CtxLoad(CtxField::DataMeta));
    let behind = writer.value(Type::I32, Op::Compare(Cond::Uge, address, meta));
    writer.value(Type::I32, Op::Binary(BinaryOp::And, fine, behind))
}

/// `address - first <= size - bytes`, as one unsigned comparison.
fn below(writer: &mut Writer<'_>, address: Value, first: Value, size: u64, bytes: u64) -> Value {
    if bytes > size {
        return writer.value(Type::I32, Op::Const(0));
    }
    let distance = writer.value(Type::I64, Op::Binary(BinaryOp::Sub, address, first));
    let most = writer.constant(size - bytes);
    writer.value(Type::I32, Op::Compare(Cond::Ule, distance, most))
}

/// Whether lookups in maps of this kind give values.
fn has_values(kind: MapType) -> bool {
    matches!(kind.spec().shape, Shape::Array | Shape::Table | Shape::Trie)
}

/// Largest distance in bytes of accesses that share a check.
const SPAN_MAX: u64 = 4096;
/// Flags that restrict programs' accesses.
const PROGRAM_ACCESS: u32 = BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
