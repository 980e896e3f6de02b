//! Uses conditions that are known behind a branch: a select on the condition is one of its operands
//! there, and a second test of it has a known outcome.
//!
//! A lookup gives `inside ? address : 0`; after the program has tested it, only the address
//! remains, and the select is dead. A packet that was long enough for one header field is long
//! enough for all fields before it.

use std::collections::HashMap;

use towpath_bpf::proto::id;

use super::{Context, definition, definitions, effects};
use crate::machine_unsafe::Packet;
use crate::xir::{
    BinaryOp, Block, Cond, CtxField, Dominators, Function, Inst, Op, Terminator, Value,
};

/// Largest number of additions between the start of the packet and an address that is recognised as
/// inside.
const PACKET_STEPS_MAX: u32 = 8;

pub(super) fn use_branches(function: &mut Function, _: Context<'_>) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    let mut children = vec![Vec::new(); function.blocks.len()];
    for &block in dominators.order() {
        if let Some(parent) = dominators.immediate(block) {
            children[parent.0 as usize].push(block);
        }
    }
    let mut walker = Walker { function, definitions, facts: HashMap::new(), learnt: Vec::new() };
    // Depth first without recursion: enter a block, or leave it and forget what was learnt there.
    let mut path = vec![Step::Enter(Function::ENTRY)];
    while let Some(step) = path.pop() {
        match step {
            Step::Leave(mark) => walker.forget(mark),
            Step::Enter(block) if dominators.is_reachable(block) => {
                path.push(Step::Leave(walker.learnt.len()));
                walker.enter(block, &dominators);
                path.extend(children[block.0 as usize].iter().map(|&child| Step::Enter(child)));
            }
            Step::Enter(_) => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    Enter(Block),
    Leave(usize),
}

/// A fact that a condition can establish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    /// Whether the value is not 0.
    Holds(Value),
    /// Whether the comparison holds.
    Compares(Cond, Value, Value),
    /// Number of bytes from an address in the packet to its end.
    BytesBefore(Value, Value),
}

struct Walker<'a> {
    function: &'a mut Function,
    definitions: Vec<Option<Inst>>,
    /// Known facts: 0 or 1, or a number of bytes.
    facts: HashMap<Question, u64>,
    /// Previous facts, to go back to.
    learnt: Vec<(Question, Option<u64>)>,
}

impl Walker<'_> {
    fn forget(&mut self, mark: usize) {
        for (question, before) in self.learnt.drain(mark..).rev() {
            match before {
                Some(before) => self.facts.insert(question, before),
                None => self.facts.remove(&question),
            };
        }
    }

    fn learn(&mut self, question: Question, answer: u64) {
        let before = self.facts.insert(question, answer);
        self.learnt.push((question, before));
    }

    fn enter(&mut self, block: Block, dominators: &Dominators) {
        if let [pred] = dominators.predecessors(block)
            && let Terminator::Branch(condition, yes, no) = &self.function.block(*pred).end
            && yes.target != no.target
        {
            let (condition, holds) = (*condition, yes.target == block);
            self.learn_condition(condition, holds);
            self.learn_length(block, condition, holds);
        }
        if self.facts.is_empty() {
            return;
        }
        for inst in self.function.block(block).insts.clone() {
            let mut op = self.function.inst(inst).op.clone();
            op.for_each_operand_mut(|value| *value = self.resolved(*value));
            self.function.inst_mut(inst).op = op;
        }
        let mut end = self.function.block(block).end.clone();
        end.for_each_operand_mut(|value| *value = self.resolved(*value));
        if let Terminator::Branch(condition, yes, no) = &end
            && let Some(holds) = self.known(*condition)
        {
            end = Terminator::Jump(if holds { yes.clone() } else { no.clone() });
        }
        self.function.block_mut(block).end = end;
    }

    fn learn_condition(&mut self, condition: Value, holds: bool) {
        self.learn(Question::Holds(condition), holds.into());
        let Some(&Op::Compare(cond, x, y)) = self.op(condition) else { return };
        self.learn(Question::Compares(cond, x, y), holds.into());
        self.learn(Question::Compares(cond.negated(), x, y), (!holds).into());
        if matches!(cond, Cond::Eq | Cond::Ne) && self.constant(y) == Some(0) {
            self.learn(Question::Holds(x), (holds == (cond == Cond::Ne)).into());
        }
        if let Some((question, bytes)) = self.bytes_before(cond, x, y)
            && holds == (cond == Cond::Ule)
            && self.facts.get(&question).is_none_or(|known| *known < bytes)
        {
            self.learn(question, bytes);
        }
    }

    /// Learns a length: after a successful move of the packet's start an Ethernet header is left.
    fn learn_length(&mut self, block: Block, condition: Value, holds: bool) {
        let Some(&Op::Compare(cond, result, zero)) = self.op(condition) else { return };
        let is_zero = if holds { Cond::Eq } else { Cond::Ne };
        let Some(Op::CallHelper { id: id::XDP_ADJUST_HEAD, .. }) = self.op(result) else { return };
        if cond != is_zero || self.constant(zero) != Some(0) {
            return;
        }
        let mut ends = [None; 2];
        for &inst in &self.function.block(block).insts {
            let data = self.function.inst(inst);
            match data.op {
                Op::CtxLoad(CtxField::Data) => ends[0] = data.result,
                Op::CtxLoad(CtxField::DataEnd) => ends[1] = data.result,
                _ if effects::of_call(&data.op).is_some() => break,
                _ => {}
            }
        }
        if let [Some(start), Some(end)] = ends {
            self.learn(Question::BytesBefore(start, end), Packet::BYTES_MIN.into());
        }
    }

    /// The fact about `address + bytes > end` or `<= end`, with an address in the packet.
    ///
    /// The verifier keeps such addresses close to the packet, so the sum does not wrap.
    fn bytes_before(&self, cond: Cond, x: Value, end: Value) -> Option<(Question, u64)> {
        if !matches!(cond, Cond::Ugt | Cond::Ule) {
            return None;
        }
        let Some(&Op::CtxLoad(CtxField::DataEnd)) = self.op(end) else { return None };
        let (address, bytes) = match *self.op(x)? {
            Op::Binary(BinaryOp::Add, address, bytes) => match self.constant(bytes) {
                Some(bytes) => (address, bytes),
                None => (x, 0),
            },
            _ => (x, 0),
        };
        let fits = bytes <= u64::from(u16::MAX) && self.is_in_packet(address, PACKET_STEPS_MAX);
        fits.then_some((Question::BytesBefore(address, end), bytes))
    }

    fn is_in_packet(&self, value: Value, steps: u32) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        match self.op(value) {
            Some(Op::CtxLoad(CtxField::Data)) => true,
            Some(&Op::Binary(BinaryOp::Add, a, b)) => {
                self.is_in_packet(a, steps) || self.is_in_packet(b, steps)
            }
            _ => false,
        }
    }

    /// Whether a condition holds, if that is known.
    fn known(&self, condition: Value) -> Option<bool> {
        let answer = |question| self.facts.get(&question).map(|answer| *answer != 0);
        answer(Question::Holds(condition)).or_else(|| match *self.op(condition)? {
            Op::Compare(cond, x, y) => answer(Question::Compares(cond, x, y)).or_else(|| {
                let (question, bytes) = self.bytes_before(cond, x, y)?;
                (*self.facts.get(&question)? >= bytes).then_some(cond == Cond::Ule)
            }),
            _ => None,
        })
    }

    /// Value at this point: an operand of the select that defined it, if the condition is known.
    fn resolved(&self, mut value: Value) -> Value {
        while let Some(&Op::Select(condition, a, b)) = self.op(value) {
            match self.known(condition) {
                Some(holds) => value = if holds { a } else { b },
                None => break,
            }
        }
        value
    }

    fn constant(&self, value: Value) -> Option<u64> {
        match self.op(value) {
            Some(Op::Const(constant)) => Some(*constant),
            _ => None,
        }
    }

    fn op(&self, value: Value) -> Option<&Op> {
        definition(self.function, &self.definitions, value)
    }
}
