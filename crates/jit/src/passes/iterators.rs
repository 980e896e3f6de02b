//! Compiles `bpf_iter_num` without calls: its state is two numbers on the stack, and the result of
//! `next` is the address of the first.

use std::collections::HashMap;

use towpath_bpf::Errno;
use towpath_bpf::interp::MAX_LOOPS;

use super::emit::{Emitter, rewrite};
use super::{Context, definition, definitions};
use crate::xir::{
    Alias, Arg, BinaryOp, Cond, Dominators, Function, Op, Place, Type, UnaryOp, Value, Width,
};

pub(super) fn lower(function: &mut Function, context: Context<'_>) {
    let kinds: HashMap<u32, Kind> = kinds(context);
    if kinds.is_empty() {
        return;
    }
    let Some(items) = items(function, &kinds) else { return };
    rewrite(function, context, |emitter, op| match op {
        Op::CallKfunc { kfunc, args } => match (kinds.get(kfunc)?, &args[..]) {
            (Kind::New, [Arg::Value(it), Arg::Value(start), Arg::Value(end)]) => {
                Some(emitter.new_numbers(*it, *start, *end))
            }
            (Kind::Next, [Arg::Value(it)]) => Some(emitter.next_number(*it)),
            (Kind::Destroy, [Arg::Value(it)]) => {
                let zero = emitter.constant(Type::I32, 0);
                emitter.put_state(*it, zero, zero);
                Some(Op::Const(0))
            }
            _ => None,
        },
        Op::Load { place, probe } => {
            let base = *items.get(&place.base)?;
            let place = Place { base, alias: Alias::Stack, ..*place };
            Some(Op::Load { place, probe: *probe })
        }
        // The result is either null or the address of a number, which is not 0.
        Op::Compare(cond @ (Cond::Eq | Cond::Ne), item, zero) if items.contains_key(item) => {
            let Some(Op::Const(0)) = emitter.definition(*zero) else { return None };
            let Some(&Op::Select(done, ..)) = emitter.definition(*item) else { return None };
            let zero = emitter.constant(Type::I32, 0);
            let cond = if *cond == Cond::Eq { Cond::Ne } else { Cond::Eq };
            Some(Op::Compare(cond, done, zero))
        }
        _ => None,
    });
}

#[derive(Clone, Copy)]
enum Kind {
    New,
    Next,
    Destroy,
}

/// The iterator's functions among the program's kfuncs.
fn kinds(context: Context<'_>) -> HashMap<u32, Kind> {
    let kfuncs = context.program.linked().kfuncs.iter().zip(0u32..);
    let kind = |name: &str| match name {
        "bpf_iter_num_new" => Some(Kind::New),
        "bpf_iter_num_next" => Some(Kind::Next),
        "bpf_iter_num_destroy" => Some(Kind::Destroy),
        _ => None,
    };
    kfuncs.filter_map(|(kfunc, index)| Some((index, kind(&kfunc.name)?))).collect()
}

/// Results of `next`, each with its iterator. Parameters that get only results of one iterator, as
/// in loops that compilers rotated, are included. `None` if such an address is used otherwise than
/// in loads and comparisons with 0: then it has to be a real address.
fn items(function: &Function, kinds: &HashMap<u32, Kind>) -> Option<HashMap<Value, Value>> {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let insts = definitions.iter().flatten().map(|&inst| function.inst(inst));
    let of_next = insts.filter_map(|data| {
        let Op::CallKfunc { kfunc, args } = &data.op else { return None };
        match (kinds.get(kfunc)?, &args[..]) {
            (Kind::Next, [Arg::Value(it)]) => Some((data.result?, *it)),
            _ => None,
        }
    });
    let mut items: HashMap<Value, Value> = of_next.collect();
    while add_params(function, &dominators, &mut items) {}
    let is_zero =
        |value: Value| matches!(definition(function, &definitions, value), Some(Op::Const(0)));
    let is_plain = |op: &Op| match op {
        Op::Load { .. } => true,
        Op::Compare(Cond::Eq | Cond::Ne, _, zero) if is_zero(*zero) => true,
        op => {
            let mut used = false;
            op.for_each_operand(|value| used |= items.contains_key(&value));
            !used
        }
    };
    for &block in dominators.order() {
        let data = function.block(block);
        let mut used = !data.insts.iter().all(|&inst| is_plain(&function.inst(inst).op));
        data.end.for_each_own_operand(|value| used |= items.contains_key(&value));
        for jump in data.end.jumps() {
            let mut passed = function.block(jump.target).params.iter().zip(&jump.args);
            used |=
                passed.any(|(param, arg)| items.contains_key(arg) && !items.contains_key(param));
        }
        if used {
            return None;
        }
    }
    Some(items)
}

/// Finds parameters whose arguments are all results of one iterator; gives whether there were any.
/// Blocks that pass such results are dominated by the iterator's definition, so the parameter is,
/// too.
fn add_params(
    function: &Function,
    dominators: &Dominators,
    items: &mut HashMap<Value, Value>,
) -> bool {
    let mut found = Vec::new();
    for &block in dominators.order().iter().skip(1) {
        for (index, &param) in function.block(block).params.iter().enumerate() {
            let preds = dominators.predecessors(block).iter();
            let jumps = preds.flat_map(|pred| function.block(*pred).end.jumps());
            let args = jumps.filter(|jump| jump.target == block).map(|jump| jump.args[index]);
            let mut of = args.filter(|arg| *arg != param).map(|arg| items.get(&arg));
            if let Some(Some(&it)) = of.next()
                && of.all(|other| other == Some(&it))
                && !items.contains_key(&param)
            {
                found.push((param, it));
            }
        }
    }
    items.extend(found.iter().copied());
    !found.is_empty()
}

impl Emitter<'_> {
    /// `bpf_iter_num_new(it, start, end)`: the stored number is one before the first.
    fn new_numbers(&mut self, it: Value, start: Value, end: Value) -> Op {
        let [start, end] =
            [start, end].map(|n| self.value(Type::I32, Op::Unary(UnaryOp::Trunc, n)));
        let [from, to] = [start, end].map(|n| self.value(Type::I64, Op::Unary(UnaryOp::Sext, n)));
        let backwards = self.value(Type::I32, Op::Compare(Cond::Sgt, from, to));
        let count = self.binary(BinaryOp::Sub, to, from);
        let max = self.constant(Type::I64, MAX_LOOPS.into());
        let many = self.value(Type::I32, Op::Compare(Cond::Sgt, count, max));
        let refused = self.binary(BinaryOp::Or, backwards, many);
        let zero = self.constant(Type::I32, 0);
        let before = self.binary_const(BinaryOp::Sub, start, 1);
        let current = self.value(Type::I32, Op::Select(refused, zero, before));
        let end = self.value(Type::I32, Op::Select(refused, zero, end));
        self.put_state(it, current, end);
        let none = self.constant(Type::I64, 0);
        let e2big = self.constant(Type::I64, Errno::E2BIG.to_reg());
        let einval = self.constant(Type::I64, Errno::EINVAL.to_reg());
        let result = self.value(Type::I64, Op::Select(many, e2big, none));
        Op::Select(backwards, einval, result)
    }

    /// `bpf_iter_num_next(it)`.
    fn next_number(&mut self, it: Value) -> Op {
        let [current, end] = [0, 4].map(|offset| {
            let op = Op::Load { place: number(it, offset), probe: false };
            self.value(Type::I32, op)
        });
        // The addition has 32 bits and wraps: a range from `INT_MIN` has `INT_MAX` before its first
        // number.
        let next = self.binary_const(BinaryOp::Add, current, 1);
        let done = self.value(Type::I32, Op::Compare(Cond::Sge, next, end));
        let zero = self.constant(Type::I32, 0);
        let next = self.value(Type::I32, Op::Select(done, zero, next));
        let end = self.value(Type::I32, Op::Select(done, zero, end));
        self.put_state(it, next, end);
        let none = self.constant(Type::I64, 0);
        Op::Select(done, none, it)
    }

    /// Stores a `struct bpf_iter_num_kern { int cur; int end; }`.
    fn put_state(&mut self, it: Value, current: Value, end: Value) {
        for (offset, value) in [(0, current), (4, end)] {
            self.push(None, Op::Store { place: number(it, offset), value });
        }
    }
}

fn number(it: Value, offset: i32) -> Place {
    Place { base: it, offset, width: Width::W32, alias: Alias::Stack }
}
