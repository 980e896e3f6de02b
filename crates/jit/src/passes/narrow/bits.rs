//! Bits of each value that may be 1, and bits that are used.

use crate::xir::{BinaryOp, Dominators, Function, InstData, Op, Type, UnaryOp, Value, Width};

/// Largest number of rounds of the search for used bits; loops may need a few.
const ROUNDS_MAX: usize = 10;

/// Bits by value.
#[derive(Debug)]
pub(super) struct Bits {
    possible: Vec<u64>,
    demanded: Vec<u64>,
    constants: Vec<Option<u64>>,
}

impl Bits {
    /// Computes the bits; `None` if the search takes too long.
    pub(super) fn of(function: &Function, dominators: &Dominators) -> Option<Self> {
        let mut bits = Bits {
            possible: function.values.iter().map(|ty| ty.mask()).collect(),
            demanded: vec![0; function.values.len()],
            constants: vec![None; function.values.len()],
        };
        let insts = dominators.order().iter().flat_map(|&block| &function.block(block).insts);
        for &inst in insts {
            let data = function.inst(inst);
            if let Some(result) = data.result {
                bits.possible[result.0 as usize] = bits.possible_of(function, data, result);
                if let Op::Const(constant) = data.op {
                    bits.constants[result.0 as usize] = Some(constant);
                }
            }
        }
        (0..ROUNDS_MAX).any(|_| !bits.demand(function, dominators)).then_some(bits)
    }

    /// Bits that may be 1.
    pub(super) fn possible(&self, value: Value) -> u64 {
        self.possible[value.0 as usize]
    }

    /// Bits that the users of the value depend on.
    pub(super) fn demanded(&self, value: Value) -> u64 {
        self.demanded[value.0 as usize]
    }

    pub(super) fn constant(&self, value: Value) -> Option<u64> {
        self.constants[value.0 as usize]
    }

    fn possible_of(&self, function: &Function, data: &InstData, result: Value) -> u64 {
        let all = function.ty(result).mask();
        match data.op {
            Op::Const(constant) => constant,
            Op::Load { place, .. } | Op::LoadAcquire(place) => width_mask(place.width),
            Op::Compare(..) => 1,
            Op::Unary(UnaryOp::Zext | UnaryOp::Trunc, a) => self.possible(a) & all,
            Op::Unary(UnaryOp::Bswap16, _) => 0xffff,
            Op::Unary(UnaryOp::Bswap32, _) => u64::from(u32::MAX),
            Op::Binary(BinaryOp::And, a, b) => self.possible(a) & self.possible(b),
            Op::Binary(BinaryOp::Or | BinaryOp::Xor, a, b) => self.possible(a) | self.possible(b),
            Op::Binary(BinaryOp::Shl, a, b) => {
                self.count(function, b).map_or(all, |count| self.possible(a) << count & all)
            }
            Op::Binary(BinaryOp::LShr, a, b) => {
                self.count(function, b).map_or(all, |count| self.possible(a) >> count)
            }
            Op::Select(_, a, b) => self.possible(a) | self.possible(b),
            _ => all,
        }
    }

    /// The constant count of a shift, modulo the width.
    fn count(&self, function: &Function, value: Value) -> Option<u32> {
        let constant = self.constant(value)?;
        Some(constant as u32 & (function.ty(value).bits() - 1))
    }

    /// One backward walk; gives whether it added a bit.
    fn demand(&mut self, function: &Function, dominators: &Dominators) -> bool {
        let mut changed = false;
        for &block in dominators.order().iter().rev() {
            let data = function.block(block);
            for jump in data.end.jumps() {
                for (&param, &arg) in function.block(jump.target).params.iter().zip(&jump.args) {
                    changed |= self.add(arg, self.demanded(param));
                }
            }
            data.end.for_each_own_operand(|value| changed |= self.add(value, u64::MAX));
            for &inst in data.insts.iter().rev() {
                changed |= self.demand_of(function, function.inst(inst));
            }
        }
        changed
    }

    fn add(&mut self, value: Value, bits: u64) -> bool {
        let known = &mut self.demanded[value.0 as usize];
        let changed = bits & !*known != 0;
        *known |= bits;
        changed
    }

    fn demand_of(&mut self, function: &Function, data: &InstData) -> bool {
        let wanted = data.result.map_or(0, |result| self.demanded(result));
        match data.op {
            Op::Unary(op, a) => self.add(a, unary_demand(op, wanted, function.ty(a))),
            Op::Binary(op, a, b) => self.binary_demand(function, op, (a, b), wanted),
            Op::Select(c, a, b) => {
                let changed = wanted != 0 && self.add(c, u64::MAX);
                changed | self.add(a, wanted) | self.add(b, wanted)
            }
            Op::Store { place, value } => {
                self.add(place.base, u64::MAX) | self.add(value, width_mask(place.width))
            }
            Op::StackStore(range, value) => {
                let width = Width::from_bytes(range.len.into());
                self.add(value, width.map_or(u64::MAX, width_mask))
            }
            ref op => {
                let mut changed = false;
                if wanted != 0 || !op.is_pure() {
                    op.for_each_operand(|value| changed |= self.add(value, u64::MAX));
                }
                changed
            }
        }
    }

    fn binary_demand(
        &mut self,
        function: &Function,
        op: BinaryOp,
        (a, b): (Value, Value),
        wanted: u64,
    ) -> bool {
        if wanted == 0 {
            return false;
        }
        let all = function.ty(a).mask();
        match op {
            // Carries go upwards only.
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => {
                let below = u64::MAX >> wanted.leading_zeros();
                self.add(a, below) | self.add(b, below)
            }
            BinaryOp::And => {
                let (in_a, in_b) = (self.possible(a), self.possible(b));
                self.add(a, wanted & in_b) | self.add(b, wanted & in_a)
            }
            BinaryOp::Or | BinaryOp::Xor => self.add(a, wanted) | self.add(b, wanted),
            BinaryOp::Shl | BinaryOp::LShr => {
                let Some(count) = self.count(function, b) else {
                    return self.add(a, all) | self.add(b, all);
                };
                let moved = match op {
                    BinaryOp::Shl => wanted >> count,
                    _ => wanted << count & all,
                };
                self.add(a, moved) | self.add(b, all)
            }
            _ => self.add(a, all) | self.add(b, all),
        }
    }
}

fn unary_demand(op: UnaryOp, wanted: u64, ty: Type) -> u64 {
    let sign = |bits: u32| {
        let below = (1u64 << bits) - 1;
        let top = if wanted & !below != 0 { 1 << (bits - 1) } else { 0 };
        wanted & below | top
    };
    match op {
        UnaryOp::Zext => wanted & u64::from(u32::MAX),
        UnaryOp::Trunc => wanted,
        UnaryOp::Sext => sign(32),
        UnaryOp::Sext8 => sign(8),
        UnaryOp::Sext16 => sign(16),
        _ if wanted == 0 => 0,
        UnaryOp::Bswap16 => 0xffff,
        UnaryOp::Bswap32 => u64::from(u32::MAX),
        UnaryOp::Bswap64 => ty.mask(),
    }
}

fn width_mask(width: Width) -> u64 {
    u64::MAX >> (64 - 8 * width.bytes())
}
