//! `bpf_map_lookup_elem` on maps known at compile time.

use towpath_bpf::MapDef;
use towpath_bpf::map::flags::BPF_F_ZERO_SEED;
use towpath_bpf::map::{Shape, Values};
use towpath_maps::{KEY_WORDS_MAX, Layout, PREFIX_BYTES_MAX};

use super::{Emitter, call};
use crate::xir::{
    Alias, Arg, BinaryOp, Cond, MapMeta, Op, Place, RuntimeFunction, Type, Value, Width,
};

/// What is constant about an array.
#[derive(Clone, Copy)]
struct Array {
    map: u32,
    entries: u32,
    /// Bytes from value to value.
    stride: u64,
    /// Bytes from CPU to CPU; 0 when all share the values.
    cpu_stride: u64,
}

impl Emitter<'_> {
    pub(super) fn lookup(&mut self, map: u32, key: &Arg) -> Op {
        match self.layout(map) {
            Some(Layout::Array { base: _, entries, stride, cpu_stride }) => {
                self.array(Array { map, entries, stride, cpu_stride }, key)
            }
            Some(Layout::Handles { base: _, entries }) => self.handle(map, entries, key),
            Some(Layout::Hash { percpu, .. }) => self.hash(map, key, percpu.map(|(_, _, cpu)| cpu)),
            _ => match self.spec(map).map(|spec| spec.shape) {
                Some(Shape::TableOfHandles) => self.hash(map, key, None),
                Some(Shape::Trie) => self.trie(map, key),
                _ => self.generic(map, key),
            },
        }
    }

    /// A lookup in an inner map: its kind and the size of its keys are the template's, its place is
    /// not known.
    pub(super) fn inner_lookup(&mut self, template: &MapDef, inner: &Arg, key: &Arg) -> Option<Op> {
        let is_seeded = template.flags & BPF_F_ZERO_SEED == 0;
        let spec = template.kind.spec();
        let marks = spec.lru;
        match spec.shape {
            Shape::Array if template.key_size == 4 => {
                let index = self.load_part(key, 0, Width::W32);
                let index = Arg::Value(self.zext(index));
                let args = vec![inner.clone(), index, self.worker()];
                Some(call(RuntimeFunction::ArrayLookup, args))
            }
            Shape::Table
                if spec.values == Values::Bytes
                    && is_seeded
                    && template.key_size as usize <= KEY_WORDS_MAX * 8 =>
            {
                let words = self.words(key, template.key_size);
                let function = RuntimeFunction::InnerHashLookup { words: words.len() as u8, marks };
                let words = words.into_iter().map(Arg::Value);
                Some(call(function, std::iter::once(inner.clone()).chain(words).collect()))
            }
            _ => None,
        }
    }

    fn layout(&self, map: u32) -> Option<Layout> {
        let def: &MapDef = self.context.program.linked().maps.get(map as usize)?;
        let layout = self.context.maps.get(map as usize)?.layout()?;
        let is_array = !matches!(layout, Layout::Hash { .. });
        (!is_array || def.key_size == 4).then_some(layout)
    }

    /// `index < entries ? base + index * stride + worker * cpu_stride : 0`
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

    /// `index < entries ? *(base + index * 8) : 0`: the inner map at an index. Outside, slot 0 is
    /// read in vain.
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

    /// A 32-bit key, and whether it is below `entries`.
    fn index(&mut self, key: &Arg, entries: u32) -> (Value, Value) {
        let index = self.load_part(key, 0, Width::W32);
        let limit = self.constant(Type::I32, entries.into());
        let inside = self.value(Type::I32, Op::Compare(Cond::Ult, index, limit));
        (index, inside)
    }

    /// A call with the key's words; for per-CPU kinds the value is so many bytes further for each
    /// worker.
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
        let args = std::iter::once(view).chain(key).map(Arg::Value).collect();
        let Some(cpu_stride) = cpu_stride else { return call(function, args) };
        let first = self.value(Type::I64, call(function, args));
        let worker = self.value(Type::I32, Op::WorkerId);
        let address = self.scaled(worker, cpu_stride, first);
        let null = self.constant(Type::I64, 0);
        let found = self.value(Type::I32, Op::Compare(Cond::Ne, first, null));
        Op::Select(found, address, null)
    }

    /// A call with the key's words, length and data, as they lie in memory.
    fn trie(&mut self, map: u32, key: &Arg) -> Op {
        let known = self.context.maps.get(map as usize);
        let key_size = known.map_or(u32::MAX, |map| map.key_size());
        if key_size as usize > PREFIX_BYTES_MAX {
            return self.generic(map, key);
        }
        let words = self.words(key, key_size);
        let function = RuntimeFunction::TrieLookup { words: words.len() as u8 };
        let map = self.value(Type::I64, Op::MapRef(map));
        call(function, std::iter::once(map).chain(words).map(Arg::Value).collect())
    }

    fn generic(&mut self, map: u32, key: &Arg) -> Op {
        let map = self.value(Type::I64, Op::MapRef(map));
        let args = vec![Arg::Value(map), key.clone(), self.worker()];
        call(RuntimeFunction::MapLookup, args)
    }

    /// `base + index * stride`
    fn scaled(&mut self, index: Value, stride: u64, base: Value) -> Value {
        let wide = self.zext(index);
        let stride = self.constant(Type::I64, stride);
        let offset = self.value(Type::I64, Op::Binary(BinaryOp::Mul, wide, stride));
        self.value(Type::I64, Op::Binary(BinaryOp::Add, base, offset))
    }
}
