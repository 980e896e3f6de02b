//! Values that are used as addresses, and the values that they were computed from.
//!
//! XIR's addresses are numbers. LLVM's alias analysis works on pointers: for a base plus an offset,
//! an access through "base pointer, offset" tells it which accesses of one object can't overlap,
//! and a number cast to a pointer does not.

use crate::xir::{BinaryOp, Block, CtxField, Dominators, Function, Op, Value};

/// The way to make the pointer form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A cast of the number itself.
    Number,
    /// The pointer form of another value, plus a number of bytes.
    Offset(Value, i64),
    /// The pointer form of one value, plus the number of bytes in another.
    Indexed(Value, Value),
    /// A select between two pointer forms.
    Select(Value, Value, Value),
    /// A block parameter whose arguments have pointer forms.
    Param,
}

/// The form of each value whose pointer form is needed.
#[derive(Debug)]
pub(super) struct Pointers {
    forms: Vec<Option<Form>>,
}

impl Pointers {
    /// Finds the forms for a function whose reachable blocks are `dominators.order()`.
    pub(super) fn find(function: &Function, dominators: &Dominators) -> Self {
        let mut finder = Finder {
            function,
            ops: vec![None; function.values.len()],
            like: vec![false; function.values.len()],
            args: vec![Vec::new(); function.values.len()],
            is_param: vec![false; function.values.len()],
        };
        finder.read(dominators.order());
        while finder.spread() {}
        Pointers { forms: finder.forms(dominators.order()) }
    }

    /// The pointer form of a value, if it is needed.
    pub(super) fn form(&self, value: Value) -> Option<Form> {
        self.forms[value.0 as usize]
    }
}

struct Finder<'a> {
    function: &'a Function,
    ops: Vec<Option<&'a Op>>,
    /// Values that are certainly addresses.
    like: Vec<bool>,
    /// Arguments of jumps for each block parameter.
    args: Vec<Vec<Value>>,
    is_param: Vec<bool>,
}

impl<'a> Finder<'a> {
    fn read(&mut self, order: &[Block]) {
        let function: &'a Function = self.function;
        for &block in order {
            let data = function.block(block);
            for &inst in &data.insts {
                let inst = function.inst(inst);
                if let Some(result) = inst.result {
                    self.ops[result.0 as usize] = Some(&inst.op);
                    self.like[result.0 as usize] = is_root(&inst.op);
                }
            }
            for jump in data.end.jumps() {
                for (&param, &arg) in function.block(jump.target).params.iter().zip(&jump.args) {
                    self.args[param.0 as usize].push(arg);
                    // The entry's parameters come from outside as well.
                    self.is_param[param.0 as usize] = jump.target != Function::ENTRY;
                }
            }
        }
    }

    /// One round of the search: a value computed from one address and numbers is an address.
    fn spread(&mut self) -> bool {
        let mut changed = false;
        for value in 0..self.like.len() {
            if self.like[value] {
                continue;
            }
            let like = |v: &Value| self.like[v.0 as usize];
            let is_like = match self.ops[value] {
                Some(Op::Binary(BinaryOp::Add, a, b)) => like(a) != like(b),
                Some(Op::Binary(BinaryOp::Sub, a, b)) => like(a) && !like(b),
                Some(Op::Select(_, a, b)) => like(a) || like(b),
                Some(_) => false,
                None => self.is_param[value] && self.args[value].iter().any(like),
            };
            if is_like {
                self.like[value] = true;
                changed = true;
            }
        }
        changed
    }

    fn form(&self, value: Value) -> Form {
        let like = |v: Value| self.like[v.0 as usize];
        match self.ops[value.0 as usize] {
            Some(&Op::Binary(BinaryOp::Add, a, b)) => match (self.constant(a), self.constant(b)) {
                (_, Some(offset)) => Form::Offset(a, offset),
                (Some(offset), None) => Form::Offset(b, offset),
                (None, None) if like(a) && !like(b) => Form::Indexed(a, b),
                (None, None) if like(b) && !like(a) => Form::Indexed(b, a),
                (None, None) => Form::Number,
            },
            Some(&Op::Binary(BinaryOp::Sub, a, b)) => match self.constant(b) {
                Some(offset) => Form::Offset(a, offset.wrapping_neg()),
                None => Form::Number,
            },
            Some(&Op::Select(condition, a, b)) if like(value) => Form::Select(condition, a, b),
            None if like(value) && self.is_param[value.0 as usize] => Form::Param,
            _ => Form::Number,
        }
    }

    fn constant(&self, value: Value) -> Option<i64> {
        match self.ops[value.0 as usize] {
            Some(Op::Const(constant)) => Some(*constant as i64),
            _ => None,
        }
    }

    /// Pointer forms of all bases of accesses, and of the values that these forms need.
    fn forms(&self, order: &[Block]) -> Vec<Option<Form>> {
        let mut forms = vec![None; self.function.values.len()];
        let mut wanted = Vec::new();
        for &block in order {
            for &inst in &self.function.block(block).insts {
                wanted.extend(base(&self.function.inst(inst).op));
            }
        }
        while let Some(value) = wanted.pop() {
            if forms[value.0 as usize].is_some() {
                continue;
            }
            let form = self.form(value);
            forms[value.0 as usize] = Some(form);
            match form {
                Form::Number => {}
                Form::Offset(base, _) | Form::Indexed(base, _) => wanted.push(base),
                Form::Select(_, a, b) => wanted.extend([a, b]),
                Form::Param => wanted.extend(&self.args[value.0 as usize]),
            }
        }
        forms
    }
}

/// Whether an instruction's result is an address for any use of it.
fn is_root(op: &Op) -> bool {
    match op {
        Op::CtxLoad(field) => {
            matches!(field, CtxField::Data | CtxField::DataEnd | CtxField::DataMeta)
        }
        Op::MapValueAddr { .. } | Op::StackAddr(_) | Op::MapLookup { .. } => true,
        _ => false,
    }
}

/// The base of an instruction's access to memory.
fn base(op: &Op) -> Option<Value> {
    match op {
        Op::Load { place, probe: false }
        | Op::Store { place, .. }
        | Op::AtomicRmw { place, .. }
        | Op::CompareExchange { place, .. }
        | Op::LoadAcquire(place)
        | Op::StoreRelease { place, .. } => Some(place.base),
        _ => None,
    }
}
