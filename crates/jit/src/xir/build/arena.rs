//! Accesses to an arena: the low half of a pointer is an offset in its memory, the upper half is
//! ignored; an unallocated page reads as 0 and drops stores.
//!
//! The kernel lets such accesses fault. In Towpath the arena has a byte for each page (see
//! `towpath_maps::Arena`): if that of a page which an access touches is 0, the access goes to a
//! word that stays 0, or to one that is never read. That makes two loads and a select in front of
//! each access, no branches and no calls; no pointer can leave the arena's memory, so the checks of
//! `--trust guest` can skip these accesses. Knowledge of other passes about maps' values stays
//! valid: loads and stores have different addresses, so a stored value is never taken for the
//! memory's contents.
//! use: addresses of loads and stores differ, so what is stored is never taken for what is there.

use towpath_bpf::Insn;
use towpath_bpf::map::Values;
use towpath_maps::ArenaLayout;

use super::super::ir::{
    Alias, BinaryOp, Cond, Jump, MapMeta, Need, Op, Place, Terminator, Type, UnaryOp, Value, Width,
};
use super::{BuildError, FunctionBuilder};

/// An access: its place, and whether its pages exist.
pub(super) struct ArenaAccess {
    pub(super) place: Place,
    /// Not 0 if its pages exist.
    pub(super) present: Value,
}

impl FunctionBuilder<'_> {
    /// `addr_space_cast`: to the arena (imm 1) the low half; to user space the address in its
    /// mapping, with null unchanged.
    pub(super) fn cast_address(&mut self, value: Value, imm: i32) -> Result<Value, BuildError> {
        let low = self.push(Type::I32, Op::Unary(UnaryOp::Trunc, value));
        let wide = self.push(Type::I64, Op::Unary(UnaryOp::Zext, low));
        if imm == 1 {
            return Ok(wide);
        }
        let half = Op::MapMetaAddr { map: self.arena()?, what: MapMeta::ArenaUser };
        let half = self.push(Type::I64, half);
        let address = self.push(Type::I64, Op::Binary(BinaryOp::Or, half, wide));
        let zero = self.constant(Type::I32, 0);
        let is_some = self.push(Type::I32, Op::Compare(Cond::Ne, low, zero));
        Ok(self.push(Type::I64, Op::Select(is_some, address, wide)))
    }

    /// Place of a load.
    pub(super) fn arena_load(&mut self, insn: Insn, width: Width) -> Result<Place, BuildError> {
        let distance = self.arena_distance(insn.src, insn);
        Ok(self.arena_access(distance, width, false, ArenaLayout::ZERO)?.place)
    }

    /// Place of a store.
    pub(super) fn arena_store(&mut self, insn: Insn, width: Width) -> Result<Place, BuildError> {
        let distance = self.arena_distance(insn.dst, insn);
        Ok(self.arena_access(distance, width, false, ArenaLayout::SINK)?.place)
    }

    /// Place of an atomic operation, which ends the run if it is not aligned to its size.
    pub(super) fn arena_atomic(
        &mut self,
        base: u8,
        insn: Insn,
        width: Width,
    ) -> Result<ArenaAccess, BuildError> {
        let distance = self.arena_distance(base, insn);
        self.arena_alignment(distance, width)?;
        self.arena_access(distance, width, true, ArenaLayout::SINK)
    }

    /// Sets a register after an atomic operation: unchanged if the page does not exist.
    pub(super) fn arena_result(&mut self, access: &ArenaAccess, reg: u8, value: Value) {
        let old = self.reg(reg);
        let value = self.push(Type::I64, Op::Select(access.present, value, old));
        self.set_reg(reg, value);
    }

    /// Offset in the arena's memory at which an access begins, with the instruction's offset.
    fn arena_distance(&mut self, base: u8, insn: Insn) -> Value {
        let low = self.reg_as(base, Type::I32);
        let wide = self.push(Type::I64, Op::Unary(UnaryOp::Zext, low));
        let start = ArenaLayout::START.wrapping_add_signed(insn.off.into());
        let start = self.constant(Type::I64, start);
        self.push(Type::I64, Op::Binary(BinaryOp::Add, wide, start))
    }

    fn arena_access(
        &mut self,
        distance: Value,
        width: Width,
        is_aligned: bool,
        absent: u64,
    ) -> Result<ArenaAccess, BuildError> {
        let map = self.arena()?;
        let mut present = self.arena_page(map, distance, 0);
        if width != Width::W8 && !is_aligned {
            let last = self.arena_page(map, distance, width.bytes() - 1);
            present = self.push(Type::I32, Op::Binary(BinaryOp::And, present, last));
        }
        let absent = self.constant(Type::I64, absent);
        let distance = self.push(Type::I64, Op::Select(present, distance, absent));
        let memory = self.push(Type::I64, Op::MapMetaAddr { map, what: MapMeta::ArenaMemory });
        let base = self.push(Type::I64, Op::Binary(BinaryOp::Add, memory, distance));
        Ok(ArenaAccess { place: Place { base, offset: 0, width, alias: Alias::Map(map) }, present })
    }

    /// The byte that tells whether the page of a byte exists.
    fn arena_page(&mut self, map: u32, distance: Value, byte: u32) -> Value {
        let byte = self.constant(Type::I64, byte.into());
        let at = self.push(Type::I64, Op::Binary(BinaryOp::Add, distance, byte));
        let shift = self.constant(Type::I64, ArenaLayout::PAGE_SHIFT.into());
        let index = self.push(Type::I64, Op::Binary(BinaryOp::LShr, at, shift));
        let pages = self.push(Type::I64, Op::MapMetaAddr { map, what: MapMeta::ArenaPages });
        let base = self.push(Type::I64, Op::Binary(BinaryOp::Add, pages, index));
        let place = Place { base, offset: 0, width: Width::W8, alias: Alias::MapMeta(map) };
        self.push(Type::I32, Op::Load { place, probe: false })
    }

    /// Calls the runtime for an unaligned operation, which ends the run.
    fn arena_alignment(&mut self, distance: Value, width: Width) -> Result<(), BuildError> {
        let mask = self.constant(Type::I64, u64::from(width.bytes()) - 1);
        let rest = self.push(Type::I64, Op::Binary(BinaryOp::And, distance, mask));
        let zero = self.constant(Type::I64, 0);
        let is_odd = self.push(Type::I32, Op::Compare(Cond::Ne, rest, zero));
        let (odd, next) = (self.function.add_block(), self.function.add_block());
        let jump = |target| Jump { target, args: Vec::new() };
        self.function.block_mut(self.block).end = Terminator::Branch(is_odd, jump(odd), jump(next));
        self.block = odd;
        let memory = Op::MapMetaAddr { map: self.arena()?, what: MapMeta::ArenaMemory };
        let memory = self.push(Type::I64, memory);
        let address = self.push(Type::I64, Op::Binary(BinaryOp::Add, memory, distance));
        self.push_effect(Op::Guard { address, bytes: width.bytes(), need: Need::Atomic });
        self.function.block_mut(odd).end = Terminator::Jump(jump(next));
        self.block = next;
        Ok(())
    }

    /// The program's arena: it has at most one.
    fn arena(&self) -> Result<u32, BuildError> {
        let mut maps = self.program.linked().maps.iter();
        let found = maps.position(|map| map.kind.values() == Values::Pages);
        let found = found.map(|index| index as u32);
        found.ok_or(self.inconsistent("an arena's address was verified where there is none"))
    }
}
