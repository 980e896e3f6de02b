//! Sources of the bytes of neighbouring stores, and a way to compute them at once.

use std::collections::HashMap;

use super::super::assemble::{Assembler, Bytes};
use super::super::definition;
use super::{Group, Pending};
use crate::xir::{Alias, BinaryOp, Function, Inst, Op, Place, Type, UnaryOp, Value, Width};

/// Largest number of shifts and masks through which a byte is followed.
const DEPTH_MAX: u32 = 6;

/// The wide store that replaces a chunk's stores.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) offset: i64,
    pub(super) width: Width,
    /// The replaced stores, as indices into the group.
    pub(super) stores: Vec<usize>,
    /// Constant bytes, in their positions.
    constant: u64,
    /// All other bytes, if any, and their position.
    part: Option<(Bytes, u32)>,
    swapped: bool,
    /// Two values side by side; then there are no other bytes.
    pair: Option<[Bytes; 2]>,
    /// The wide load that gives the value of `part`.
    pub(super) load: Option<WideLoad>,
}

/// A load that replaces narrow ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct WideLoad {
    /// Position in the block: that of the first of them.
    pub(super) position: usize,
    pub(super) place: Place,
}

impl Chunk {
    /// Sets the value of [`Chunk::load`], once it exists.
    pub(super) fn use_loaded(&mut self, value: Value) {
        if let Some((bytes, _)) = &mut self.part {
            bytes.value = value;
        }
    }

    /// The value to be stored.
    pub(super) fn emit(&self, assembler: &mut Assembler<'_>) -> Value {
        let ty = self.width.value_type();
        if let Some(pair) = &self.pair {
            return assembler.assembled(pair, self.width);
        }
        let Some((bytes, at)) = self.part else { return assembler.constant(ty, self.constant) };
        if self.swapped {
            let value = assembler.extracted(Bytes { is_clean: true, ..bytes }, ty);
            let op = match self.width {
                Width::W64 => UnaryOp::Bswap64,
                Width::W32 => UnaryOp::Bswap32,
                Width::W16 | Width::W8 => UnaryOp::Bswap16,
            };
            return assembler.value(ty, Op::Unary(op, value));
        }
        // The store cuts off the bits above its width.
        let is_top = at + bytes.count == self.width.bytes();
        let bytes = Bytes { is_clean: bytes.is_clean || is_top, ..bytes };
        let mut value = assembler.extracted(bytes, ty);
        if at > 0 {
            value = assembler.binary_const(BinaryOp::Shl, value, u64::from(at) * 8);
        }
        if self.constant != 0 {
            value = assembler.binary_const(BinaryOp::Or, value, self.constant);
        }
        value
    }
}

/// Source of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Constant(u8),
    /// A byte of a value.
    Part {
        value: Value,
        index: u32,
    },
    /// A byte of a load in this block.
    Loaded {
        load: usize,
        index: u32,
    },
}

/// Finds stores that can be combined.
pub(super) struct Finder<'a> {
    pub(super) function: &'a Function,
    pub(super) insts: &'a [Inst],
    /// Position in the block at which each value is defined.
    pub(super) positions: &'a HashMap<Value, usize>,
    /// Instruction that defines each value.
    pub(super) definitions: &'a [Option<Inst>],
    pub(super) group: &'a Group,
    /// For each byte from `low` on, the last store to it.
    pub(super) owners: &'a [Option<usize>],
    pub(super) low: i64,
}

impl Finder<'_> {
    /// The `bytes` bytes from `at` on, if writing them at once is correct and pays.
    pub(super) fn chunk(&self, at: usize, bytes: usize) -> Option<Chunk> {
        let owners: Vec<usize> =
            self.owners.get(at..at + bytes)?.iter().copied().collect::<Option<_>>()?;
        let mut stores = owners.clone();
        stores.sort_unstable();
        stores.dedup();
        if stores.len() < 2 || stores.iter().any(|&store| self.is_elsewhere(store, at, bytes)) {
            return None;
        }
        let offset = self.low + at as i64;
        let sources: Vec<Source> = owners
            .iter()
            .zip(offset..)
            .map(|(&store, byte)| {
                let Pending { offset, value, .. } = self.group.stores[store];
                self.source(value, (byte - offset) as u32, DEPTH_MAX)
            })
            .collect();
        let mut chunk = Chunk {
            offset,
            width: Width::from_bytes(bytes as u32)?,
            stores,
            constant: 0,
            part: None,
            swapped: false,
            pair: None,
            load: None,
        };
        if self.fill(&mut chunk, &sources).is_none() {
            chunk.pair = Some(self.pair(&chunk)?);
            return Some(chunk);
        }
        let is_mixed = chunk.part.is_some_and(|(part, _)| part.count < bytes as u32);
        let pays = !is_mixed || chunk.stores.len() > 2 || self.group.target.base.is_none();
        pays.then_some(chunk)
    }

    /// Two words of a key on the stack: the reader loads both at once, and would wait for two
    /// stores.
    fn pair(&self, chunk: &Chunk) -> Option<[Bytes; 2]> {
        let stores: Vec<Pending> =
            chunk.stores.iter().map(|&store| self.group.stores[store]).collect();
        let [mut low, mut high] = *stores.first_chunk::<2>().filter(|_| stores.len() == 2)?;
        if high.offset < low.offset {
            (low, high) = (high, low);
        }
        let is_pair = self.group.target.base.is_none()
            && low.offset == chunk.offset
            && [low, high].iter().all(|store| store.width == Width::W32);
        let word =
            |store: Pending| Bytes { value: store.value, first: 0, count: 4, is_clean: true };
        is_pair.then_some([word(low), word(high)])
    }

    /// Whether a store is the last one to some byte outside of the chunk.
    fn is_elsewhere(&self, store: usize, at: usize, bytes: usize) -> bool {
        let Pending { offset, width, .. } = self.group.stores[store];
        let start = (offset - self.low) as usize;
        let all = start..start + width.bytes() as usize;
        all.into_iter()
            .any(|byte| !(at..at + bytes).contains(&byte) && self.owners[byte] == Some(store))
    }

    /// Splits the bytes into constants and one piece of a value; `None` if there are more pieces.
    fn fill(&self, chunk: &mut Chunk, sources: &[Source]) -> Option<()> {
        for (index, source) in sources.iter().enumerate() {
            if let Source::Constant(byte) = source {
                chunk.constant |= u64::from(*byte) << (8 * index);
            }
        }
        let is_constant = |source: &Source| matches!(source, Source::Constant(_));
        let Some(first) = sources.iter().position(|source| !is_constant(source)) else {
            return Some(());
        };
        let end = sources.iter().rposition(|source| !is_constant(source))? + 1;
        let run = &sources[first..end];
        let count = run.len() as u32;
        if let Some(bytes) = self.one_value(run) {
            chunk.part = Some((bytes, first as u32));
        } else if let Some(bytes) = reversed(run).filter(|_| run.len() == sources.len()) {
            chunk.part = Some((bytes, first as u32));
            chunk.swapped = true;
        } else {
            let load = self.wide_load(run)?;
            // The load's value replaces this one when it exists.
            let value = self.group.stores[chunk.stores[0]].value;
            chunk.part = Some((Bytes { value, first: 0, count, is_clean: true }, first as u32));
            chunk.load = Some(load);
        }
        Some(())
    }

    /// The bytes as consecutive ones of one value.
    fn one_value(&self, run: &[Source]) -> Option<Bytes> {
        let of = |source: &Source| match *source {
            Source::Part { value, index } => Some((value, index)),
            Source::Loaded { load, index } => {
                let value = self.function.inst(self.insts[load]).result?;
                Some((value, index))
            }
            Source::Constant(_) => None,
        };
        let (value, first) = of(run.first()?)?;
        let follows =
            run.iter().zip(first..).all(|(source, index)| of(source) == Some((value, index)));
        let count = run.len() as u32;
        follows.then_some(Bytes { value, first, count, is_clean: false })
    }

    /// The bytes as consecutive ones in memory, loaded at the first of their loads.
    fn wide_load(&self, run: &[Source]) -> Option<WideLoad> {
        let byte = |source: &Source| match *source {
            Source::Loaded { load, index } => match self.op(load) {
                Op::Load { place, .. } => {
                    Some((load, *place, i64::from(place.offset) + i64::from(index)))
                }
                _ => None,
            },
            _ => None,
        };
        let (_, place, start) = byte(run.first()?)?;
        let width = Width::from_bytes(run.len() as u32)?;
        let mut loads = Vec::with_capacity(run.len());
        for (source, expected) in run.iter().zip(start..) {
            let (load, other, offset) = byte(source)?;
            if other.base != place.base || other.alias != place.alias || offset != expected {
                return None;
            }
            loads.push(load);
        }
        let (position, last) = (*loads.iter().min()?, *loads.iter().max()?);
        let place = Place { offset: i32::try_from(start).ok()?, width, ..place };
        let is_quiet = (position..last).all(|between| match self.op(between) {
            Op::Store { place: other, .. } => is_apart(*other, place),
            Op::StackStore(..) => true,
            op => op.is_pure() || matches!(op, Op::Load { .. } | Op::StackLoad(_) | Op::CtxLoad(_)),
        });
        is_quiet.then_some(WideLoad { position, place })
    }

    fn op(&self, position: usize) -> &Op {
        &self.function.inst(self.insts[position]).op
    }

    fn definition(&self, value: Value) -> Option<&Op> {
        definition(self.function, self.definitions, value)
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.definition(value)? {
            Op::Const(constant) => Some(*constant),
            _ => None,
        }
    }

    /// Source of a byte of a value.
    fn source(&self, value: Value, index: u32, depth: u32) -> Source {
        let here = Source::Part { value, index };
        let (Some(op), Some(depth)) = (self.definition(value), depth.checked_sub(1)) else {
            return here;
        };
        match *op {
            Op::Const(constant) => Source::Constant((constant >> (8 * index)) as u8),
            Op::Load { place, probe: false } => match self.positions.get(&value) {
                _ if index >= place.width.bytes() => Source::Constant(0),
                Some(&load) if matches!(place.alias, Alias::Packet | Alias::Map(_)) => {
                    Source::Loaded { load, index }
                }
                _ => here,
            },
            Op::Unary(UnaryOp::Zext, _) if index >= 4 => Source::Constant(0),
            Op::Unary(UnaryOp::Zext | UnaryOp::Trunc, x) => self.source(x, index, depth),
            Op::Binary(op, x, y) => self.binary(op, x, y, here, depth).unwrap_or(here),
            _ => here,
        }
    }

    fn binary(&self, op: BinaryOp, x: Value, y: Value, here: Source, depth: u32) -> Option<Source> {
        let Source::Part { index, .. } = here else { return None };
        let bytes = self.function.ty(x).bits() / 8;
        match op {
            BinaryOp::LShr => {
                let from = index + whole_bytes(self.constant(y)?)?;
                Some(if from < bytes { self.source(x, from, depth) } else { Source::Constant(0) })
            }
            BinaryOp::Shl => {
                let shift = whole_bytes(self.constant(y)?)?;
                let from = index.checked_sub(shift);
                Some(from.map_or(Source::Constant(0), |from| self.source(x, from, depth)))
            }
            BinaryOp::And => match (self.constant(y)? >> (8 * index)) as u8 {
                0 => Some(Source::Constant(0)),
                0xff => Some(self.source(x, index, depth)),
                _ => None,
            },
            BinaryOp::Or => match (self.source(x, index, depth), self.source(y, index, depth)) {
                (Source::Constant(a), Source::Constant(b)) => Some(Source::Constant(a | b)),
                (Source::Constant(0), other) | (other, Source::Constant(0)) => Some(other),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whether a store does not overlap the bytes at `place`.
fn is_apart(store: Place, place: Place) -> bool {
    if store.alias != place.alias {
        return store.alias != Alias::Other;
    }
    let end = |place: Place| i64::from(place.offset) + i64::from(place.width.bytes());
    let overlaps = i64::from(store.offset) < end(place) && i64::from(place.offset) < end(store);
    store.base == place.base && !overlaps
}

/// The bytes as those of one value in reverse order.
fn reversed(run: &[Source]) -> Option<Bytes> {
    let Source::Part { value, index } = *run.last()? else { return None };
    let count = run.len() as u32;
    let backwards = run.iter().rev().zip(index..);
    let follows = |(source, index): (&Source, u32)| *source == Source::Part { value, index };
    let is_run = backwards.into_iter().all(follows);
    is_run.then_some(Bytes { value, first: index, count, is_clean: true })
}

fn whole_bytes(bits: u64) -> Option<u32> {
    (bits.is_multiple_of(8) && bits < u64::from(Type::I64.bits())).then_some(bits as u32 / 8)
}
