//! Addresses that are invalid where a branch was mispredicted (Spectre v1).
//!
//! A masked function carries a word that is all ones on the path that the program takes. Each edge
//! of a branch updates it from the branch's own condition, by a conditional move, which no
//! processor predicts: where a processor runs ahead on the other edge, the word is 0. Every address
//! that is not constant goes through an `and` with it, and so does every argument of a call. A
//! mispredicted read is then at address 0, where nothing is mapped, and leaves no trace that
//! depends on memory. This is LLVM's speculative load hardening with addresses hardened;
//! `docs/adr/0011-masks.md` says why it is sound.

use std::collections::HashMap;

use cranelift_codegen::ir::{self, BlockArg, InstBuilder, types};
use cranelift_frontend::Variable;

use super::barrier;
use super::lower::Lowering;

/// State of a masked function during translation.
pub(super) struct Masks {
    /// All ones as long as every branch since the last barrier went as its condition says, else 0.
    state: Variable,
    block: Option<ir::Block>,
    /// Values that were masked in this block, by original value.
    in_block: HashMap<ir::Value, ir::Value>,
}

/// Target and arguments of an edge.
pub(super) type Way<'a> = (ir::Block, &'a [BlockArg]);

impl Lowering<'_, '_> {
    /// Begins a masked function, with `state` if there was a branch before it.
    pub(super) fn begin_masks(&mut self, state: Option<ir::Value>) {
        if !self.module.masked {
            return;
        }
        let variable = self.builder.declare_var(types::I64);
        self.masks = Some(Masks { state: variable, block: None, in_block: HashMap::new() });
        match state {
            Some(state) => self.builder.def_var(variable, state),
            // The call that entered it may have been predicted.
            None => self.barrier(),
        }
    }

    /// Branches to the first target if a condition holds, else to the second.
    pub(super) fn branch(&mut self, condition: ir::Value, [yes, no]: [Way<'_>; 2]) {
        if self.masks.is_none() {
            self.builder.ins().brif(condition, yes.0, yes.1, no.0, no.1);
            return;
        }
        let edges = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(condition, edges[0], &[], edges[1], &[]);
        for (edge, (target, args), holds) in [(edges[0], yes, true), (edges[1], no, false)] {
            if self.builder.func.layout.is_cold(target) {
                self.builder.set_cold_block(edge);
            }
            self.builder.switch_to_block(edge);
            self.follow(condition, holds);
            self.builder.ins().jump(target, args);
        }
    }

    /// Updates the state on the edge that is taken if a condition holds, or does not.
    pub(super) fn follow(&mut self, condition: ir::Value, holds: bool) {
        let Some(state) = self.masks.as_ref().map(|masks| masks.state) else { return };
        let before = self.builder.use_var(state);
        let none = self.iconst(0);
        let (yes, no) = if holds { (before, none) } else { (none, before) };
        let after = self.builder.ins().select_spectre_guard(condition, yes, no);
        self.builder.def_var(state, after);
    }

    /// A select, which processors must not predict.
    pub(super) fn select(&mut self, c: ir::Value, a: ir::Value, b: ir::Value) -> ir::Value {
        match self.masks {
            Some(_) => self.builder.ins().select_spectre_guard(c, a, b),
            None => self.builder.ins().select(c, a, b),
        }
    }

    /// A masked value: 0 if a branch was mispredicted.
    pub(super) fn masked(&mut self, value: ir::Value) -> ir::Value {
        let here = self.builder.current_block();
        let Some(state) = self.masks.as_ref().map(|masks| masks.state) else { return value };
        let state = self.builder.use_var(state);
        // Constants were checked by no branch; directly behind a barrier nothing is predicted.
        if self.number(value).is_some() || self.number(state) == Some(ALL_ONES) {
            return value;
        }
        let masked = self.builder.ins().band(value, state);
        match &mut self.masks {
            Some(masks) => masks.noted(here, value, masked),
            None => masked,
        }
    }

    /// A masked base address, and the remaining offset.
    pub(super) fn masked_place(&mut self, base: ir::Value, offset: i32) -> (ir::Value, i32) {
        if self.masks.is_none() || self.number(base).is_some() {
            return (base, offset);
        }
        if NOWHERE.contains(&offset) {
            return (self.masked(base), offset);
        }
        let address = self.builder.ins().iadd_imm_s(base, i64::from(offset));
        (self.masked(address), 0)
    }

    /// Emits a barrier: all results in front of it are known before any instruction behind it runs.
    pub(super) fn barrier(&mut self) {
        let Some(state) = self.masks.as_ref().map(|masks| masks.state) else { return };
        barrier::write(&mut self.builder, self.origin);
        let all_ones = self.builder.ins().iconst(types::I64, ALL_ONES);
        self.builder.def_var(state, all_ones);
    }
}

impl Masks {
    /// The masked form of a value that was recorded first in a block, for all accesses.
    fn noted(
        &mut self,
        block: Option<ir::Block>,
        value: ir::Value,
        masked: ir::Value,
    ) -> ir::Value {
        if self.block != block {
            self.block = block;
            self.in_block.clear();
        }
        *self.in_block.entry(value).or_insert(masked)
    }
}

/// The state on the path that the program takes.
const ALL_ONES: i64 = -1;

/// Offsets from address 0 at which no process has memory: its first page, and the end of the
/// kernel's half, which no kernel maps. Its start is as low as a stack below a frame pointer at 0.
const NOWHERE: std::ops::Range<i32> = -512..4088;
