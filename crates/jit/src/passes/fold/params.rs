//! Bits of block parameters that may be 1: those that are 1 in the argument of some jump.

use super::Folder;
use super::rules::possible_bits;
use crate::xir::Dominators;

/// Largest number of walks over the function before the search gives up; loops need a few.
const ROUNDS_MAX: usize = 6;

impl Folder<'_> {
    /// Finds the possible bits of all parameters. It begins with none, and bits are only ever
    /// added: once a walk adds none, the result holds around every loop.
    pub(super) fn find_param_bits(&mut self, dominators: &Dominators) {
        self.param_bits = vec![0; self.function.values.len()];
        if let Some(entry) = self.function.blocks.first() {
            for &param in &entry.params {
                self.param_bits[param.0 as usize] = self.function.ty(param).mask();
            }
        }
        if !(0..ROUNDS_MAX).any(|_| !self.add_param_bits(dominators)) {
            self.param_bits.fill(u64::MAX);
        }
    }

    /// One walk; gives whether it added a bit.
    fn add_param_bits(&mut self, dominators: &Dominators) -> bool {
        let mut changed = false;
        for &block in dominators.order() {
            for jump in self.function.block(block).end.jumps() {
                for (&param, &arg) in self.function.block(jump.target).params.iter().zip(&jump.args)
                {
                    let known = self.param_bits[param.0 as usize];
                    if known == self.function.ty(param).mask() {
                        continue;
                    }
                    let bits = known | possible_bits(self, arg);
                    changed |= bits != known;
                    self.param_bits[param.0 as usize] = bits;
                }
            }
        }
        changed
    }
}
