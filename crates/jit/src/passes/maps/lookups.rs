//! `bpf_map_lookup_elem` on maps known at compile time, and on maps of a known kind.

use std::mem::offset_of;

use towpath_bpf::MapDef;
use towpath_bpf::map::flags::BPF_F_ZERO_SEED;
use towpath_bpf::map::{Shape, Values};
use towpath_maps::{ArrayView, KEY_WORDS_MAX, Layout, PREFIX_BYTES_MAX};

use super::{Emitter, call};
use crate::trust::Trust;
use crate::xir::{
    Alias, Arg, BinaryOp, Cond, MapMeta, Op, Place, RuntimeFunction, Type, Value, Width,
};

/// Constant properties of an array.
#[derive(Clone, Copy)]
struct Array {
    map: u32,
    entries: u32,
    /// Distance from value to value, in bytes.
    stride: u64,
    /// Distance from CPU to CPU in bytes; 0 if all CPUs share the values.
    cpu_stride: u64,
}

impl Emitter<'_> {
    pub(super) fn lookup(&mut self, map: u32, key: &Arg) -> Op {
        match self.layout(map) {
            Some(Layout::Array { base: _, entries, stride, cpu_stride }) => {
                self.array(Array { map, entries, stride, cpu_stride }, key)
            }
            Some(Layout::Handles { base: _, entries }) => self.handle(map, entries, key),
            Some(Layout::Targets { base: _, entries }) if self.context.trust != Trust::Guest => {
                self.target_address(map, entries, key)
            }
            Some(Layout::Hash { percpu, .. }) => self.hash(map, key, percpu.map(|(_, _, cpu)| cpu)),
            _ => match self.spec(map).map(|spec| spec.shape) {
                Some(Shape::TableOfHandles) => self.hash(map, key, None),
                Some(Shape::Trie) => {
                    self.known_trie(map, key).unwrap_or_else(|| self.generic(map, key))
                }
                _ => self.generic(map, key),
            },
        }
    }

    fn known_trie(&mut self, map: u32, key: &Arg) -> Option<Op> {
        let key_size = self.context.maps.get(map as usize)?.key_size();
        let handle = self.value(Type::I64, Op::MapRef(map));
        self.trie(Arg::Value(handle), key_size, key)
    }

    /// A lookup in a map that is not known itself, only its kind and key size: it is like `known`,
    /// or an inner map of it.
    pub(super) fn lookup_in_any(
        &mut self,
        known: u32,
        template: &MapDef,
        map: &Arg,
        key: &Arg,
    ) -> Option<Op> {
        let is_seeded = template.flags & BPF_F_ZERO_SEED == 0;
        let spec = template.kind.spec();
        let marks = spec.lru;
        match spec.shape {
            Shape::Array if matches!(spec.values, Values::Bytes | Values::PerCpu) => {
                let Arg::Value(map) = *map else { return None };
                Some(self.any_array(known, template, map, key))
            }
            Shape::Table
                if spec.values == Values::Bytes
                    && is_seeded
                    && template.key_size as usize <= KEY_WORDS_MAX * 8 =>
            {
                let words = self.words(key, template.key_size);
                let function = RuntimeFunction::InnerHashLookup { words: words.len() as u8, marks };
                Some(by_words(function, map.clone(), words))
            }
            Shape::Trie => self.trie(map.clone(), template.key_size, key),
            _ => None,
        }
    }

    fn layout(&self, map: u32) -> Option<Layout> {
        let def: &MapDef = self.context.program.linked().maps.get(map as usize)?;
        let layout = self.context.maps.get(map as usize)?.layout()?;
        let is_array = !matches!(layout, Layout::Hash { .. });
        (!is_array || def.key_size == 4).then_some(layout)
    }

    /// `index < entries ? base + index * stride + worker * cpu_stride : 0`.
    fn array(&mut self, array: Array, key: &Arg) -> Op {
        let Array { map, entries, stride, cpu_stride } = array;
        let (index, inside) = self.index(key, entries);
        let first = self.value(Type::I64, Op::MapValueAddr { map, offset: 0 });
        let mut address = self.scaled(index, stride, first);
        if cpu_stride > 0 {
            let worker = self.value(Type::I32, Op::WorkerId);
            address = self.scaled(worker, cpu_stride, address);
        }
        let null = self.constant(Type::I64, 0);
        Op::Select(inside, address, null)
    }

    /// As [`Emitter::array`], for an array whose address and size are read at run time. `known` is
    /// the map that it is like, or that contains it.
    fn any_array(&mut self, known: u32, template: &MapDef, map: Value, key: &Arg) -> Op {
        let entries = offset_of!(ArrayView, entries);
        let entries = self.view_field(known, map, entries, Width::W32);
        let first = self.view_field(known, map, offset_of!(ArrayView, base), Width::W64);
        let index = self.load_part(key, 0, Width::W32);
        let inside = self.value(Type::I32, Op::Compare(Cond::Ult, index, entries));
        let stride = u64::from(template.value_size).next_multiple_of(8);
        let mut address = self.scaled(index, stride, first);
        if template.kind.is_percpu() {
            let cpu_stride = offset_of!(ArrayView, cpu_stride);
            let cpu_stride = self.view_field(known, map, cpu_stride, Width::W64);
            let worker = self.value(Type::I32, Op::WorkerId);
            let worker = self.zext(worker);
            let row = self.binary(BinaryOp::Mul, worker, cpu_stride);
            address = self.binary(BinaryOp::Add, address, row);
        }
        let null = self.constant(Type::I64, 0);
        Op::Select(inside, address, null)
    }

    /// Loads a field of a map's view, which is never written.
    fn view_field(&mut self, known: u32, map: Value, offset: usize, width: Width) -> Value {
        let (offset, alias) = ((ArrayView::OFFSET + offset) as i32, Alias::MapMeta(known));
        let place = Place { base: map, offset, width, alias };
        self.value(width.value_type(), Op::Load { place, probe: false })
    }

    /// `index < entries ? *(base + index * 8) : 0`: the inner map at an index. For an index
    /// outside, slot 0 is read without use.
    fn handle(&mut self, map: u32, entries: u32, key: &Arg) -> Op {
        let (index, inside) = self.index(key, entries);
        let zero = self.constant(Type::I32, 0);
        let index = self.value(Type::I32, Op::Select(inside, index, zero));
        let what = MapMeta::Handles;
        let first = self.value(Type::I64, Op::MapMetaAddr { map, what });
        let base = self.scaled(index, 8, first);
        let place = Place { base, offset: 0, width: Width::W64, alias: Alias::MapMeta(map) };
        let handle = self.value(Type::I64, Op::LoadAcquire(place));
        let null = self.constant(Type::I64, 0);
        Op::Select(inside, handle, null)
    }

    /// Address of a devmap's, cpumap's or xskmap's entry, 0 if it is empty. A guest's code calls
    /// the map, since reads through the address are checked.
    fn target_address(&mut self, map: u32, entries: u32, key: &Arg) -> Op {
        let key = self.load_part(key, 0, Width::W32);
        let (address, entry) = self.target(map, entries, key);
        let null = self.constant(Type::I64, 0);
        let found = self.value(Type::I32, Op::Compare(Cond::Ne, entry, null));
        Op::Select(found, address, null)
    }

    /// A 32-bit key, and whether it is below `entries`.
    fn index(&mut self, key: &Arg, entries: u32) -> (Value, Value) {
        let index = self.load_part(key, 0, Width::W32);
        let limit = self.constant(Type::I32, entries.into());
        let inside = self.value(Type::I32, Op::Compare(Cond::Ult, index, limit));
        (index, inside)
    }

    /// A call with the key's words; for per-CPU kinds the value of each worker follows at a
    /// distance of `cpu_stride` bytes.
    fn hash(&mut self, map: u32, key: &Arg, cpu_stride: Option<u64>) -> Op {
        let known = self.context.maps.get(map as usize);
        let Some(key_size) = known.and_then(|map| Some((map.hash_view()?, map.key_size()))) else {
            return self.generic(map, key);
        };
        let spec = self.spec(map);
        let marks = spec.is_some_and(|spec| spec.lru);
        let what = MapMeta::HashView;
        let view = self.value(Type::I64, Op::MapMetaAddr { map, what });
        let key = self.words(key, key_size.1);
        let words = key.len() as u8;
        let function = match spec.map(|spec| spec.shape) {
            Some(Shape::TableOfHandles) => RuntimeFunction::HandleLookup { words },
            _ => RuntimeFunction::HashLookup { words, marks },
        };
        let lookup = by_words(function, Arg::Value(view), key);
        let Some(cpu_stride) = cpu_stride else { return lookup };
        let first = self.value(Type::I64, lookup);
        let worker = self.value(Type::I32, Op::WorkerId);
        let address = self.scaled(worker, cpu_stride, first);
        let null = self.constant(Type::I64, 0);
        let found = self.value(Type::I32, Op::Compare(Cond::Ne, first, null));
        Op::Select(found, address, null)
    }

    /// A call with the key's words, length and data, as they are in memory.
    fn trie(&mut self, map: Arg, key_size: u32, key: &Arg) -> Option<Op> {
        if key_size as usize > PREFIX_BYTES_MAX {
            return None;
        }
        let words = self.words(key, key_size);
        Some(by_words(RuntimeFunction::TrieLookup { words: words.len() as u8 }, map, words))
    }

    fn generic(&mut self, map: u32, key: &Arg) -> Op {
        let map = self.value(Type::I64, Op::MapRef(map));
        let args = vec![Arg::Value(map), key.clone(), self.worker()];
        call(RuntimeFunction::MapLookup, args)
    }

    /// `base + index * stride`.
    fn scaled(&mut self, index: Value, stride: u64, base: Value) -> Value {
        let wide = self.zext(index);
        let stride = self.constant(Type::I64, stride);
        let offset = self.value(Type::I64, Op::Binary(BinaryOp::Mul, wide, stride));
        self.value(Type::I64, Op::Binary(BinaryOp::Add, base, offset))
    }
}

/// A call with a map, or the address of its view, and the words of a key.
fn by_words(function: RuntimeFunction, map: Arg, words: Vec<Value>) -> Op {
    call(function, std::iter::once(map).chain(words.into_iter().map(Arg::Value)).collect())
}
