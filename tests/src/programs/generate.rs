//! The structure of a random program: blocks, branches, loops, functions.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::asm::{Asm, Jump};
use super::state::{Kind, State};
use super::{ARRAY_MAP, ARRAY_VALUE};
use crate::random::Random;

/// A whole program. `wild` ones contain steps that verifiers refuse, now and then.
pub(super) fn program(random: &mut Random, wild: bool, callbacks: bool) -> Vec<Insn> {
    let budget = 8 + random.below(60);
    let mut main = Generator::new(random, State::entry(), wild, budget);
    main.callbacks = callbacks;
    main.keep_context();
    main.block(0);
    main.epilogue();
    let Generator { asm, calls, .. } = main;
    link(asm.insns, calls)
}

/// A function's instructions and its calls: the calling slot, and the callee.
pub(super) struct Function {
    pub(super) insns: Vec<Insn>,
    pub(super) calls: Vec<(usize, Function)>,
}

/// Places callees behind their callers.
fn link(mut insns: Vec<Insn>, calls: Vec<(usize, Function)>) -> Vec<Insn> {
    let mut waiting: Vec<(usize, Function)> = calls;
    while let Some((slot, function)) = waiting.pop() {
        let start = insns.len();
        insns[slot].imm = start as i32 - slot as i32 - 1;
        insns.extend(function.insns);
        waiting.extend(function.calls.into_iter().map(|(at, callee)| (start + at, callee)));
    }
    insns
}

/// Writes one function.
pub(super) struct Generator<'r> {
    pub(super) random: &'r mut Random,
    pub(super) asm: Asm,
    pub(super) state: State,
    /// Steps that refuse to be proved may be written.
    pub(super) wild: bool,
    /// Functions may be handed to helpers.
    pub(super) callbacks: bool,
    /// Steps left to write.
    budget: usize,
    /// Jumps to the early exit.
    exits: Vec<Jump>,
    calls: Vec<(usize, Function)>,
    /// Calls above this function.
    depth: usize,
    /// Some path changes the packet's bounds.
    pub(super) moves_packet: bool,
}

impl<'r> Generator<'r> {
    fn new(random: &'r mut Random, state: State, wild: bool, budget: usize) -> Self {
        Generator {
            random,
            asm: Asm::default(),
            state,
            wild,
            callbacks: false,
            budget,
            exits: Vec::new(),
            calls: Vec::new(),
            depth: 0,
            moves_packet: false,
        }
    }

    /// Moves the context where calls leave it alone.
    fn keep_context(&mut self) {
        if let Some(&reg) = self.state.find(|kind| kind == Kind::Ctx).first() {
            self.asm.mov(6, reg);
            self.state.set(6, Kind::Ctx);
            self.state.regs[1..=5].fill(Kind::Unset);
        }
    }

    /// Steps until the budget, or this block, is used up.
    fn block(&mut self, nesting: usize) {
        let steps = if nesting == 0 { self.budget } else { 1 + self.random.below(6) };
        for _ in 0..steps {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            match self.random.below(28) {
                0..=2 if nesting < 3 => self.branch(nesting),
                3 if nesting < 2 => self.bounded_loop(nesting),
                4 if self.may_call() => self.call_function(),
                5..=6 => self.helper(),
                7..=8 => self.packet_bounds(),
                9 => self.map_value(),
                10..=13 => self.memory_step(),
                14..=18 => self.idiom(),
                19..=20 => self.show(),
                _ => self.arithmetic(),
            }
        }
    }

    /// `if (condition) { block } else { block }`, where either may exit the function.
    fn branch(&mut self, nesting: usize) {
        let jump = self.condition();
        let before = self.state.clone();
        self.block(nesting + 1);
        if self.random.one_in(3) {
            self.asm.land(jump);
            self.state.join(&before);
            return;
        }
        let over = self.asm.jump(BPF_JMP | BPF_JA, 0, 0, 0);
        let first = std::mem::replace(&mut self.state, before);
        self.asm.land(jump);
        self.block(nesting + 1);
        self.asm.land(over);
        self.state.join(&first);
    }

    /// A conditional jump over what follows.
    fn condition(&mut self) -> Jump {
        const OPS: [u8; 11] = [
            BPF_JEQ, BPF_JNE, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT,
            BPF_JSLE, BPF_JSET,
        ];
        let class = *self.random.pick(&[BPF_JMP, BPF_JMP, BPF_JMP32]);
        let op = *self.random.pick(&OPS);
        let dst = self.scalar();
        if self.random.one_in(3) {
            let src = self.scalar();
            return self.asm.jump(class | op | BPF_X, dst, src, 0);
        }
        let imm = self.immediate();
        self.asm.jump(class | op, dst, 0, imm)
    }

    /// `for (i = n; i != 0; i--) { block }` with a register that nothing else writes.
    fn bounded_loop(&mut self, nesting: usize) {
        let free: Vec<u8> =
            self.state.writable(Kind::Unset).into_iter().filter(|r| *r >= 7).collect();
        if free.is_empty() {
            return self.arithmetic();
        }
        let counter = *self.random.pick(&free);
        let rounds = 1 + self.random.below(6) as i32;
        self.asm.mov_imm(counter, rounds);
        self.state.set(counter, Kind::Scalar);
        let (pinned, locked) = (self.state.pinned, self.state.locked);
        self.state.locked |= 1 << counter;
        // What the body relies on must hold when it comes round again: context and numbers that
        // calls leave alone, nothing else.
        for reg in 0..10 {
            let keep = reg >= 6 && matches!(self.state.regs[reg], Kind::Ctx | Kind::Scalar);
            if keep {
                self.state.pinned |= 1 << reg;
            } else {
                self.state.regs[reg] = Kind::Unset;
            }
        }
        let top = self.asm.here();
        self.block(nesting + 1);
        self.asm.alu_imm(BPF_ADD, counter, -1);
        let code = *self.random.pick(&[BPF_JMP | BPF_JNE, BPF_JMP | BPF_JSGT, BPF_JMP32 | BPF_JNE]);
        self.asm.jump_back(code, counter, 0, top);
        (self.state.pinned, self.state.locked) = (pinned, locked);
    }

    /// A call of a new function that gets what is in r1..r5.
    fn call_function(&mut self) {
        for reg in 1..=5 {
            if self.random.one_in(2) && self.state.writable(Kind::Scalar).contains(&reg) {
                let from = self.readable();
                self.asm.mov(reg, from);
                self.state.set(reg, self.state.regs[usize::from(from)]);
            }
        }
        let slot = self.asm.here();
        self.asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 0);
        let budget = 1 + self.random.below(12);
        let state = self.state.callee();
        let mut callee = Generator::new(self.random, state, self.wild, budget);
        callee.callbacks = self.callbacks;
        callee.depth = self.depth + 1;
        callee.keep_context();
        callee.block(0);
        callee.finish();
        let moves_packet = callee.moves_packet;
        let Generator { asm, calls, .. } = callee;
        self.calls.push((slot, Function { insns: asm.insns, calls }));
        self.state.clobber();
        if moves_packet {
            self.moves_packet = true;
            self.state.drop_packet_pointers();
        }
    }

    /// Whether one more function fits the stack and the reader's patience.
    pub(super) fn may_call(&self) -> bool {
        self.depth < 3 && self.calls.len() < 3
    }

    /// A call of a function written already.
    pub(super) fn call(&mut self, callee: Function) {
        self.calls.push((self.asm.here(), callee));
        self.asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 0);
    }

    /// The address of a function written already.
    pub(super) fn reference(&mut self, dst: u8, callback: Function) {
        self.calls.push((self.asm.here(), callback));
        self.asm.put(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_FUNC, 0, 0);
        self.asm.put(0, 0, 0, 0, 0);
    }

    /// Leaves a trace of the numbers in a map, then returns one of them.
    fn epilogue(&mut self) {
        let kept = self.state.find(|kind| kind == Kind::Scalar);
        let mut slot = -8;
        for &reg in &kept {
            self.asm.store(BPF_DW, REG_FP, reg, slot);
            slot -= 8;
        }
        self.asm.store_imm(BPF_W, REG_FP, slot, 0);
        self.asm.load_map(1, ARRAY_MAP);
        self.asm.mov(2, REG_FP);
        self.asm.alu_imm(BPF_ADD, 2, i32::from(slot));
        self.asm.call(HELPER_MAP_LOOKUP);
        let null = self.asm.jump(BPF_JMP | BPF_JEQ, 0, 0, 0);
        for index in 0..kept.len().min(ARRAY_VALUE as usize / 8) {
            self.asm.load(BPF_DW, 1, REG_FP, -8 * (index as i16 + 1));
            self.asm.store(BPF_DW, 0, 1, index as i16 * 8);
        }
        self.asm.land(null);
        self.asm.mov_imm(0, 2);
        if !kept.is_empty() {
            self.asm.load(BPF_DW, 0, REG_FP, -8);
        }
        self.asm.exit();
        self.early_exit();
    }

    /// Ends a function that is not the entry: returns a number.
    fn finish(&mut self) {
        let result = self.scalar();
        self.asm.mov(0, result);
        self.asm.exit();
        self.early_exit();
    }

    fn early_exit(&mut self) {
        if self.exits.is_empty() {
            return;
        }
        for jump in std::mem::take(&mut self.exits) {
            self.asm.land(jump);
        }
        let code = self.random.below(5) as i32;
        self.asm.mov_imm(0, code);
        self.asm.exit();
    }

    /// Whether this is the program's entry function.
    pub(super) fn is_entry(&self) -> bool {
        self.depth == 0
    }

    /// Makes a jump leave the function.
    pub(super) fn leave(&mut self, jump: Jump) {
        self.exits.push(jump);
    }

    /// A step that may be wrong, in programs that may be.
    pub(super) fn misstep(&mut self) -> bool {
        self.wild && self.random.one_in(25)
    }
}

const HELPER_MAP_LOOKUP: i32 = 1;
