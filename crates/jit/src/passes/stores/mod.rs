//! Merges stores to neighbouring bytes into one wide store, and removes stores that are overwritten
//! before they are read.
//!
//! Clang copies and clears packed structures byte by byte or word by word, and writes headers by
//! clearing them first. Within a block, stores to one base are collected until an instruction may
//! read or write the same memory; the remaining ones are then written with as few stores as
//! possible. Values of maps are visible to other workers: there only stores that follow each other
//! without a gap are merged, so that none becomes visible earlier than the one before it.

mod bytes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::assemble::Assembler;
use super::{Context, definitions};
use crate::xir::{Alias, Block, Dominators, Function, Inst, Op, Place, StackRange, Value, Width};
use bytes::{Chunk, Finder};

/// Largest number of bytes that a group spans.
const SPAN_MAX: i64 = 512;

pub(super) fn merge_stores(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        let stores =
            function.block(block).insts.iter().filter(|&&inst| is_store(&function.inst(inst).op));
        if stores.count() >= 2 {
            merge_in_block(function, block, &definitions);
        }
    }
}

fn is_store(op: &Op) -> bool {
    matches!(op, Op::Store { .. } | Op::StackStore(..))
}

/// Target of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StoreBase {
    alias: Alias,
    /// Base address; `None` for the frame pointer.
    base: Option<Value>,
}

/// One store of a group.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// Position in the block.
    position: usize,
    offset: i64,
    width: Width,
    value: Value,
}

impl Pending {
    fn end(&self) -> i64 {
        self.offset + i64::from(self.width.bytes())
    }

    fn overlaps(&self, start: i64, end: i64) -> bool {
        self.offset < end && start < self.end()
    }
}

/// Stores that can be merged, as no conflicting instruction is between them.
#[derive(Debug)]
struct Group {
    target: StoreBase,
    stores: Vec<Pending>,
}

impl Group {
    /// Number of bytes from the first to the last of the group and this range.
    fn span_with(&self, start: i64, end: i64) -> i64 {
        let low = self.stores.iter().map(|store| store.offset).fold(start, i64::min);
        self.stores.iter().map(Pending::end).fold(end, i64::max) - low
    }
}

/// Changes to a block, by position.
#[derive(Debug, Default)]
struct Edits {
    removed: BTreeSet<usize>,
    /// Instructions to insert in front of a position.
    before: BTreeMap<usize, Vec<Inst>>,
}

fn merge_in_block(function: &mut Function, block: Block, definitions: &[Option<Inst>]) {
    let insts = function.block(block).insts.clone();
    let mut groups: Vec<Group> = Vec::new();
    let mut done: Vec<Group> = Vec::new();
    for (position, &inst) in insts.iter().enumerate() {
        let op = &function.inst(inst).op;
        let (kept, ended): (Vec<Group>, Vec<Group>) =
            std::mem::take(&mut groups).into_iter().partition(|group| !ends(group, op));
        groups = kept;
        done.extend(ended);
        let Some((target, store)) = pending(op, position) else { continue };
        match groups.iter_mut().find(|group| group.target == target) {
            Some(group) => group.stores.push(store),
            None => groups.push(Group { target, stores: vec![store] }),
        }
    }
    done.extend(groups);
    let result = |(position, &inst): (usize, &Inst)| Some((function.inst(inst).result?, position));
    let positions: HashMap<Value, usize> = insts.iter().enumerate().filter_map(result).collect();
    let mut edits = Edits::default();
    for group in done.iter().filter(|group| group.stores.len() >= 2) {
        let plan = plan(function, &insts, group, (&positions, definitions), &mut edits);
        for mut chunk in plan {
            write(function, &insts, group, &mut chunk, &mut edits);
        }
    }
    if edits.removed.is_empty() {
        return;
    }
    let mut new = Vec::with_capacity(insts.len());
    for (position, &inst) in insts.iter().enumerate() {
        new.extend(edits.before.remove(&position).unwrap_or_default());
        if !edits.removed.contains(&position) {
            new.push(inst);
        }
    }
    function.block_mut(block).insts = new;
}

/// The store that an instruction performs, if it can be merged.
fn pending(op: &Op, position: usize) -> Option<(StoreBase, Pending)> {
    match op {
        Op::Store { place, value } if matches!(place.alias, Alias::Packet | Alias::Map(_)) => {
            let target = StoreBase { alias: place.alias, base: Some(place.base) };
            let (offset, width) = (place.offset.into(), place.width);
            Some((target, Pending { position, offset, width, value: *value }))
        }
        Op::StackStore(range, value) => {
            let width = Width::from_bytes(range.len.into())?;
            let target = StoreBase { alias: Alias::Stack, base: None };
            let offset = range.offset.into();
            Some((target, Pending { position, offset, width, value: *value }))
        }
        _ => None,
    }
}

/// Whether a group ends at this instruction: it may read the group's memory, or write it through
/// another base.
fn ends(group: &Group, op: &Op) -> bool {
    match op {
        Op::Store { place, .. } => store_ends(group, *place),
        Op::StackStore(..) => false,
        Op::Load { place, probe: false } => load_ends(group, *place),
        Op::StackLoad(range) => group.target.alias == Alias::Stack && touches(group, *range),
        Op::CtxLoad(_) => false,
        op => !op.is_pure(),
    }
}

fn store_ends(group: &Group, place: Place) -> bool {
    let same_base = group.target.base == Some(place.base);
    let (start, end) = span(place);
    if same_base && group.target.alias == place.alias && group.span_with(start, end) > SPAN_MAX {
        // The next stores form a new group.
        return true;
    }
    match (group.target.alias, place.alias) {
        (_, Alias::Other) => true,
        (alias, other) if alias != other => false,
        (Alias::Map(_), _) => {
            let follows = group.stores.last().is_some_and(|last| last.end() == start)
                || group.stores.last().is_some_and(|last| last.offset == end);
            let overwrites = group.stores.iter().any(|store| store.overlaps(start, end));
            !same_base || !follows || overwrites
        }
        _ => !same_base,
    }
}

fn load_ends(group: &Group, place: Place) -> bool {
    let (start, end) = span(place);
    match (group.target.alias, place.alias) {
        (_, Alias::Other) => true,
        (alias, other) if alias != other => false,
        _ => {
            group.target.base != Some(place.base)
                || group.stores.iter().any(|store| store.overlaps(start, end))
        }
    }
}

fn touches(group: &Group, range: StackRange) -> bool {
    let start = i64::from(range.offset);
    group.stores.iter().any(|store| store.overlaps(start, start + i64::from(range.len)))
}

fn span(place: Place) -> (i64, i64) {
    let start = i64::from(place.offset);
    (start, start + i64::from(place.width.bytes()))
}

/// Wide stores that replace the remaining stores of a group.
fn plan(
    function: &Function,
    insts: &[Inst],
    group: &Group,
    (positions, definitions): (&HashMap<Value, usize>, &[Option<Inst>]),
    edits: &mut Edits,
) -> Vec<Chunk> {
    let low = group.stores.iter().map(|store| store.offset).min().unwrap_or(0);
    let high = group.stores.iter().map(Pending::end).max().unwrap_or(0);
    if high - low > SPAN_MAX {
        return Vec::new();
    }
    // The last store to each byte.
    let mut owners: Vec<Option<usize>> = vec![None; (high - low) as usize];
    for (index, store) in group.stores.iter().enumerate() {
        owners[(store.offset - low) as usize..(store.end() - low) as usize].fill(Some(index));
    }
    for (index, store) in group.stores.iter().enumerate() {
        if !owners.contains(&Some(index)) {
            edits.removed.insert(store.position);
        }
    }
    let finder = Finder { function, insts, positions, definitions, group, owners: &owners, low };
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < owners.len() {
        let found = [8, 4, 2].into_iter().find_map(|bytes| finder.chunk(at, bytes));
        at += found.as_ref().map_or(1, |chunk| chunk.width.bytes() as usize);
        chunks.extend(found);
    }
    chunks
}

/// Replaces a chunk's last store by one wide store.
fn write(
    function: &mut Function,
    insts: &[Inst],
    group: &Group,
    chunk: &mut Chunk,
    edits: &mut Edits,
) {
    let positions = chunk.stores.iter().map(|&index| group.stores[index].position);
    let last = positions.clone().max().unwrap_or(0);
    edits.removed.extend(positions);
    if let Some(load) = chunk.load {
        let mut assembler = Assembler::new(function, function.inst(insts[load.position]).origin);
        let ty = load.place.width.value_type();
        let value = assembler.value(ty, Op::Load { place: load.place, probe: false });
        let assembled = assembler.insts;
        chunk.use_loaded(value);
        edits.before.entry(load.position).or_default().extend(assembled);
    }
    let mut assembler = Assembler::new(function, function.inst(insts[last]).origin);
    let value = chunk.emit(&mut assembler);
    let (offset, width) = (chunk.offset, chunk.width);
    let op = match group.target.base {
        Some(base) => {
            let place = Place { base, offset: offset as i32, width, alias: group.target.alias };
            Op::Store { place, value }
        }
        None => {
            let range = StackRange { offset: offset as i16, len: width.bytes() as u16 };
            Op::StackStore(range, value)
        }
    };
    assembler.push(None, op);
    let assembled = assembler.insts;
    edits.before.entry(last).or_default().extend(assembled);
}
