//! Replacements of values by others.

use crate::xir::{Function, Value};

/// `value -> value` replacements, followed to their end.
#[derive(Debug)]
pub(super) struct Replacements {
    by_value: Vec<Option<Value>>,
}

impl Replacements {
    pub(super) fn new(function: &Function) -> Self {
        Replacements { by_value: vec![None; function.values.len()] }
    }

    /// Replaces `old` by `new` from now on.
    pub(super) fn set(&mut self, old: Value, new: Value) {
        let new = self.resolve(new);
        if old != new {
            if self.by_value.len() <= old.0 as usize {
                self.by_value.resize(old.0 as usize + 1, None);
            }
            self.by_value[old.0 as usize] = Some(new);
        }
    }

    /// The value that finally replaces `value`.
    pub(super) fn resolve(&self, mut value: Value) -> Value {
        while let Some(Some(next)) = self.by_value.get(value.0 as usize) {
            value = *next;
        }
        value
    }

    /// Rewrites every operand of the function.
    pub(super) fn apply(&self, function: &mut Function) {
        for inst in &mut function.insts {
            inst.op.for_each_operand_mut(|value| *value = self.resolve(*value));
        }
        for block in &mut function.blocks {
            block.end.for_each_operand_mut(|value| *value = self.resolve(*value));
        }
    }
}
