//! Loads, stores and atomics: the verifier's facts about the address select the instruction.

use std::mem::offset_of;

use towpath_bpf::Insn;
use towpath_bpf::insn::{
    BPF_ADD, BPF_AND, BPF_ATOMIC, BPF_CMPXCHG, BPF_FETCH, BPF_LOAD_ACQ, BPF_MEM, BPF_MEMSX, BPF_OR,
    BPF_ST, BPF_STORE_REL, BPF_XCHG, BPF_XOR,
};
use towpath_bpf::verifier::AccessFact;

use super::super::ir::{
    Alias, AtomicOp, BinaryOp, CtxField, Op, Place, StackRange, Type, UnaryOp, Value, Width,
};
use super::{BuildError, FunctionBuilder};
use crate::machine_unsafe::Packet;

impl FunctionBuilder<'_> {
    pub(super) fn load(&mut self, insn: Insn) -> Result<(), BuildError> {
        if !matches!(insn.mode(), BPF_MEM | BPF_MEMSX) {
            return Err(self.unsupported("this load mode"));
        }
        let width = width_of(insn);
        let value = match self.access()? {
            AccessFact::Ctx { offset } => self.load_ctx(offset)?,
            AccessFact::Frame { offset } => self.load_frame(insn.src, offset)?,
            AccessFact::Stack { up: 0, offset: Some(offset) } => {
                let range = self.stack_range(offset, width)?;
                self.push(width.value_type(), Op::StackLoad(range))
            }
            AccessFact::Arena => {
                let place = self.arena_load(insn, width)?;
                self.push(width.value_type(), Op::Load { place, probe: false })
            }
            fact => {
                let place = self.place(insn.src, insn, fact)?;
                let probe = fact == AccessFact::ProbeRead;
                self.push(width.value_type(), Op::Load { place, probe })
            }
        };
        let wide = self.widened(value, width, insn.mode() == BPF_MEMSX);
        self.set_reg(insn.dst, wide);
        Ok(())
    }

    pub(super) fn store(&mut self, insn: Insn) -> Result<(), BuildError> {
        if insn.mode() == BPF_ATOMIC {
            return self.atomic(insn);
        }
        if insn.mode() != BPF_MEM {
            return Err(self.unsupported("this store mode"));
        }
        let width = width_of(insn);
        let ty = width.value_type();
        let value = if insn.class() == BPF_ST {
            self.constant(ty, i64::from(insn.imm) as u64 & ty.mask())
        } else {
            self.reg_as(insn.src, ty)
        };
        match self.access()? {
            AccessFact::Stack { up: 0, offset: Some(offset) } => {
                let range = self.stack_range(offset, width)?;
                self.push_effect(Op::StackStore(range, value));
            }
            fact => {
                let place = match fact {
                    AccessFact::Arena => self.arena_store(insn, width)?,
                    _ => self.place(insn.dst, insn, fact)?,
                };
                self.push_effect(Op::Store { place, value });
            }
        }
        Ok(())
    }

    fn load_ctx(&mut self, offset: i32) -> Result<Value, BuildError> {
        let field = u32::try_from(offset).ok().and_then(CtxField::from_offset);
        let field = field.ok_or(self.inconsistent("a context load between fields was verified"))?;
        let value = self.push(field.value_type(), Op::CtxLoad(field));
        Ok(value)
    }

    /// Loads a field of the `struct xdp_md` of a packet that the program holds: its address is that
    /// of the record that compiled code reads of a frame.
    fn load_frame(&mut self, address: u8, offset: i32) -> Result<Value, BuildError> {
        let field = u32::try_from(offset).ok().and_then(CtxField::from_offset);
        let field =
            field.ok_or(self.inconsistent("a packet's load between fields was verified"))?;
        let base = self.reg(address);
        let place = |offset: usize, width| Place {
            base,
            offset: offset as i32,
            width,
            alias: Alias::Other,
        };
        let word = Op::Load { place: place(Packet::offset_of(field), Width::W32), probe: false };
        let word = self.push(Type::I32, word);
        if field.value_type() == Type::I32 {
            return Ok(word);
        }
        let buffer = place(offset_of!(Packet, buffer), Width::W64);
        let buffer = self.push(Type::I64, Op::Load { place: buffer, probe: false });
        let word = self.push(Type::I64, Op::Unary(UnaryOp::Zext, word));
        Ok(self.push(Type::I64, Op::Binary(BinaryOp::Add, buffer, word)))
    }

    /// A loaded value as the 64 bits of a register.
    fn widened(&mut self, value: Value, width: Width, signed: bool) -> Value {
        if self.function.ty(value) == Type::I64 {
            return value;
        }
        if !signed {
            return self.push(Type::I64, Op::Unary(UnaryOp::Zext, value));
        }
        let value = match width {
            Width::W8 => self.push(Type::I32, Op::Unary(UnaryOp::Sext8, value)),
            Width::W16 => self.push(Type::I32, Op::Unary(UnaryOp::Sext16, value)),
            Width::W32 | Width::W64 => value,
        };
        self.push(Type::I64, Op::Unary(UnaryOp::Sext, value))
    }

    fn atomic(&mut self, insn: Insn) -> Result<(), BuildError> {
        let fact = self.access()?;
        let is_load = insn.imm == BPF_LOAD_ACQ;
        let base = if is_load { insn.src } else { insn.dst };
        let arena = match fact {
            AccessFact::Arena => Some(self.arena_atomic(base, insn, width_of(insn))?),
            _ => None,
        };
        let place = match &arena {
            Some(access) => access.place,
            None => self.place(base, insn, fact)?,
        };
        let (reg, value) = match self.atomic_at(insn, place)? {
            Some((reg, value)) => (reg, self.widened(value, place.width, false)),
            None => return Ok(()),
        };
        match &arena {
            Some(access) => self.arena_result(access, reg, value),
            None => self.set_reg(reg, value),
        }
        Ok(())
    }

    /// Gives the register that is set, and the value in the operation's width.
    fn atomic_at(&mut self, insn: Insn, place: Place) -> Result<Option<(u8, Value)>, BuildError> {
        let ty = place.width.value_type();
        match insn.imm {
            BPF_LOAD_ACQ => Ok(Some((insn.dst, self.push(ty, Op::LoadAcquire(place))))),
            BPF_STORE_REL => {
                let value = self.reg_as(insn.src, ty);
                self.push_effect(Op::StoreRelease { place, value });
                Ok(None)
            }
            BPF_CMPXCHG => {
                let (expected, new) = (self.reg_as(0, ty), self.reg_as(insn.src, ty));
                let old = self.push(ty, Op::CompareExchange { place, expected, new });
                Ok(Some((0, old)))
            }
            _ => {
                let op = rmw_of(insn.imm)
                    .ok_or(self.inconsistent("an unknown atomic operation was verified"))?;
                let value = self.reg_as(insn.src, ty);
                let old = self.push(ty, Op::AtomicRmw { place, op, value });
                Ok((insn.imm & BPF_FETCH != 0).then_some((insn.src, old)))
            }
        }
    }

    fn access(&self) -> Result<AccessFact, BuildError> {
        self.fact().access.ok_or(self.inconsistent("an access without facts was verified"))
    }

    fn place(&mut self, base: u8, insn: Insn, fact: AccessFact) -> Result<Place, BuildError> {
        let alias = match fact {
            AccessFact::Packet => Alias::Packet,
            AccessFact::Stack { .. } => Alias::Stack,
            AccessFact::MapValue { map, inner: false, .. } => Alias::Map(map),
            AccessFact::Ctx { .. } | AccessFact::Frame { .. } => {
                return Err(self.inconsistent("a context store was verified"));
            }
            _ => Alias::Other,
        };
        let base = self.reg(base);
        Ok(Place { base, offset: i32::from(insn.off), width: width_of(insn), alias })
    }

    fn stack_range(&self, offset: i32, width: Width) -> Result<StackRange, BuildError> {
        let len = width.bytes() as u16;
        i16::try_from(offset)
            .map(|offset| StackRange { offset, len })
            .ok()
            .filter(|range| range.is_valid())
            .ok_or(self.inconsistent("a stack access outside the stack was verified"))
    }
}

fn width_of(insn: Insn) -> Width {
    match insn.access_bytes() {
        1 => Width::W8,
        2 => Width::W16,
        4 => Width::W32,
        _ => Width::W64,
    }
}

fn rmw_of(imm: i32) -> Option<AtomicOp> {
    if imm == BPF_XCHG {
        return Some(AtomicOp::Exchange);
    }
    match (imm & !BPF_FETCH) as u8 {
        BPF_ADD => Some(AtomicOp::Add),
        BPF_AND => Some(AtomicOp::And),
        BPF_OR => Some(AtomicOp::Or),
        BPF_XOR => Some(AtomicOp::Xor),
        _ => None,
    }
}
