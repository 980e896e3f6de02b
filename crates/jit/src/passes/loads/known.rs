//! Known contents of memory at a point of the program.

use towpath_bpf::insn::STACK_BYTES;

use super::super::assemble::Bytes;
use super::super::stack::Reached;
use crate::xir::{Alias, CtxField, StackRange, Value, Width};

/// Largest number of places known at the same time; the oldest are forgotten first.
const KNOWN_MAX: usize = 64;

/// Largest number of pieces that replace a load.
const PIECES_MAX: usize = 8;

/// Address of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) alias: Alias,
    /// Base of the offset; `None` for the frame pointer.
    pub(super) base: Option<Value>,
    pub(super) offset: i32,
}

/// Memory that holds some bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    spot: Spot,
    bytes: Bytes,
    /// Whether the bytes were stored, so that a load of another width would wait for the store.
    is_stored: bool,
}

impl Entry {
    fn start(&self) -> i64 {
        self.spot.offset.into()
    }

    fn end(&self) -> i64 {
        self.start() + i64::from(self.bytes.count)
    }

    fn overlaps(&self, start: i64, end: i64) -> bool {
        self.start() < end && start < self.end()
    }

    /// The part of the entry in `start..end`.
    fn cut(&self, start: i64, end: i64) -> Option<Entry> {
        let (start, end) = (start.max(self.start()), end.min(self.end()));
        if start >= end {
            return None;
        }
        let bytes = Bytes {
            first: self.bytes.first + (start - self.start()) as u32,
            count: (end - start) as u32,
            is_clean: self.bytes.is_clean && end == self.end(),
            ..self.bytes
        };
        Some(Entry { spot: Spot { offset: start as i32, ..self.spot }, bytes, ..*self })
    }
}

/// Known contents of memory and context.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    context: Vec<(CtxField, Value)>,
    /// Entries, oldest first.
    entries: Vec<Entry>,
}

impl Known {
    pub(super) fn field(&self, field: CtxField) -> Option<Value> {
        self.context.iter().find(|(known, _)| *known == field).map(|(_, value)| *value)
    }

    pub(super) fn set_field(&mut self, field: CtxField, value: Value) {
        self.context.push((field, value));
    }

    /// The value whose low bytes are the contents, if they were read or written as a whole.
    pub(super) fn exact(&self, spot: Spot, width: Width) -> Option<Value> {
        let is_exact = |entry: &&Entry| {
            entry.spot == spot && entry.bytes.first == 0 && entry.bytes.count == width.bytes()
        };
        self.entries.iter().rev().find(is_exact).map(|entry| entry.bytes.value)
    }

    /// Pieces of values that make up these bytes, lowest first. `None` if some are unknown, or if
    /// loading them is as good.
    pub(super) fn pieces(&self, spot: Spot, width: Width) -> Option<Vec<Bytes>> {
        let start = i64::from(spot.offset);
        let end = start + i64::from(width.bytes());
        let mut pieces = Vec::new();
        let mut at = start;
        let mut any_stored = false;
        while at < end {
            let piece = self.covering(spot, at, end)?.cut(at, end)?;
            pieces.push(piece.bytes);
            any_stored |= piece.is_stored;
            at = piece.end();
        }
        let is_whole = matches!(&pieces[..], [only] if only.is_clean && only.first == 0);
        ((is_whole || any_stored) && pieces.len() <= PIECES_MAX).then_some(pieces)
    }

    /// The entry that holds the byte at `at`; preferably one that holds more of the bytes that
    /// follow.
    fn covering(&self, spot: Spot, at: i64, end: i64) -> Option<&Entry> {
        let holds = |entry: &&Entry| {
            entry.spot.alias == spot.alias
                && entry.spot.base == spot.base
                && entry.overlaps(at, at + 1)
        };
        self.entries.iter().filter(holds).max_by_key(|entry| entry.end().min(end))
    }

    pub(super) fn loaded(&mut self, spot: Spot, width: Width, value: Value) {
        let bytes = Bytes { value, first: 0, count: width.bytes(), is_clean: true };
        self.add(Entry { spot, bytes, is_stored: false });
    }

    /// Records a store, after [`Known::overwritten`] or [`Known::forget_stack`].
    pub(super) fn stored(&mut self, spot: Spot, width: Width, value: Value) {
        // A narrow store keeps only the low bits of its value; a load would clear the rest.
        let is_clean = matches!(width, Width::W32 | Width::W64);
        let bytes = Bytes { value, first: 0, count: width.bytes(), is_clean };
        self.add(Entry { spot, bytes, is_stored: true });
    }

    fn add(&mut self, entry: Entry) {
        if self.entries.len() >= KNOWN_MAX {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    /// Forgets bytes at an address that were overwritten: other entries of the class may be the
    /// same.
    pub(super) fn overwritten(&mut self, spot: Spot, width: Width) {
        let start = i64::from(spot.offset);
        let other_base =
            |entry: &Entry| entry.spot.alias == spot.alias && entry.spot.base != spot.base;
        self.entries.retain(|entry| !other_base(entry));
        self.cut_out(spot.alias, start, start + i64::from(width.bytes()));
    }

    pub(super) fn forget_stack(&mut self, range: StackRange) {
        let start = i64::from(range.offset);
        self.cut_out(Alias::Stack, start, start + i64::from(range.len));
    }

    /// Keeps the parts of a class's entries outside of `start..end`; all entries have one base.
    fn cut_out(&mut self, alias: Alias, start: i64, end: i64) {
        let is_hit = |entry: &Entry| entry.spot.alias == alias && entry.overlaps(start, end);
        if !self.entries.iter().any(is_hit) {
            return;
        }
        for entry in std::mem::take(&mut self.entries) {
            if is_hit(&entry) {
                self.entries.extend(entry.cut(i64::MIN, start));
                self.entries.extend(entry.cut(end, i64::MAX));
            } else {
                self.entries.push(entry);
            }
        }
        let excess = self.entries.len().saturating_sub(KNOWN_MAX);
        self.entries.drain(..excess);
    }

    /// Forgets stack bytes that are reached through addresses, as they may have been overwritten.
    pub(super) fn forget_reached(&mut self, reached: &Reached) {
        let is_reached = |entry: &Entry| {
            let byte = |offset: i64| (offset + STACK_BYTES as i64) as usize;
            let bytes = byte(entry.start())..byte(entry.end());
            reached.get(bytes).is_none_or(|bytes| bytes.contains(&true))
        };
        self.entries.retain(|entry| entry.spot.alias != Alias::Stack || !is_reached(entry));
    }

    pub(super) fn forget_packet(&mut self) {
        self.entries.retain(|entry| entry.spot.alias != Alias::Packet);
    }

    pub(super) fn forget_maps(&mut self) {
        self.entries.retain(|entry| !matches!(entry.spot.alias, Alias::Map(_) | Alias::MapMeta(_)));
    }

    /// Forgets the packet's start and its metadata's after a move.
    pub(super) fn forget_start(&mut self) {
        let moves = |field| matches!(field, CtxField::Data | CtxField::DataMeta);
        self.context.retain(|(field, _)| !moves(*field));
    }

    pub(super) fn forget_context(&mut self) {
        self.context.clear();
    }

    /// Drops knowledge that does not hold across the start of a block.
    pub(super) fn enter_block(&mut self) {
        self.forget_maps();
    }

    /// Forgets knowledge that `other` lacks.
    pub(super) fn keep_common(&mut self, other: &Known) {
        self.context.retain(|field| other.context.contains(field));
        self.entries.retain(|entry| other.entries.contains(entry));
    }
}
