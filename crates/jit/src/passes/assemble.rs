//! Appending instructions: single ones, and values assembled from pieces of others.

use crate::xir::{BinaryOp, Function, Inst, InstData, Op, Type, UnaryOp, Value, Width};

/// Appends instructions to a list that becomes a block's, or part of it.
pub(super) struct Assembler<'a> {
    pub(super) function: &'a mut Function,
    pub(super) insts: Vec<Inst>,
    /// BPF instruction that the new ones belong to.
    pub(super) origin: u32,
}

/// Some bytes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) value: Value,
    /// Index of the first byte, from the low end.
    pub(super) first: u32,
    /// Number of bytes.
    pub(super) count: u32,
    /// Whether bits above them are known to be 0.
    pub(super) is_clean: bool,
}

impl<'a> Assembler<'a> {
    pub(super) fn new(function: &'a mut Function, origin: u32) -> Self {
        Assembler { function, insts: Vec::new(), origin }
    }

    /// Appends an instruction that defines a value.
    pub(super) fn value(&mut self, ty: Type, op: Op) -> Value {
        let result = self.function.add_value(ty);
        self.push(Some(result), op);
        result
    }

    /// Appends an instruction.
    pub(super) fn push(&mut self, result: Option<Value>, op: Op) {
        let inst = self.function.add_inst(InstData { op, result, origin: self.origin });
        self.insts.push(inst);
    }

    pub(super) fn constant(&mut self, ty: Type, value: u64) -> Value {
        self.value(ty, Op::Const(value & ty.mask()))
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.function.ty(a);
        self.value(ty, Op::Binary(op, a, b))
    }

    /// Appends `op a, constant`.
    pub(super) fn binary_const(&mut self, op: BinaryOp, a: Value, constant: u64) -> Value {
        let constant = self.constant(self.function.ty(a), constant);
        self.binary(op, a, constant)
    }

    pub(super) fn zext(&mut self, value: Value) -> Value {
        self.value(Type::I64, Op::Unary(UnaryOp::Zext, value))
    }

    /// The value in another width: truncated or zero-extended.
    pub(super) fn resized(&mut self, value: Value, ty: Type) -> Value {
        match (self.function.ty(value), ty) {
            (Type::I64, Type::I32) => self.value(ty, Op::Unary(UnaryOp::Trunc, value)),
            (Type::I32, Type::I64) => self.value(ty, Op::Unary(UnaryOp::Zext, value)),
            _ => value,
        }
    }

    /// The bytes as the low ones of a value of type `ty`, whose other bits are 0.
    pub(super) fn extracted(&mut self, bytes: Bytes, ty: Type) -> Value {
        let mut value = bytes.value;
        if bytes.first > 0 {
            value = self.binary_const(BinaryOp::LShr, value, u64::from(bytes.first) * 8);
        }
        let value = self.resized(value, ty);
        if bytes.is_clean || bytes.count * 8 >= ty.bits() {
            return value;
        }
        self.binary_const(BinaryOp::And, value, (1 << (bytes.count * 8)) - 1)
    }

    /// One value made of pieces, lowest first, as a load of `width` would give it.
    pub(super) fn assembled(&mut self, pieces: &[Bytes], width: Width) -> Value {
        let ty = width.value_type();
        let mut whole: Option<Value> = None;
        let mut at = 0;
        for piece in pieces {
            let mut part = self.extracted(*piece, ty);
            if at > 0 {
                part = self.binary_const(BinaryOp::Shl, part, u64::from(at) * 8);
            }
            whole = Some(match whole {
                None => part,
                Some(low) => self.binary(BinaryOp::Or, low, part),
            });
            at += piece.count;
        }
        match whole {
            Some(whole) => whole,
            None => self.constant(ty, 0),
        }
    }
}
