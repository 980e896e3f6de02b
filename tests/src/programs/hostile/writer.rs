//! Writing functions: statements one after the other, and what they may count on.

use towpath_bpf::Insn;
use towpath_bpf::insn::*;

use super::feature::Feature;
use super::{Kind, Sample};
use crate::programs::asm::{Asm, Jump};
use crate::random::Random;

/// A whole program.
pub(super) fn program(random: &mut Random) -> Sample {
    let mut parts = Parts::default();
    let budget = 2 + random.below(5);
    // Careless programs are refused more often, careful ones prove more of what they do.
    parts.miss = *random.pick(&[60, 25, 12]);
    if random.one_in(3) {
        parts.throws = true;
        if random.one_in(2) {
            catcher(&mut parts, random);
        }
    }
    let has_frags = random.one_in(2);
    let main = function(&mut parts, random, Signature::Entry, budget);
    Sample { has_frags, ..parts.link(main) }
}

/// The functions written so far.
#[derive(Default)]
pub(super) struct Parts {
    functions: Vec<Written>,
    /// One bound in so many is not quite right.
    pub(super) miss: usize,
    /// The program may throw.
    pub(super) throws: bool,
    /// Set while nothing may be called that could throw.
    pub(super) is_quiet: bool,
}

/// A finished function.
pub(super) struct Written {
    kind: Kind,
    insns: Vec<Insn>,
    /// Calling (or address-taking) slots, and which function.
    calls: Vec<(usize, usize)>,
    points: Vec<(usize, Feature)>,
    ends: Vec<usize>,
}

/// How a function is called, and so what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// The program: r1 is the context.
    Entry,
    /// r1 is the context, r2 a number.
    Number,
    /// The same, verified on its own.
    GlobalNumber,
    /// r1 is the context, r2 a pointer to 16 bytes of the caller's stack, r3 a number.
    Writer,
    /// r1 is memory of 16 bytes, r2 a number.
    GlobalMemory {
        /// It is checked for null by the caller.
        nonnull: bool,
    },
    /// r1 is a number, r2 a pointer to 16 bytes of the caller's stack (`bpf_loop`).
    Round,
    /// r1 a map, r2 a key, r3 a value of 64 bytes, r4 a pointer to 16 bytes of the caller's stack.
    Element,
}

impl Parts {
    pub(super) fn add(&mut self, function: Written) -> usize {
        self.functions.push(function);
        self.functions.len() - 1
    }

    /// A function without statements.
    pub(super) fn plain_function(&mut self, body: impl FnOnce(&mut Asm)) -> usize {
        let mut asm = Asm::default();
        body(&mut asm);
        let (calls, points, ends) = (Vec::new(), Vec::new(), Vec::new());
        self.add(Written { kind: Kind::Static, insns: asm.insns, calls, points, ends })
    }

    /// Places the entry first, then the others.
    fn link(self, main: usize) -> Sample {
        let mut sample = Sample::default();
        let count = self.functions.len();
        let order = std::iter::once(main).chain((0..count).filter(|&index| index != main));
        let mut starts = vec![0; count];
        let mut calls = Vec::new();
        for index in order {
            let function = &self.functions[index];
            let start = sample.insns.len();
            starts[index] = start;
            if function.kind != Kind::Static {
                sample.kinds.push((start, function.kind));
            }
            sample.insns.extend(&function.insns);
            calls.extend(function.calls.iter().map(|(slot, callee)| (start + slot, *callee)));
            sample.ends.extend(function.ends.iter().map(|slot| start + slot));
            sample.points.extend(function.points.iter().map(|(slot, what)| (start + slot, *what)));
        }
        for (slot, callee) in calls {
            sample.insns[slot].imm = starts[callee] as i32 - slot as i32 - 1;
        }
        sample
    }
}

/// Writes a function, and those it calls; gives its number.
pub(super) fn function(
    parts: &mut Parts,
    random: &mut Random,
    signature: Signature,
    budget: usize,
) -> usize {
    function_below(parts, random, signature, budget, 0)
}

/// The same, so many calls below the entry.
pub(super) fn function_below(
    parts: &mut Parts,
    random: &mut Random,
    signature: Signature,
    budget: usize,
    depth: usize,
) -> usize {
    let mut writer = Writer::new(parts, random, signature, depth);
    writer.prologue();
    for _ in 0..budget {
        writer.statement();
    }
    writer.epilogue();
    let written = writer.finish();
    parts.add(written)
}

/// The function that makes the result of a program that throws.
fn catcher(parts: &mut Parts, random: &mut Random) {
    let mut asm = Asm::default();
    asm.mov(0, 1);
    if random.one_in(2) {
        asm.alu_imm(BPF_AND, 0, 3);
    }
    asm.exit();
    let (insns, calls, points, ends) = (asm.insns, Vec::new(), Vec::new(), Vec::new());
    parts.add(Written { kind: Kind::Catcher, insns, calls, points, ends });
}

/// Writes one function.
pub(super) struct Writer<'p> {
    pub(super) parts: &'p mut Parts,
    pub(super) random: &'p mut Random,
    pub(super) asm: Asm,
    pub(super) signature: Signature,
    /// Calls above this function.
    pub(super) depth: usize,
    /// r6 is the context.
    pub(super) has_context: bool,
    /// Registers among r7 to r9 that statements leave alone, by bit.
    pub(super) locked: u16,
    /// Statements around this one.
    pub(super) nesting: usize,
    /// What may not be done just now.
    pub(super) limits: Limits,
    /// Jumps of bounds that do not hold, to behind the innermost statement that holds something.
    fails: Vec<Vec<Jump>>,
    /// Calls of functions, by slot.
    calls: Vec<(usize, usize)>,
    points: Vec<(usize, Feature)>,
    /// Slots that use something after its end.
    ends: Vec<usize>,
    /// Where the next thing on the stack goes.
    top: i16,
}

/// What statements must leave out where they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// No calls at all: a lock is held.
    pub(super) calls: bool,
    /// No tail calls and nothing thrown: something is held.
    pub(super) leaving: bool,
}

impl<'p> Writer<'p> {
    fn new(
        parts: &'p mut Parts,
        random: &'p mut Random,
        signature: Signature,
        depth: usize,
    ) -> Self {
        Writer {
            parts,
            random,
            asm: Asm::default(),
            signature,
            depth,
            has_context: false,
            locked: 0,
            nesting: 0,
            limits: Limits::default(),
            fails: vec![Vec::new()],
            calls: Vec::new(),
            points: Vec::new(),
            ends: Vec::new(),
            top: TEMPORARY,
        }
    }

    /// r6 = context, r7 to r9 numbers, and what there is on the stack.
    fn prologue(&mut self) {
        use Signature::*;
        let sources = match self.signature {
            Entry => [Some(1), None, None, None],
            Number | GlobalNumber => [Some(1), Some(2), None, None],
            Writer => [Some(1), Some(3), None, None],
            GlobalMemory { .. } => [None, Some(2), None, None],
            Round => [None, Some(1), None, None],
            Element => [None, None, None, None],
        };
        self.has_context = sources[0].is_some();
        // Before r1 to r5 are gone: pointers of the caller go to the stack.
        let kept = match self.signature {
            Writer | Round => Some(2),
            GlobalMemory { .. } => Some(1),
            Element => Some(3),
            _ => None,
        };
        if let Some(reg) = kept {
            self.asm.store(BPF_DW, REG_FP, reg, POINTER);
        }
        for (reg, source) in (6..=9).zip(sources) {
            match source {
                Some(source) => self.asm.mov(reg, source),
                None => {
                    let imm = self.immediate();
                    self.asm.mov_imm(reg, imm);
                }
            }
        }
        if self.random.one_in(2) {
            let reg = 7 + self.random.below(3) as u8;
            self.source(reg);
        }
        if self.depth < 2 && self.random.one_in(8) {
            let deep = *self.random.pick(&[-200, -240, -320, -380]);
            self.asm.store_imm(BPF_DW, REG_FP, deep, 1);
            self.mark(Feature::DeepStack);
        }
        for slot in 0..SPILLS {
            if self.random.one_in(3) {
                let reg = 7 + self.random.below(3) as u8;
                self.asm.store(BPF_DW, REG_FP, reg, spill(slot));
            }
        }
    }

    /// Returns a number, bounded or not.
    fn epilogue(&mut self) {
        if self.signature == Signature::Writer || self.signature == Signature::Round {
            self.write_back();
        }
        let reg = 7 + self.random.below(3) as u8;
        self.asm.mov(0, reg);
        match (self.signature, self.random.below(3)) {
            (Signature::Round | Signature::Element, _) => self.asm.alu_imm(BPF_AND, 0, 1),
            (_, 0) => self.asm.alu_imm(BPF_AND, 0, 7),
            (_, 1) => {
                let imm = self.random.below(8) as i32;
                self.asm.mov_imm(0, imm);
            }
            _ => {}
        }
        self.asm.exit();
        let fails = self.fails.pop().unwrap_or_default();
        if fails.is_empty() {
            return;
        }
        fails.into_iter().for_each(|jump| self.asm.land(jump));
        let imm = self.random.below(2) as i32;
        self.asm.mov_imm(0, imm);
        self.asm.exit();
    }

    /// Writes a number that is bounded to where the caller wants it.
    fn write_back(&mut self) {
        self.asm.load(BPF_DW, 1, REG_FP, POINTER);
        let off = 8 * self.random.below(2) as i16;
        let imm = self.random.below(16) as i32;
        if self.random.one_in(2) {
            self.asm.store_imm(BPF_DW, 1, off, imm);
        } else {
            self.asm.mov(2, 7);
            self.asm.alu_imm(BPF_AND, 2, 15);
            self.asm.store(BPF_DW, 1, 2, off);
        }
    }

    fn finish(self) -> Written {
        let kind = match self.signature {
            Signature::GlobalNumber => Kind::GlobalNumber,
            Signature::GlobalMemory { nonnull: true } => Kind::GlobalNonnull,
            Signature::GlobalMemory { nonnull: false } => Kind::GlobalMemory,
            _ => Kind::Static,
        };
        let Writer { asm, calls, points, ends, .. } = self;
        Written { kind, insns: asm.insns, calls, points, ends }
    }

    /// One statement of any kind that may stand here.
    pub(super) fn statement(&mut self) {
        let may_nest = self.nesting < 2;
        match self.random.below(28) {
            0..=3 if self.depth > 0 && self.has_context && !self.limits.calls => self.tail_call(),
            0..=1 if self.parts.throws && !self.limits.calls => self.throw(),
            0..=8 => self.probe(),
            9..=11 if !self.limits.calls => self.call_statement(),
            12..=13 if !self.limits.calls => self.tail_call(),
            14..=15 if may_nest => self.loop_statement(),
            16..=18 if may_nest && !self.limits.calls => self.hold(),
            19 if may_nest && !self.limits.calls => self.object_statement(),
            20..=21 if may_nest => self.kept_pointer(),
            22 if !self.limits.calls => self.move_packet(),
            23 => self.arena(),
            24 if !self.limits.calls => self.throw(),
            25 if !self.limits.calls && self.random.one_in(12) => self.outlive(),
            25 => self.arena(),
            _ => self.change(),
        }
    }

    /// Statements between `before` and `after`, which get to run whatever fails in between.
    pub(super) fn nested(&mut self, limits: Limits, locked: u16) {
        let (limits_before, locked_before, top) = (self.limits, self.locked, self.top);
        self.limits.calls |= limits.calls;
        self.limits.leaving |= limits.leaving;
        self.locked |= locked;
        self.nesting += 1;
        self.fails.push(Vec::new());
        for _ in 0..self.random.below(3) {
            self.statement();
        }
        let fails = self.fails.pop().unwrap_or_default();
        fails.into_iter().for_each(|jump| self.asm.land(jump));
        self.nesting -= 1;
        (self.limits, self.locked, self.top) = (limits_before, locked_before, top);
    }

    /// Leads a jump to where things fail.
    pub(super) fn fail(&mut self, jump: Jump) {
        if let Some(fails) = self.fails.last_mut() {
            fails.push(jump);
        }
    }

    /// What fails in `body` leads behind it.
    pub(super) fn contained(&mut self, body: impl FnOnce(&mut Self)) {
        let top = self.top;
        self.fails.push(Vec::new());
        body(self);
        let fails = self.fails.pop().unwrap_or_default();
        fails.into_iter().for_each(|jump| self.asm.land(jump));
        self.top = top;
    }

    /// The instruction just written is interesting when it is executed.
    pub(super) fn mark(&mut self, feature: Feature) {
        let slot = self.asm.here().saturating_sub(1);
        self.points.push((slot, feature));
    }

    /// The instruction just written uses something after its end.
    pub(super) fn mark_end(&mut self) {
        self.ends.push(self.asm.here().saturating_sub(1));
    }

    /// Calls a function written already.
    pub(super) fn call_part(&mut self, function: usize) {
        self.calls.push((self.asm.here(), function));
        self.asm.put(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 0);
    }

    /// The address of a function written already.
    pub(super) fn function_address(&mut self, dst: u8, function: usize) {
        self.calls.push((self.asm.here(), function));
        self.asm.put(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_FUNC, 0, 0);
        self.asm.put(0, 0, 0, 0, 0);
    }

    /// So many bytes of the stack, until the statement is over.
    pub(super) fn room(&mut self, bytes: i16) -> i16 {
        self.top -= bytes;
        if self.top < LOWEST {
            // Two things in one place: one more way to be wrong.
            self.top = TEMPORARY - bytes;
        }
        self.top
    }

    /// A kept register that may be written.
    pub(super) fn free(&mut self) -> u8 {
        let reg = 7 + self.random.below(3) as u8;
        let all = [reg, 7 + (reg - 6) % 3, 7 + (reg - 5) % 3];
        all.into_iter().find(|reg| self.locked & 1 << reg == 0).unwrap_or(7)
    }

    /// A kept number.
    pub(super) fn kept(&mut self) -> u8 {
        self.free()
    }

    /// `reg` = address of stack.
    pub(super) fn address(&mut self, reg: u8, offset: i16) {
        self.asm.mov(reg, REG_FP);
        self.asm.alu_imm(BPF_ADD, reg, offset.into());
    }

    /// Something is a little wrong here.
    pub(super) fn misses(&mut self) -> bool {
        let one_in = self.parts.miss;
        self.random.one_in(one_in)
    }
}

/// Slots that hold numbers, below the pointer that functions are given.
pub(super) const SPILLS: usize = 6;
/// Where a function keeps the pointer it was given.
pub(super) const POINTER: i16 = -8;
/// Below this everything is for the moment.
const TEMPORARY: i16 = -64;
/// Lowest of that.
const LOWEST: i16 = -128;

/// Offset of a slot for a number.
pub(super) const fn spill(slot: usize) -> i16 {
    -16 - 8 * slot as i16
}
