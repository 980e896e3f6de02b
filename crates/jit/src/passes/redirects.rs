//! Redirect calls, reduced to their only effect: the store of the frame's target.

use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_maps::{Layout, Map};

use super::Context;
use super::emit::{Emitter, call, rewrite};
use crate::machine_unsafe::RedirectCell;
use crate::xir::{
    Alias, Arg, BinaryOp, Cond, Function, MapMeta, Module, Op, Place, RuntimeFunction, Type,
    UnaryOp, Value, Width,
};

/// Redirects to interfaces are lowered everywhere; those by maps only if the frame is certainly in
/// one of the program's own bursts, since a cell has the map's number in the program.
pub(super) fn lower(module: &mut Module, context: Context<'_>) {
    if let Some(entry) = module.functions.first().filter(|entry| redirects_by_map(entry)) {
        let mut own = entry.clone();
        own.name.push_str(" (own bursts)");
        rewrite(&mut own, context, |emitter, op| emitter.redirect_map(op));
        module.own = Some(own);
    }
    for function in module.all_mut() {
        rewrite(function, context, |emitter, op| emitter.redirect(op));
    }
}

fn redirects_by_map(function: &Function) -> bool {
    let mut insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts.any(|&inst| {
        let op = &function.inst(inst).op;
        matches!(op, Op::CallRuntime { function: RuntimeFunction::RedirectMap, .. })
    })
}

impl Emitter<'_> {
    /// Lowers `bpf_redirect`.
    fn redirect(&mut self, op: &Op) -> Option<Op> {
        let Op::CallRuntime { function: RuntimeFunction::Redirect, args } = op else { return None };
        let [Arg::Value(ifindex), flags] = args.as_slice() else { return None };
        if self.constant_of(flags) != Some(0) {
            return None;
        }
        let ifindex = self.low(*ifindex);
        let words = [self.zext(ifindex), self.constant(Type::I64, 0)];
        Some(self.leads(RedirectCell::INTERFACE, words))
    }

    /// Lowers `bpf_redirect_map` (`__bpf_xdp_redirect_map`).
    fn redirect_map(&mut self, op: &Op) -> Option<Op> {
        let Op::CallRuntime { function: RuntimeFunction::RedirectMap, args } = op else {
            return None;
        };
        let [Arg::Value(map), Arg::Value(key), flags] = args.as_slice() else { return None };
        let Op::MapRef(number) = *self.definition(*map)? else { return None };
        let (flags, map) = (self.constant_of(flags)?, self.context.maps.get(number as usize)?);
        let values = map.kind().values();
        if flags > ACTION_MASK {
            let known = ACTION_MASK | BROADCAST | EXCLUDE_INGRESS;
            if values != Values::Device || flags & BROADCAST == 0 || flags & !known != 0 {
                return None;
            }
            let exclude_ingress = u64::from(flags & EXCLUDE_INGRESS != 0);
            let first = self.constant(Type::I64, exclude_ingress << 32 | u64::from(number));
            let words = [first, self.constant(Type::I64, 0)];
            return Some(self.leads(RedirectCell::BROADCAST, words));
        }
        let key = self.low(*key);
        if values == Values::Packets {
            // Whether the packet fits the queue turns out when it arrives there.
            let words = [self.by_key(number, key), self.constant(Type::I64, 0)];
            return Some(self.leads(RedirectCell::ENTRY, words));
        }
        let entry = self.entry(map, number, key)?;
        let none = self.constant(Type::I64, 0);
        let found = self.value(Type::I32, Op::Compare(Cond::Ne, entry, none));
        let (kind, words) = (RedirectCell::ENTRY, [self.by_key(number, key), entry]);
        self.push(None, Op::SetRedirect { kind, words, found: Some(found) });
        let (hit, miss) = (self.constant(Type::I64, XDP_REDIRECT), self.constant(Type::I64, flags));
        Some(Op::Select(found, hit, miss))
    }

    /// The entry of a map as a word, 0 if there is none.
    fn entry(&mut self, map: &Map, number: u32, key: Value) -> Option<Value> {
        if map.kind() == MapType::DevmapHash {
            let map = self.value(Type::I64, Op::MapRef(number));
            let args = [map, self.zext(key)].map(Arg::Value).to_vec();
            return Some(self.value(Type::I64, call(RuntimeFunction::TargetLookup, args)));
        }
        let Some(Layout::Targets { entries, .. }) = map.layout() else { return None };
        Some(self.target(number, entries, key).1)
    }

    /// Address of an entry in a map whose entries are contiguous, and the entry as a word, 0 if
    /// there is none.
    pub(super) fn target(&mut self, map: u32, entries: u32, key: Value) -> (Value, Value) {
        let (limit, none) = (self.constant(Type::I32, entries.into()), self.constant(Type::I32, 0));
        let inside = self.value(Type::I32, Op::Compare(Cond::Ult, key, limit));
        // For a key outside, the first entry is read without use.
        let index = self.value(Type::I32, Op::Select(inside, key, none));
        let (index, what) = (self.zext(index), MapMeta::Targets);
        let offset = self.binary_const(BinaryOp::Shl, index, 3);
        let first = self.value(Type::I64, Op::MapMetaAddr { map, what });
        let base = self.binary(BinaryOp::Add, first, offset);
        let place = Place { base, offset: 0, width: Width::W64, alias: Alias::MapMeta(map) };
        let entry = self.value(Type::I64, Op::LoadAcquire(place));
        let none = self.constant(Type::I64, 0);
        (base, self.value(Type::I64, Op::Select(inside, entry, none)))
    }

    /// First word of an entry's cell: the map's number, then the key.
    fn by_key(&mut self, map: u32, key: Value) -> Value {
        let key = self.zext(key);
        let high = self.binary_const(BinaryOp::Shl, key, 32);
        self.binary_const(BinaryOp::Or, high, map.into())
    }

    /// The low half of a value.
    fn low(&mut self, value: Value) -> Value {
        match self.definition(value) {
            Some(&Op::Const(constant)) => self.constant(Type::I32, constant),
            Some(&Op::Unary(UnaryOp::Zext, low)) => low,
            _ => self.value(Type::I32, Op::Unary(UnaryOp::Trunc, value)),
        }
    }

    /// Stores a target that always exists.
    fn leads(&mut self, kind: u32, words: [Value; 2]) -> Op {
        self.push(None, Op::SetRedirect { kind, words, found: None });
        Op::Const(XDP_REDIRECT)
    }
}

/// Result of successful calls.
const XDP_REDIRECT: u64 = 4;
/// Flags that hold the result for a miss (`BPF_F_ACTION_MASK`).
const ACTION_MASK: u64 = 3;
/// `BPF_F_BROADCAST`.
const BROADCAST: u64 = 1 << 3;
/// `BPF_F_EXCLUDE_INGRESS`.
const EXCLUDE_INGRESS: u64 = 1 << 4;
