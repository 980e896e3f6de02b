//! Calls: helpers, kfuncs, functions of the program, tail calls.

use towpath_bpf::Insn;
use towpath_bpf::proto::{self, id};
use towpath_bpf::verifier::MapFact;

use super::super::ir::{Arg, Op, Terminator, Type, Value};
use super::{BuildError, FunctionBuilder};

impl FunctionBuilder<'_> {
    pub(super) fn call(
        &mut self,
        insn: Insn,
        next: usize,
    ) -> Result<Option<Terminator>, BuildError> {
        if insn.is_tail_call() {
            return self.tail_call(next).map(Some);
        }
        let result = if insn.is_pseudo_call() {
            self.function_call(insn)?
        } else if insn.is_kfunc_call() {
            self.kfunc_call(insn.imm as u32)?
        } else {
            self.helper_call(insn.imm as u32)?
        };
        self.clobber();
        self.set_reg(0, result);
        Ok(None)
    }

    fn tail_call(&mut self, next: usize) -> Result<Terminator, BuildError> {
        let (map, index) = (self.reg(2), self.reg_as(3, Type::I32));
        self.clobber();
        let otherwise = self.jump_to_slot(next)?;
        Ok(Terminator::TailCall { map, index, otherwise })
    }

    fn function_call(&mut self, insn: Insn) -> Result<Value, BuildError> {
        let target = (self.slot as i64 + 1 + i64::from(insn.imm)) as usize;
        let function = self.function_at(target)?;
        let count = self.params[function as usize] as u8;
        let args = (1..=count).map(|reg| self.reg(reg)).collect();
        Ok(self.push(Type::I64, Op::Call { function, args }))
    }

    fn kfunc_call(&mut self, kfunc: u32) -> Result<Value, BuildError> {
        let name = self.program.linked().kfuncs.get(kfunc as usize).map(|kfunc| &kfunc.name);
        let proto = name.and_then(|name| proto::kfunc(name));
        let proto = proto.ok_or(self.inconsistent("an unknown kfunc was verified"))?;
        let args = self.args(proto.params.len());
        Ok(self.push(Type::I64, Op::CallKfunc { kfunc, args }))
    }

    fn helper_call(&mut self, helper: u32) -> Result<Value, BuildError> {
        let proto =
            proto::helper(helper).ok_or(self.inconsistent("an unknown helper was verified"))?;
        if let (id::MAP_LOOKUP_ELEM, Some(MapFact::One { map, inner: false })) =
            (helper, self.fact().map)
        {
            let key = Arg::Value(self.reg(2));
            return Ok(self.push(Type::I64, Op::MapLookup { map, key }));
        }
        let args = self.args(proto.args_passed());
        Ok(self.push(Type::I64, Op::CallHelper { id: helper, args }))
    }

    fn args(&mut self, count: usize) -> Vec<Arg> {
        (1..=count.min(5) as u8).map(|reg| Arg::Value(self.reg(reg))).collect()
    }

    /// Clears r1 to r5, which are undefined after a call.
    fn clobber(&mut self) {
        self.regs[1..=5].fill(None);
    }
}
