//! Verified bytecode to XIR: registers become SSA values, facts of the verifier become alias
//! classes, stack offsets, map numbers and missing branches.
//!
//! Each block takes the registers that are live into it as parameters; the pass that removes
//! parameters with equal arguments reduces them to the joins that matter. So no incremental SSA
//! construction is needed here.

mod alu;
mod arena;
mod blocks;
mod call;
mod memory;

use std::collections::BTreeSet;

use towpath_bpf::Insn;
use towpath_bpf::btf::Kind;
use towpath_bpf::insn::{
    BPF_ALU, BPF_ALU64, BPF_CALL, BPF_EXIT, BPF_JA, BPF_JCOND, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE,
    BPF_JLT, BPF_JMP, BPF_JMP32, BPF_JNE, BPF_JSET, BPF_JSGE, BPF_JSGT, BPF_JSLE, BPF_JSLT, BPF_LD,
    BPF_LDX, BPF_ST, BPF_STX, PSEUDO_BTF_ID, PSEUDO_FUNC, PSEUDO_MAP_FD, PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE, PSEUDO_MAP_VALUE, REG_FP,
};
use towpath_bpf::interp::{MAX_LOOPS, kfunc_address};
use towpath_bpf::verifier::{InsnFacts, SubprogramFacts, SubprogramKind, Verified};

use super::function::{Function, Module};
use super::ir::{BinaryOp, Block, Cond, Jump, Op, Terminator, Type, UnaryOp, Value};
use blocks::{Flow, REGS, ROUNDS, RegSet};

/// Reason why a program has no XIR: the interpreter runs it instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The compiler has no translation for an instruction.
    #[error("insn {insn}: {what} is not compiled; the interpreter runs this program")]
    Unsupported {
        /// Slot of the instruction.
        insn: usize,
        /// Name of the instruction or operand.
        what: &'static str,
    },
    /// The verifier's facts contradict the bytecode: a bug in Towpath, found before it can do harm.
    #[error("insn {insn}: {what}")]
    Inconsistent {
        /// Slot of the instruction.
        insn: usize,
        /// Description of the contradiction.
        what: &'static str,
    },
}

/// Translates every function of a verified program.
///
/// # Errors
///
/// Fails with a [`BuildError`] if an instruction has no translation.
pub fn build(program: &Verified) -> Result<Module, BuildError> {
    let flows: Vec<Flow> = program
        .subprograms()
        .iter()
        .map(|subprogram| Flow::new(program, subprogram))
        .collect::<Result<_, _>>()?;
    let params = param_counts(program, &flows);
    let functions = program
        .subprograms()
        .iter()
        .zip(flows)
        .map(|(subprogram, flow)| FunctionBuilder::new(program, subprogram, flow, &params).run())
        .collect::<Result<_, _>>()?;
    Ok(Module { functions, own: None, masked: false })
}

/// Number of parameters of each function: the entry takes its context, callbacks all five
/// arguments, others the registers that they read.
fn param_counts(program: &Verified, flows: &[Flow]) -> Vec<usize> {
    let insns = program.linked().insns.iter().zip(1i64..);
    let references = insns.filter(|(insn, _)| insn.is_func_ref());
    let callbacks: BTreeSet<i64> =
        references.map(|(insn, next)| next + i64::from(insn.imm)).collect();
    let count = |(subprogram, flow): (&SubprogramFacts, &Flow)| {
        if subprogram.kind == SubprogramKind::Entry {
            1
        } else if callbacks.contains(&(subprogram.start as i64)) {
            5
        } else {
            let live_in = flow.blocks.first().map_or(RegSet::default(), |block| block.live_in);
            (1..=5).rev().find(|&reg| live_in.contains(reg)).unwrap_or(0).into()
        }
    };
    program.subprograms().iter().zip(flows).map(count).collect()
}

struct FunctionBuilder<'a> {
    program: &'a Verified,
    subprogram: &'a SubprogramFacts,
    flow: Flow,
    /// Number of parameters of each function of the program.
    params: &'a [usize],
    function: Function,
    /// Values of the registers at this point of the running block; r10 is materialised on use.
    regs: [Option<Value>; REGS],
    block: Block,
    /// The slot being translated.
    slot: usize,
}

impl<'a> FunctionBuilder<'a> {
    fn new(
        program: &'a Verified,
        subprogram: &'a SubprogramFacts,
        flow: Flow,
        params: &'a [usize],
    ) -> Self {
        let name = program.linked().functions.iter().find(|f| f.start as usize == subprogram.start);
        let name = name.map_or_else(|| format!("at_{}", subprogram.start), |f| f.name.clone());
        FunctionBuilder {
            program,
            subprogram,
            flow,
            params,
            function: Function {
                start: subprogram.start as u32,
                stack_bytes: subprogram.stack_bytes,
                own_stack_bytes: subprogram.stack_bytes,
                ..Function::new(name)
            },
            regs: [None; REGS],
            block: Function::ENTRY,
            slot: subprogram.start,
        }
    }

    fn run(mut self) -> Result<Function, BuildError> {
        let entry = self.function.add_block();
        let index = self.function_at(self.subprogram.start)?;
        for reg in 1..=self.params[index as usize] {
            let value = self.function.add_param(entry, Type::I64);
            self.regs[reg] = Some(value);
        }
        for index in 0..self.flow.blocks.len() {
            let block = self.function.add_block();
            for _ in self.flow.blocks[index].live_in.iter() {
                self.function.add_param(block, Type::I64);
            }
        }
        if !self.flow.blocks.is_empty() {
            if self.flow.blocks[0].live_in.contains(ROUNDS) {
                let rounds = self.constant(Type::I64, MAX_LOOPS.into());
                self.set_reg(ROUNDS, rounds);
            }
            let first = self.jump_to_slot(self.subprogram.start)?;
            self.function.block_mut(entry).end = Terminator::Jump(first);
        }
        for index in 0..self.flow.blocks.len() {
            self.translate_block(index)?;
        }
        Ok(self.function)
    }

    fn translate_block(&mut self, index: usize) -> Result<(), BuildError> {
        self.block = Block(index as u32 + 1);
        self.regs = [None; REGS];
        let params = self.function.block(self.block).params.clone();
        for (reg, value) in self.flow.blocks[index].live_in.iter().zip(params) {
            self.regs[usize::from(reg)] = Some(value);
        }
        let (start, end) = (self.flow.blocks[index].start, self.flow.blocks[index].end);
        self.slot = start;
        while self.slot < end {
            if !self.fact().reachable {
                // Code behind a call that always throws.
                self.function.block_mut(self.block).end = Terminator::Unreachable;
                return Ok(());
            }
            let insn = self.program.linked().insns[self.slot];
            let next = self.slot + if insn.is_ld_imm64() { 2 } else { 1 };
            match self.translate(insn, next)? {
                Some(terminator) => {
                    self.function.block_mut(self.block).end = terminator;
                    return Ok(());
                }
                None => self.slot = next,
            }
        }
        // A block that ends because the next slot is a jump target.
        let jump = self.jump_to_slot(end)?;
        self.function.block_mut(self.block).end = Terminator::Jump(jump);
        Ok(())
    }

    /// Translates one instruction; `Some` if it ends the block.
    fn translate(&mut self, insn: Insn, next: usize) -> Result<Option<Terminator>, BuildError> {
        match insn.class() {
            BPF_ALU | BPF_ALU64 => self.alu(insn)?,
            BPF_LD if insn.is_ld_imm64() => self.load_imm64(insn)?,
            BPF_LDX => self.load(insn)?,
            BPF_ST | BPF_STX => self.store(insn)?,
            BPF_JMP | BPF_JMP32 => return self.jump(insn, next),
            _ => return Err(self.unsupported("this instruction class")),
        }
        Ok(None)
    }

    fn jump(&mut self, insn: Insn, next: usize) -> Result<Option<Terminator>, BuildError> {
        match insn.op() {
            BPF_JA => {
                let target = blocks::jump_target(insn, self.slot);
                Ok(Some(Terminator::Jump(self.jump_to_slot(target)?)))
            }
            BPF_CALL => self.call(insn, next),
            BPF_EXIT => Ok(Some(Terminator::Return(self.reg(0)))),
            BPF_JCOND => self.may_goto(insn, next).map(Some),
            _ => self.branch(insn, next).map(Some),
        }
    }

    /// Falls through as long as rounds are left, then jumps.
    fn may_goto(&mut self, insn: Insn, next: usize) -> Result<Terminator, BuildError> {
        let left = self.reg(ROUNDS);
        let zero = self.constant(Type::I64, 0);
        let none = self.push(Type::I32, Op::Compare(Cond::Eq, left, zero));
        let out = self.jump_to_slot(blocks::jump_target(insn, self.slot))?;
        let one = self.constant(Type::I64, 1);
        let left = self.push(Type::I64, Op::Binary(BinaryOp::Sub, left, one));
        self.set_reg(ROUNDS, left);
        Ok(Terminator::Branch(none, out, self.jump_to_slot(next)?))
    }

    fn branch(&mut self, insn: Insn, next: usize) -> Result<Terminator, BuildError> {
        let target = blocks::jump_target(insn, self.slot);
        let fact = self.fact().branch;
        if !fact.taken {
            return Ok(Terminator::Jump(self.jump_to_slot(next)?));
        }
        if !fact.fallthrough {
            return Ok(Terminator::Jump(self.jump_to_slot(target)?));
        }
        let ty = if insn.class() == BPF_JMP32 { Type::I32 } else { Type::I64 };
        let (a, b) = (self.reg_as(insn.dst, ty), self.operand(insn, ty));
        let condition = match compare_of(insn.op()) {
            Some(cond) => self.push(Type::I32, Op::Compare(cond, a, b)),
            None if insn.op() == BPF_JSET => {
                let both = self.push(ty, Op::Binary(BinaryOp::And, a, b));
                let zero = self.constant(ty, 0);
                self.push(Type::I32, Op::Compare(Cond::Ne, both, zero))
            }
            None => return Err(self.inconsistent("an unknown jump was verified")),
        };
        Ok(Terminator::Branch(condition, self.jump_to_slot(target)?, self.jump_to_slot(next)?))
    }

    fn load_imm64(&mut self, insn: Insn) -> Result<(), BuildError> {
        let high = self.program.linked().insns.get(self.slot + 1).map_or(0, |second| second.imm);
        let op = match insn.src {
            0 => Op::Const(u64::from(insn.imm as u32) | u64::from(high as u32) << 32),
            PSEUDO_MAP_FD | PSEUDO_MAP_IDX => Op::MapRef(insn.imm as u32),
            PSEUDO_MAP_VALUE | PSEUDO_MAP_IDX_VALUE => {
                Op::MapValueAddr { map: insn.imm as u32, offset: high as u32 }
            }
            PSEUDO_FUNC => {
                let target = (self.slot as i64 + 1 + i64::from(insn.imm)) as usize;
                Op::FunctionRef(self.function_at(target)?)
            }
            PSEUDO_BTF_ID => self.kernel_symbol(insn.imm as u32)?,
            _ => return Err(self.inconsistent("an unknown immediate load was verified")),
        };
        let value = self.push(Type::I64, op);
        self.set_reg(insn.dst, value);
        Ok(())
    }

    /// Address of a kernel symbol: the kernel has variables, Towpath has none, and functions are
    /// only tested for existence.
    fn kernel_symbol(&self, type_id: u32) -> Result<Op, BuildError> {
        match self.program.linked().kernel_btf.get(type_id).map(|ty| &ty.kind) {
            Some(Kind::Func { .. }) => Ok(Op::Const(kfunc_address(type_id))),
            _ => Err(self.unsupported("the address of a kernel variable")),
        }
    }

    fn function_at(&self, slot: usize) -> Result<u32, BuildError> {
        let index = self.program.subprograms().iter().position(|f| f.start == slot);
        index.map(|index| index as u32).ok_or(self.inconsistent("a call leads into a function"))
    }

    fn jump_to_slot(&mut self, slot: usize) -> Result<Jump, BuildError> {
        let Some(index) = self.flow.block_at(slot) else {
            return Err(self.inconsistent("a path leads to an instruction that none reaches"));
        };
        let args = self.flow.blocks[index].live_in.iter().map(|reg| self.reg(reg)).collect();
        Ok(Jump { target: Block(index as u32 + 1), args })
    }

    fn reg(&mut self, reg: u8) -> Value {
        if reg == REG_FP {
            return self.push(Type::I64, Op::StackAddr(0));
        }
        match self.regs[usize::from(reg)] {
            Some(value) => value,
            // The verifier found no path that reads it: any value will do.
            None => {
                let value = self.constant(Type::I64, 0);
                self.regs[usize::from(reg)] = Some(value);
                value
            }
        }
    }

    fn reg_as(&mut self, reg: u8, ty: Type) -> Value {
        let value = self.reg(reg);
        match ty {
            Type::I64 => value,
            Type::I32 => self.push(Type::I32, Op::Unary(UnaryOp::Trunc, value)),
        }
    }

    fn set_reg(&mut self, reg: u8, value: Value) {
        self.regs[usize::from(reg)] = Some(value);
    }

    /// Sets a register to a 32-bit value, which clears its upper half.
    fn set_reg32(&mut self, reg: u8, value: Value) {
        let wide = self.push(Type::I64, Op::Unary(UnaryOp::Zext, value));
        self.set_reg(reg, wide);
    }

    /// The second operand: the source register or the sign-extended immediate.
    fn operand(&mut self, insn: Insn, ty: Type) -> Value {
        if insn.is_reg_operand() {
            self.reg_as(insn.src, ty)
        } else {
            self.constant(ty, i64::from(insn.imm) as u64 & ty.mask())
        }
    }

    fn constant(&mut self, ty: Type, value: u64) -> Value {
        self.push(ty, Op::Const(value))
    }

    fn push(&mut self, ty: Type, op: Op) -> Value {
        self.function.push(self.block, self.slot as u32, ty, op)
    }

    fn push_effect(&mut self, op: Op) {
        self.function.push_effect(self.block, self.slot as u32, op);
    }

    fn fact(&self) -> &'a InsnFacts {
        &self.program.facts()[self.slot]
    }

    fn unsupported(&self, what: &'static str) -> BuildError {
        BuildError::Unsupported { insn: self.slot, what }
    }

    fn inconsistent(&self, what: &'static str) -> BuildError {
        BuildError::Inconsistent { insn: self.slot, what }
    }
}

fn compare_of(op: u8) -> Option<Cond> {
    Some(match op {
        BPF_JEQ => Cond::Eq,
        BPF_JNE => Cond::Ne,
        BPF_JGT => Cond::Ugt,
        BPF_JGE => Cond::Uge,
        BPF_JLT => Cond::Ult,
        BPF_JLE => Cond::Ule,
        BPF_JSGT => Cond::Sgt,
        BPF_JSGE => Cond::Sge,
        BPF_JSLT => Cond::Slt,
        BPF_JSLE => Cond::Sle,
        _ => return None,
    })
}
