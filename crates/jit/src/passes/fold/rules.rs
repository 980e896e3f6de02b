//! Simplifications, one function for each kind of instruction.

use super::{Folder, Simpler, constant};
use crate::xir::{
    BinaryOp, Block, Cond, CtxField, Inst, InstData, Op, Place, Type, UnaryOp, Value, Width,
};

/// Largest number of operations through which known bits are followed.
const BITS_DEPTH_MAX: u32 = 6;

/// One step of simplification; new instructions that it needs go to `kept`.
pub(super) fn simplify(
    folder: &mut Folder<'_>,
    _block: Block,
    data: &InstData,
    kept: &mut Vec<Inst>,
) -> Option<Simpler> {
    let ty = data.result.map(|result| folder.function.ty(result));
    let mut rewriter = Rewriter { folder, origin: data.origin, kept };
    match (&data.op, ty) {
        (Op::Unary(op, a), Some(ty)) => rewriter.unary(*op, *a, ty),
        (Op::Binary(op, a, b), Some(ty)) => rewriter.binary(*op, *a, *b, ty),
        (Op::Compare(cond, a, b), _) => rewriter.compare(*cond, *a, *b),
        (Op::Select(c, a, b), _) => rewriter.select(*c, *a, *b),
        (Op::Load { place, probe }, _) => {
            let place = rewriter.place(*place)?;
            Some(Simpler::Op(Op::Load { place, probe: *probe }))
        }
        (Op::Store { place, value }, _) => rewriter.store(*place, *value),
        (Op::AtomicRmw { place, op, value }, _) => {
            let place = rewriter.place(*place)?;
            Some(Simpler::Op(Op::AtomicRmw { place, op: *op, value: *value }))
        }
        (Op::StackStore(range, value), _) => {
            let width = Width::from_bytes(u32::from(range.len))?;
            let value = rewriter.without_upper_bits(*value, width)?;
            Some(Simpler::Op(Op::StackStore(*range, value)))
        }
        _ => None,
    }
}

pub(super) struct Rewriter<'a, 'f> {
    folder: &'a mut Folder<'f>,
    origin: u32,
    kept: &'a mut Vec<Inst>,
}

impl Rewriter<'_, '_> {
    pub(super) fn insert(&mut self, ty: Type, op: Op) -> Value {
        self.folder.insert(self.origin, ty, op, self.kept)
    }

    pub(super) fn insert_const(&mut self, ty: Type, value: u64) -> Value {
        self.insert(ty, Op::Const(value & ty.mask()))
    }

    pub(super) fn ty(&self, value: Value) -> Type {
        self.folder.function.ty(value)
    }

    pub(super) fn op(&self, value: Value) -> Option<Op> {
        self.folder.op(value).cloned()
    }

    pub(super) fn constant(&self, value: Value) -> Option<u64> {
        self.folder.constant(value)
    }

    /// The 32-bit value that `value` extends with zeros.
    fn narrow(&mut self, value: Value) -> Option<Value> {
        match self.op(value)? {
            Op::Unary(UnaryOp::Zext, narrow) => Some(narrow),
            Op::Const(c) if c <= u64::from(u32::MAX) && self.ty(value) == Type::I64 => {
                Some(self.insert_const(Type::I32, c))
            }
            _ => None,
        }
    }

    fn unary(&mut self, op: UnaryOp, a: Value, ty: Type) -> Option<Simpler> {
        let from = self.ty(a);
        let inner = self.op(a)?;
        if let Op::Const(c) = inner {
            return Some(Simpler::Op(Op::Const(constant::unary(op, from, ty, c))));
        }
        match (op, inner) {
            (UnaryOp::Trunc, Op::Unary(UnaryOp::Zext | UnaryOp::Sext, narrow)) => {
                Some(Simpler::Value(narrow))
            }
            (UnaryOp::Trunc, Op::Binary(op, x, y)) if is_low_bits_only(op) => {
                self.narrowed(op, x, y)
            }
            (UnaryOp::Zext, Op::Unary(UnaryOp::Trunc, wide))
                if self.bits(wide, BITS_DEPTH_MAX) <= u64::from(u32::MAX) =>
            {
                Some(Simpler::Value(wide))
            }
            (UnaryOp::Bswap16, Op::Unary(UnaryOp::Bswap16, x))
                if self.bits(x, BITS_DEPTH_MAX) <= 0xffff =>
            {
                Some(Simpler::Value(x))
            }
            (UnaryOp::Bswap32, Op::Unary(UnaryOp::Bswap32, x)) => Some(Simpler::Value(x)),
            (UnaryOp::Bswap64, Op::Unary(UnaryOp::Bswap64, x)) => Some(Simpler::Value(x)),
            _ => None,
        }
    }

    /// Computes `trunc (x op y)` in 32 bits if the operands exist in 32 bits anyway.
    fn narrowed(&mut self, op: BinaryOp, x: Value, y: Value) -> Option<Simpler> {
        let x = self.narrow_any(x)?;
        let y = self.narrow_any(y)?;
        Some(Simpler::Op(Op::Binary(op, x, y)))
    }

    /// The low half of a value that was extended from one.
    fn narrow_any(&mut self, value: Value) -> Option<Value> {
        match self.op(value)? {
            Op::Unary(UnaryOp::Zext | UnaryOp::Sext, narrow) => Some(narrow),
            Op::Const(c) => Some(self.insert_const(Type::I32, c)),
            _ => None,
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value, ty: Type) -> Option<Simpler> {
        let (left, right) = (self.folder.constant(a), self.folder.constant(b));
        match (left, right) {
            (Some(x), Some(y)) => Some(Simpler::Op(Op::Const(constant::binary(op, ty, x, y)))),
            (Some(_), None) if op.is_commutative() => Some(Simpler::Op(Op::Binary(op, b, a))),
            (_, Some(c)) => self
                .identity(op, a, c, ty)
                .or_else(|| self.strength(op, a, c, ty))
                .or_else(|| self.reassociate(op, a, c, ty))
                .or_else(|| self.shift_pair(op, a, c, ty))
                .or_else(|| self.shift_of_masked(op, a, b, ty))
                .or_else(|| self.shift_of_sum(op, a, b, ty))
                .or_else(|| self.shift_back(op, a, c, ty)),
            (_, None) if a == b => self.same_operands(op, a, ty),
            _ => self.same_source(op, a, b, ty).or_else(|| self.narrowed_zext(op, a, b, ty)),
        }
    }

    fn same_operands(&mut self, op: BinaryOp, a: Value, ty: Type) -> Option<Simpler> {
        match op {
            BinaryOp::Sub | BinaryOp::Xor => Some(Simpler::Value(self.insert_const(ty, 0))),
            BinaryOp::And | BinaryOp::Or => Some(Simpler::Value(a)),
            _ => None,
        }
    }

    /// Computes bitwise operations on two zero-extended values in 32 bits.
    fn narrowed_zext(&mut self, op: BinaryOp, a: Value, b: Value, ty: Type) -> Option<Simpler> {
        if ty != Type::I64 || !matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) {
            return None;
        }
        let (Some(Op::Unary(UnaryOp::Zext, x)), Some(Op::Unary(UnaryOp::Zext, y))) =
            (self.op(a), self.op(b))
        else {
            return None;
        };
        let narrow = self.insert(Type::I32, Op::Binary(op, x, y));
        Some(Simpler::Op(Op::Unary(UnaryOp::Zext, narrow)))
    }

    fn identity(&mut self, op: BinaryOp, a: Value, c: u64, ty: Type) -> Option<Simpler> {
        use BinaryOp::{AShr, Add, And, LShr, Mul, Or, SDiv, Shl, Sub, UDiv, Xor};
        match (op, c) {
            (Add | Sub | Or | Xor | Shl | LShr | AShr, 0) => Some(Simpler::Value(a)),
            (Mul | UDiv | SDiv, 1) => Some(Simpler::Value(a)),
            (Mul | And, 0) => Some(Simpler::Op(Op::Const(0))),
            (And, mask) if self.bits(a, BITS_DEPTH_MAX) & !mask & ty.mask() == 0 => {
                Some(Simpler::Value(a))
            }
            _ => None,
        }
    }

    fn strength(&mut self, op: BinaryOp, a: Value, c: u64, ty: Type) -> Option<Simpler> {
        let (op, operand) = match op {
            BinaryOp::Sub => (BinaryOp::Add, c.wrapping_neg()),
            BinaryOp::Mul if c.is_power_of_two() => (BinaryOp::Shl, u64::from(c.trailing_zeros())),
            BinaryOp::UDiv if c.is_power_of_two() => {
                (BinaryOp::LShr, u64::from(c.trailing_zeros()))
            }
            BinaryOp::URem if c.is_power_of_two() => (BinaryOp::And, c - 1),
            BinaryOp::And if ty == Type::I64 && c <= u64::from(u32::MAX) => {
                return self.narrow_and(a, c);
            }
            _ => return None,
        };
        let operand = self.insert_const(ty, operand);
        Some(Simpler::Op(Op::Binary(op, a, operand)))
    }

    /// Computes a 64-bit `and` with a 32-bit mask on the low half only.
    fn narrow_and(&mut self, a: Value, mask: u64) -> Option<Simpler> {
        let low = self.narrow(a)?;
        let mask = self.insert_const(Type::I32, mask);
        let narrow = self.insert(Type::I32, Op::Binary(BinaryOp::And, low, mask));
        Some(Simpler::Op(Op::Unary(UnaryOp::Zext, narrow)))
    }

    /// Turns `(x op c1) op c2` into `x op (c1 op c2)`, and moves constants into addresses.
    fn reassociate(&mut self, op: BinaryOp, a: Value, c: u64, ty: Type) -> Option<Simpler> {
        match (op, self.op(a)?) {
            (BinaryOp::Add, Op::StackAddr(offset)) => {
                let offset = i64::from(offset).wrapping_add(c as i64);
                Some(Simpler::Op(Op::StackAddr(i16::try_from(offset).ok()?)))
            }
            (BinaryOp::Add, Op::MapValueAddr { map, offset }) => {
                let offset = i64::from(offset).wrapping_add(c as i64);
                Some(Simpler::Op(Op::MapValueAddr { map, offset: u32::try_from(offset).ok()? }))
            }
            (_, Op::Binary(inner, x, y)) if inner == op && op.is_commutative() => {
                let first = self.folder.constant(y)?;
                let both = self.insert_const(ty, constant::binary(op, ty, first, c));
                Some(Simpler::Op(Op::Binary(op, x, both)))
            }
            _ => None,
        }
    }

    /// Simplifies a left and a right shift by one count, which `-mcpu=v1` and `v2` use for
    /// extensions.
    fn shift_pair(&mut self, op: BinaryOp, a: Value, c: u64, ty: Type) -> Option<Simpler> {
        let Op::Binary(BinaryOp::Shl, x, y) = self.op(a)? else { return None };
        if self.folder.constant(y)? != c || c == 0 || c >= u64::from(ty.bits()) {
            return None;
        }
        let left = u64::from(ty.bits()) - c;
        match (op, left) {
            (BinaryOp::LShr, _) => {
                let mask = self.insert_const(ty, (1 << left) - 1);
                Some(Simpler::Op(Op::Binary(BinaryOp::And, x, mask)))
            }
            (BinaryOp::AShr, 32) => {
                let low = self.insert(Type::I32, Op::Unary(UnaryOp::Trunc, x));
                Some(Simpler::Op(Op::Unary(UnaryOp::Sext, low)))
            }
            (BinaryOp::AShr, 16) => Some(Simpler::Op(Op::Unary(UnaryOp::Sext16, x))),
            (BinaryOp::AShr, 8) => Some(Simpler::Op(Op::Unary(UnaryOp::Sext8, x))),
            _ => None,
        }
    }

    fn compare(&mut self, cond: Cond, a: Value, b: Value) -> Option<Simpler> {
        let ty = self.ty(a);
        match (self.folder.constant(a), self.folder.constant(b)) {
            (Some(x), Some(y)) => {
                let holds = constant::compare(cond, ty, x, y);
                Some(Simpler::Op(Op::Const(holds.into())))
            }
            (Some(_), None) => Some(Simpler::Op(Op::Compare(swapped(cond), b, a))),
            _ if a == b => {
                let holds = constant::compare(cond, ty, 0, 0);
                Some(Simpler::Op(Op::Const(holds.into())))
            }
            (None, Some(c)) => self.compare_with(cond, a, b, c),
            // Other passes recognise an address in the packet and its end in this order.
            (None, None) if self.is_end(a) && !self.is_end(b) => {
                Some(Simpler::Op(Op::Compare(swapped(cond), b, a)))
            }
            (None, None) => self.narrow_compare(cond, a, b),
        }
    }

    fn is_end(&self, value: Value) -> bool {
        matches!(self.op(value), Some(Op::CtxLoad(CtxField::DataEnd)))
    }

    fn compare_with(&mut self, cond: Cond, a: Value, b: Value, c: u64) -> Option<Simpler> {
        self.known_comparison(cond, a, c).or_else(|| match (cond, c) {
            (Cond::Eq | Cond::Ne, 0) => self.zero_test(cond, a, b),
            (Cond::Eq | Cond::Ne, _) => {
                self.equality(cond, a, c).or_else(|| self.narrow_compare(cond, a, b))
            }
            _ => self.narrow_compare(cond, a, b),
        })
    }

    /// Simplifies tests for 0: an address is not 0; `(x cmp y) != 0` is the comparison itself, `==
    /// 0` its negation.
    fn zero_test(&mut self, cond: Cond, a: Value, zero: Value) -> Option<Simpler> {
        if self.is_address(a) {
            return Some(Simpler::Op(Op::Const((cond == Cond::Ne).into())));
        }
        match (self.op(a), cond) {
            (Some(Op::Select(c, address, null)), _)
                if self.is_address(address) && self.folder.constant(null) == Some(0) =>
            {
                let none = self.insert_const(Type::I32, 0);
                Some(Simpler::Op(Op::Compare(cond, c, none)))
            }
            (Some(Op::Select(c, null, address)), _)
                if self.is_address(address) && self.folder.constant(null) == Some(0) =>
            {
                let none = self.insert_const(Type::I32, 0);
                Some(Simpler::Op(Op::Compare(cond.negated(), c, none)))
            }
            (Some(Op::Compare(..)), Cond::Ne) => Some(Simpler::Value(a)),
            (Some(Op::Compare(inner, x, y)), Cond::Eq) => {
                Some(Simpler::Op(Op::Compare(inner.negated(), x, y)))
            }
            _ => self.narrow_compare(cond, a, zero),
        }
    }

    /// Whether a value is an address inside a map or packet, hence not 0.
    fn is_address(&self, value: Value) -> bool {
        match self.folder.op(value) {
            Some(Op::MapValueAddr { .. } | Op::CtxLoad(CtxField::Data)) => true,
            Some(Op::Binary(BinaryOp::Add, base, _)) => self.is_address(*base),
            _ => false,
        }
    }

    /// Compares the 32-bit sources of two zero-extended values, unsigned.
    fn narrow_compare(&mut self, cond: Cond, a: Value, b: Value) -> Option<Simpler> {
        if self.ty(a) != Type::I64 || !matches!(self.op(a), Some(Op::Unary(UnaryOp::Zext, _))) {
            return None;
        }
        // Both are below 2^32, hence not negative as 64-bit numbers.
        let b = self.narrow(b)?;
        let a = self.narrow(a)?;
        Some(Simpler::Op(Op::Compare(unsigned(cond), a, b)))
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Option<Simpler> {
        match self.folder.constant(c) {
            Some(0) => Some(Simpler::Value(b)),
            Some(_) => Some(Simpler::Value(a)),
            None => (a == b).then_some(Simpler::Value(a)),
        }
    }

    fn store(&mut self, place: Place, value: Value) -> Option<Simpler> {
        let new_place = self.place(place);
        let new_value = self.without_upper_bits(value, place.width);
        if new_place.is_none() && new_value.is_none() {
            return None;
        }
        Some(Simpler::Op(Op::Store {
            place: new_place.unwrap_or(place),
            value: new_value.unwrap_or(value),
        }))
    }

    /// Moves a constant that is added to the base into the offset.
    fn place(&mut self, place: Place) -> Option<Place> {
        let Op::Binary(BinaryOp::Add, base, constant) = self.op(place.base)? else { return None };
        let constant = self.folder.constant(constant)? as i64;
        let offset = i32::try_from(constant.checked_add(i64::from(place.offset))?).ok()?;
        Some(Place { base, offset, ..place })
    }

    /// Removes operations that only clear or set bits above a narrow store's width.
    fn without_upper_bits(&mut self, value: Value, width: Width) -> Option<Value> {
        let stored = match width {
            Width::W8 => 0xff,
            Width::W16 => 0xffff,
            Width::W32 | Width::W64 => return None,
        };
        match self.op(value)? {
            Op::Binary(BinaryOp::And, x, mask)
                if self.folder.constant(mask)? & stored == stored =>
            {
                Some(x)
            }
            Op::Unary(UnaryOp::Sext16, x) => Some(x),
            Op::Unary(UnaryOp::Sext8, x) if width == Width::W8 => Some(x),
            _ => None,
        }
    }

    /// Bits that may be 1 in a value.
    pub(super) fn possible(&self, value: Value) -> u64 {
        self.bits(value, BITS_DEPTH_MAX)
    }

    fn bits(&self, value: Value, depth: u32) -> u64 {
        bits(self.folder, value, depth)
    }

    pub(super) fn possible_bits(&self, value: Value) -> u64 {
        possible_bits(self.folder, value)
    }
}

/// Bits that may be 1 in a value.
pub(super) fn possible_bits(folder: &Folder<'_>, value: Value) -> u64 {
    bits(folder, value, BITS_DEPTH_MAX)
}

fn bits(folder: &Folder<'_>, value: Value, depth: u32) -> u64 {
    let ty = folder.function.ty(value);
    let all = ty.mask();
    let Some(op) = folder.op(value) else {
        return folder.param_bits.get(value.0 as usize).map_or(all, |bits| bits & all);
    };
    let Some(depth) = depth.checked_sub(1) else { return all };
    let of = |operand: Value| bits(folder, operand, depth);
    match op {
        Op::Const(c) => *c & all,
        Op::Load { place, .. } | Op::LoadAcquire(place) => width_mask(place.width),
        Op::StackLoad(range) => Width::from_bytes(u32::from(range.len)).map_or(all, width_mask),
        Op::Compare(..) => 1,
        Op::Unary(UnaryOp::Zext, x) => of(*x),
        Op::Unary(UnaryOp::Trunc, x) => of(*x) & all,
        Op::Unary(UnaryOp::Bswap16, _) => 0xffff,
        Op::Unary(UnaryOp::Bswap32, _) => u64::from(u32::MAX),
        Op::Binary(BinaryOp::And, x, y) => of(*x) & of(*y),
        Op::Binary(BinaryOp::Or | BinaryOp::Xor, x, y) => of(*x) | of(*y),
        // No bit below both operands' lowest ones can be 1.
        Op::Binary(BinaryOp::Add | BinaryOp::Sub, x, y) => match of(*x) | of(*y) {
            0 => 0,
            either => all & u64::MAX << either.trailing_zeros(),
        },
        Op::Binary(shift @ (BinaryOp::Shl | BinaryOp::LShr), x, count) => {
            match folder.constant(*count) {
                Some(count) => constant::binary(*shift, ty, of(*x), count),
                None => all,
            }
        }
        Op::Select(_, x, y) => of(*x) | of(*y),
        _ => all,
    }
}

/// Whether the low half of the result depends on the low halves of the operands only.
fn is_low_bits_only(op: BinaryOp) -> bool {
    use BinaryOp::{Add, And, Mul, Or, Sub, Xor};
    matches!(op, Add | Sub | Mul | And | Or | Xor)
}

fn width_mask(width: Width) -> u64 {
    u64::MAX >> (64 - 8 * width.bytes())
}

/// The comparison for exchanged operands.
fn swapped(cond: Cond) -> Cond {
    match cond {
        Cond::Eq | Cond::Ne => cond,
        Cond::Ult => Cond::Ugt,
        Cond::Ule => Cond::Uge,
        Cond::Ugt => Cond::Ult,
        Cond::Uge => Cond::Ule,
        Cond::Slt => Cond::Sgt,
        Cond::Sle => Cond::Sge,
        Cond::Sgt => Cond::Slt,
        Cond::Sge => Cond::Sle,
    }
}

fn unsigned(cond: Cond) -> Cond {
    match cond {
        Cond::Slt => Cond::Ult,
        Cond::Sle => Cond::Ule,
        Cond::Sgt => Cond::Ugt,
        Cond::Sge => Cond::Uge,
        other => other,
    }
}
