//! Looking ahead in a burst: the slice of a program that computes which hash buckets it will use.
//!
//! A table larger than the caches costs two or three misses for each lookup, one after the other.
//! Run over all frames of a burst before the program itself, the slice that leads to the program's
//! first lookup lets those misses overlap. A slice changes nothing: stores to shared memory are
//! left out, and it ends before any call. Wrong values only cost a useless prefetch: the verifier
//! assumes any value in memory.

use std::collections::BTreeSet;

use towpath_bpf::proto::id;

use super::{Context, definition, definitions};
use crate::xir::{
    Alias, Arg, Block, Dominators, Function, Inst, InstData, MapMeta, Module, Op, RuntimeFunction,
    Stage, Terminator, Type, Value,
};

/// The slice of a module's entry function for one stage, and the maps that it prefetches from;
/// `None` if the program reaches no lookup in a hash table.
pub(crate) fn slice(
    module: &Module,
    context: Context<'_>,
    stage: Stage,
) -> Option<(Module, BTreeSet<u32>)> {
    let mut function = module.functions.first()?.clone();
    function.name = format!("{} ({stage:?} ahead)", function.name);
    let dominators = Dominators::new(&function);
    let mut slicer = Slicer {
        stage,
        definitions: definitions(&function, &dominators),
        wanted: BTreeSet::new(),
        function: &mut function,
    };
    for &block in dominators.order() {
        slicer.block(block, &dominators);
    }
    let wanted = std::mem::take(&mut slicer.wanted);
    if wanted.is_empty() {
        return None;
    }
    for clean in [super::blocks::simplify, super::dead::remove, super::blocks::simplify] {
        clean(&mut function, context);
    }
    Some((Module { functions: vec![function], own: None, masked: false }, wanted))
}

struct Slicer<'a> {
    function: &'a mut Function,
    stage: Stage,
    definitions: Vec<Option<Inst>>,
    wanted: BTreeSet<u32>,
}

/// Treatment of an instruction in a slice.
enum SliceAction {
    Keep,
    Drop,
    /// Replaced by 0: any value will do.
    Zero,
    /// Replaced by a prefetch of this map's bucket, which ends the slice.
    Ask(u32, RuntimeFunction),
    /// The slice ends before it.
    End,
}

impl Slicer<'_> {
    /// Removes from a block the instructions that a slice leaves out.
    fn block(&mut self, block: Block, dominators: &Dominators) {
        let insts = std::mem::take(&mut self.function.block_mut(block).insts);
        let mut kept = Vec::with_capacity(insts.len());
        let mut over = false;
        for inst in insts {
            match self.fate(inst) {
                SliceAction::Keep => kept.push(inst),
                SliceAction::Drop => {}
                SliceAction::Zero => {
                    self.function.inst_mut(inst).op = Op::Const(0);
                    kept.push(inst);
                }
                SliceAction::Ask(map, function) => {
                    self.wanted.insert(map);
                    if let Op::CallRuntime { function: called, .. } =
                        &mut self.function.inst_mut(inst).op
                    {
                        *called = function;
                    }
                    kept.push(inst);
                    over = true;
                }
                SliceAction::End => over = true,
            }
            if over {
                break;
            }
        }
        let goes_back = |target| dominators.position(target) <= dominators.position(block);
        let loops = self.function.block(block).end.jumps().any(|jump| goes_back(jump.target));
        let ends = matches!(
            self.function.block(block).end,
            Terminator::Return(_) | Terminator::TailCall { .. } | Terminator::Unreachable
        );
        if over || loops || ends {
            let zero = self.zero(&mut kept);
            self.function.block_mut(block).end = Terminator::Return(zero);
        }
        self.function.block_mut(block).insts = kept;
    }

    fn zero(&mut self, insts: &mut Vec<Inst>) -> Value {
        let result = self.function.add_value(Type::I64);
        let data = InstData { op: Op::Const(0), result: Some(result), origin: 0 };
        insts.push(self.function.add_inst(data));
        result
    }

    fn fate(&self, inst: Inst) -> SliceAction {
        match &self.function.inst(inst).op {
            Op::CallRuntime { function, args } => self.call(*function, args),
            Op::Load { probe: true, .. } => SliceAction::End,
            op if op.is_pure() || op.is_read_only() => SliceAction::Keep,
            Op::StackStore(..) | Op::LoadAcquire(_) => SliceAction::Keep,
            Op::Store { place, .. } if place.alias == Alias::Stack => SliceAction::Keep,
            Op::Store { .. } | Op::StoreRelease { .. } => SliceAction::Drop,
            Op::AtomicRmw { .. } | Op::CompareExchange { .. } => SliceAction::Zero,
            Op::CallHelper { id: id::KTIME_GET_NS | id::GET_PRANDOM_U32, .. } => SliceAction::Zero,
            _ => SliceAction::End,
        }
    }

    fn call(&self, function: RuntimeFunction, args: &[Arg]) -> SliceAction {
        let (Some(ahead), Some(Arg::Value(view))) = (function.ahead(self.stage), args.first())
        else {
            return if function.effects().removable { SliceAction::Keep } else { SliceAction::End };
        };
        match definition(self.function, &self.definitions, *view) {
            Some(Op::MapMetaAddr { map, what: MapMeta::HashView }) => SliceAction::Ask(*map, ahead),
            _ => SliceAction::End,
        }
    }
}
