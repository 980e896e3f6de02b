//! The walk over one function.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    ConditionCode, FlowControl, Formatter as _, Instruction, InstructionInfoFactory,
    IntelFormatter, Mnemonic, OpAccess, OpKind, Register,
};

use super::identity::{Flags, Id, and_then, id};
use super::values::{ALL_ONES, Cell, Flow, Kind, Known, LEVEL_MAX, Place};
use super::{Unmasked, instructions};

/// Who enters a function, and so what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// The machine, and what programs hand on.
    ByPrograms,
    /// Nothing but the runtime's own.
    ByRuntime,
}

/// Accesses of a function that are not masked.
pub(super) fn function(code: &[u8], start: usize, called: Called) -> Vec<Unmasked> {
    let mut walk = Walk {
        code,
        info: InstructionInfoFactory::new(),
        found: BTreeMap::new(),
        targets: targets(code, start),
        zeros: BTreeMap::new(),
    };
    // What is known on each way to a place, by where the way comes from.
    let mut ways = BTreeMap::from([(start as u64, BTreeMap::from([(NOWHERE, at_start(called))]))]);
    // In the order of the code, which is that of most ways: so few places are come to twice.
    let mut waiting = BTreeSet::from([start as u64]);
    let mut entered = Entered::default();
    let mut visits = 0;
    while let Some(at) = waiting.pop_first() {
        visits += 1;
        if visits == VISITS_MAX {
            return vec![Unmasked { offset: start, text: "the walk comes to no end".to_owned() }];
        }
        for (number, (target, known)) in
            walk.straight_on(at, entered.entering(&ways, at)).into_iter().enumerate()
        {
            let from = (at, number);
            let before = ways.entry(target).or_default().insert(from, known.clone());
            if before.is_none_or(|before| before != known) {
                waiting.insert(target);
            }
        }
    }
    // What was found before all ways were known may be fine; what is found now is not.
    walk.found.clear();
    for (at, (_, known)) in entered.0 {
        walk.straight_on(at, known);
    }
    walk.found.into_values().collect()
}

/// By place, what is known on each way to it, by where that comes from.
type Ways = BTreeMap<u64, BTreeMap<(u64, usize), Known>>;
/// Where functions are entered from.
const NOWHERE: (u64, usize) = (u64::MAX, 0);
/// Pieces of code that one function's walk goes over, again and again, until it knows all.
const VISITS_MAX: usize = 100_000;

/// What was known at each place, and how often it was come to.
#[derive(Default)]
struct Entered(BTreeMap<u64, (u32, Known)>);

impl Entered {
    /// What is known at a place. From the [`VISITS_FREE`]th time on, not more than the time
    /// before: so the walk comes to an end.
    fn entering(&mut self, ways: &Ways, at: u64) -> Known {
        let mut all = ways[&at].values();
        let mut known = all.next().cloned().unwrap_or_else(|| at_start(Called::ByPrograms));
        all.for_each(|other| known.join(other, at));
        let visits = match self.0.get(&at) {
            Some((visits, before)) if *visits >= VISITS_FREE => {
                let now = std::mem::replace(&mut known, before.clone());
                known.join(&now, at);
                *visits
            }
            Some((visits, _)) => visits + 1,
            None => 0,
        };
        self.0.insert(at, (visits, known.clone()));
        known
    }
}

const VISITS_FREE: u32 = 50;

/// Where the branches of a function lead.
fn targets(code: &[u8], start: usize) -> BTreeSet<u64> {
    let mut targets = BTreeSet::new();
    let mut waiting = vec![start as u64];
    while let Some(at) = waiting.pop() {
        for inst in instructions(code, at as usize) {
            let flow = inst.flow_control();
            let branches =
                matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
            if branches && targets.insert(inst.near_branch_target()) {
                waiting.push(inst.near_branch_target());
            }
            let goes_on = FlowControl::ConditionalBranch == flow
                || matches!(
                    flow,
                    FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
                );
            if !goes_on {
                break;
            }
        }
    }
    targets
}

fn at_start(called: Called) -> Known {
    let mut cells = BTreeMap::new();
    let mut fix = |register, kind| {
        let place = Place::Register(number(register));
        cells.insert(place, Cell { kind, id: id(place) });
    };
    fix(Register::RSP, Kind::Fixed(0));
    fix(Register::RBP, Kind::Fixed(0));
    let given = [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8];
    let own = if called == Called::ByRuntime { given.len() } else { 1 };
    given.into_iter().take(own).for_each(|register| fix(register, Kind::Fixed(LEVEL_MAX)));
    // What entered it may have been foreseen.
    Known { cells, flags: Flags::of(0), is_own_comparison: false, flow: Flow::Lost }
}

fn number(register: Register) -> usize {
    register.full_register().number()
}

struct Walk<'c> {
    code: &'c [u8],
    info: InstructionInfoFactory,
    found: BTreeMap<u64, Unmasked>,
    /// Where branches lead.
    targets: BTreeSet<u64>,
    /// What is 0, in so many bytes, where another value is in so many of its own.
    zeros: BTreeMap<(Id, usize), (Id, usize)>,
}

impl Walk<'_> {
    /// From one place on, up to where ways part; gives what is known on each.
    fn straight_on(&mut self, at: u64, mut known: Known) -> Vec<(u64, Known)> {
        let mut was_exchange = false;
        for inst in instructions(self.code, at as usize) {
            if inst.ip() != at && self.targets.contains(&inst.ip()) {
                return vec![(inst.ip(), known)];
            }
            self.access(&inst, &known);
            match inst.flow_control() {
                FlowControl::Next => self.step(&inst, &mut known),
                FlowControl::Call | FlowControl::IndirectCall => called(&inst, &mut known),
                FlowControl::UnconditionalBranch => {
                    return vec![(inst.near_branch_target(), known)];
                }
                FlowControl::ConditionalBranch => {
                    if was_exchange {
                        // Back to the same place until no other write came between: it stays the
                        // same.
                        return vec![
                            (inst.near_branch_target(), known.clone()),
                            (inst.next_ip(), known),
                        ];
                    }
                    if self.traps(inst.near_branch_target()) {
                        // It ends the process: what it asks never holds, but where the processor
                        // goes there, nothing follows.
                        return vec![(inst.next_ip(), known)];
                    }
                    let taken = inst.condition_code();
                    return vec![
                        (inst.near_branch_target(), known.behind(taken)),
                        (inst.next_ip(), known.behind(negated(taken))),
                    ];
                }
                _ => return Vec::new(),
            }
            was_exchange = inst.mnemonic() == Mnemonic::Cmpxchg;
        }
        Vec::new()
    }

    fn traps(&self, at: u64) -> bool {
        instructions(self.code, at as usize)
            .next()
            .is_some_and(|inst| inst.mnemonic() == Mnemonic::Ud2)
    }

    fn access(&mut self, inst: &Instruction, known: &Known) {
        let is_access = (0..inst.op_count()).any(|op| inst.op_kind(op) == OpKind::Memory)
            && !matches!(inst.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        if !is_access || known.is_clean() || is_masked(inst, known) {
            return;
        }
        let mut text = String::new();
        IntelFormatter::new().format(inst, &mut text);
        self.found.insert(inst.ip(), Unmasked { offset: inst.ip() as usize, text });
    }

    fn step(&mut self, inst: &Instruction, known: &mut Known) {
        if inst.mnemonic() == Mnemonic::Lfence {
            return known.is_clear();
        }
        if matches!(inst.mnemonic(), Mnemonic::Push | Mnemonic::Pop) {
            return self.write(inst, known, Cell { kind: Kind::Any, id: id(inst.ip()) });
        }
        if matches!(inst.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
            (known.flags, known.is_own_comparison) = self.compared(inst, known);
            return;
        }
        let result = self.result(inst, known);
        if inst.rflags_modified() != 0 {
            (known.flags, known.is_own_comparison) = (Flags::of((inst.ip(), result.id)), false);
        }
        if matches!(known.flow, Flow::Branched { .. }) && result.kind == Kind::State {
            known.is_followed();
        }
        self.write(inst, known, result);
    }

    /// What an instruction gives.
    fn result(&mut self, inst: &Instruction, known: &Known) -> Cell {
        let operands: Vec<Cell> =
            (0..inst.op_count()).map(|op| self.operand(inst, op, known)).collect();
        let ids: Vec<Id> = operands.iter().map(|cell| cell.id).collect();
        let flags = (inst.rflags_read() != 0).then_some(known.flags);
        let fresh = sum(inst, &operands, known)
            .unwrap_or_else(|| id((inst.mnemonic() as u32, size(inst), &ids, flags)));
        if let (Mnemonic::Mov, [_, from]) = (inst.mnemonic(), &operands[..]) {
            let bytes = size(inst);
            let kind = if bytes < 8 { cut(from.kind) } else { from.kind };
            return Cell { kind, id: from.id.partial(bytes) };
        }
        let kind = match (inst.mnemonic(), &operands[..]) {
            (Mnemonic::Xor, [a, b]) if a.id == b.id => return constant(0),
            (Mnemonic::Movzx, [_, byte]) if inst.op1_kind() == OpKind::Register => {
                return Cell { kind: Kind::Any, id: byte.id.low(inst.op1_register().size()) };
            }
            (_, [_]) if inst.condition_code() != ConditionCode::None => {
                let (of, holds) = known.flags.truth(inst.condition_code());
                return Cell { kind: Kind::Any, id: id((of, holds as u32)) };
            }
            (Mnemonic::Imul, [.., a, Cell { kind: Kind::Const(number), .. }])
                if number % 2 != 0 =>
            {
                return self.zero_with(inst, fresh, *a);
            }
            (Mnemonic::Neg | Mnemonic::Bswap, [a]) => return self.zero_with(inst, fresh, *a),
            (Mnemonic::Movsx | Mnemonic::Movsxd, [_, a]) if inst.op1_kind() == OpKind::Register => {
                return self.zero_with(inst, fresh, *a);
            }
            (Mnemonic::Lea, _) => match address(inst, known) {
                Kind::Masked | Kind::MaskedBy(_) => Kind::Any,
                kind => kind,
            },
            (Mnemonic::And, [a, b]) => conjunction(a.kind, b.kind, known),
            (mnemonic, [a, b]) if is_conditional_move(mnemonic) => {
                choice(inst.condition_code(), a.kind, b.kind, known)
            }
            _ => {
                let reads = inst.op_count() > 0 && ids.len() < 4;
                let kinds = operands.iter().map(|cell| cell.kind);
                if reads { Kind::of_all(kinds) } else { Kind::Any }
            }
        };
        Cell { kind, id: fresh }
    }

    /// What is 0 where its operand is: that in so many of the operand's bytes, and of its own.
    fn zero_with(&mut self, inst: &Instruction, fresh: Id, of: Cell) -> Cell {
        let bytes = size(inst);
        let id = fresh.partial(bytes);
        let widths: &[(usize, usize)] = match inst.mnemonic() {
            Mnemonic::Imul | Mnemonic::Neg if bytes == 8 => &[(4, 4), (8, 8)],
            Mnemonic::Movsx | Mnemonic::Movsxd => &[(inst.op1_register().size(), bytes)],
            _ => &[(bytes, bytes)],
        };
        for &(of_operand, own) in widths {
            self.zeros.insert((id.low(own).whole(), own), (of.id.low(of_operand), of_operand));
        }
        Cell { kind: Kind::of_all([of.kind].into_iter()), id }
    }

    fn operand(&self, inst: &Instruction, op: u32, known: &Known) -> Cell {
        match inst.op_kind(op) {
            OpKind::Register if inst.op_register(op).is_gpr() => {
                known.get(Place::Register(number(inst.op_register(op))))
            }
            OpKind::Register => Cell { kind: Kind::Any, id: id((inst.ip(), op)) },
            OpKind::Memory => match slot(inst) {
                Some(slot) => known.get(slot),
                None if inst.memory_base() == Register::RIP => {
                    let number = self.constant_at(inst.memory_displacement64());
                    let id = number.map_or(id((inst.ip(), "no constant")), Id::number);
                    Cell { kind: Kind::Fixed(LEVEL_MAX - 1), id }
                }
                None => {
                    let through = match address(inst, known) {
                        Kind::Fixed(level) => level.checked_sub(1),
                        _ => None,
                    };
                    let kind = through.map_or(Kind::Any, Kind::Fixed);
                    Cell { kind, id: id((inst.ip(), "memory")) }
                }
            },
            _ => constant(inst.immediate(op) as i64),
        }
    }

    /// A constant that the compiler put beside its code.
    fn constant_at(&self, at: u64) -> Option<i64> {
        let bytes = self.code.get(at as usize..)?.first_chunk()?;
        Some(i64::from_le_bytes(*bytes))
    }

    /// A comparison, and whether its operands are the runtime's own numbers.
    fn compared(&self, inst: &Instruction, known: &Known) -> (Flags, bool) {
        let cells: Vec<Cell> =
            (0..inst.op_count()).map(|op| self.operand(inst, op, known)).collect();
        let own = cells.iter().all(|cell| cell.kind == Kind::Fixed(LEVEL_MAX));
        let [a, b] = [cells[0].id, cells[1].id];
        let bytes = size(inst);
        if inst.mnemonic() != Mnemonic::Test {
            return (Flags::compared(a, b, bytes), own);
        }
        let both = conjunction_id(a, b);
        let mut zero = (both, both.width(bytes));
        while let Some(&(other, width)) = self.zeros.get(&(zero.0.low(zero.1).whole(), zero.1)) {
            zero = (other, other.width(width));
        }
        let with_zero = |(id, bytes)| Flags::compared(id, Id::number(0), bytes);
        (with_zero((both, bytes)).equal_as(with_zero(zero)), own)
    }

    /// Sets what an instruction writes.
    fn write(&mut self, inst: &Instruction, known: &mut Known, result: Cell) {
        if inst.op0_kind() == OpKind::Memory
            && let Some(slot) = slot(inst)
        {
            known.cells.insert(slot, result);
        }
        let is_result = |register: Register| {
            inst.op0_kind() == OpKind::Register && number(inst.op0_register()) == number(register)
        };
        let info = self.info.info(inst);
        for used in info.used_registers() {
            let writes = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if !writes || !used.register().is_gpr() || number(used.register()) == RSP {
                continue;
            }
            let place = Place::Register(number(used.register()));
            let other = Cell { kind: Kind::Any, id: id((inst.ip(), place)) };
            known.cells.insert(place, if is_result(used.register()) { result } else { other });
        }
    }
}

const RSP: usize = 4;
/// Distances from address 0 at which no process has memory.
const UNMAPPED: std::ops::RangeInclusive<i64> = -4096..=4088;

/// Whether the address of an access is the runtime's own, or masked.
fn is_masked(inst: &Instruction, known: &Known) -> bool {
    match address(inst, known) {
        Kind::Const(_) => true,
        kind if known.is_masked(kind) => UNMAPPED.contains(&(inst.memory_displacement64() as i64)),
        Kind::Fixed(level) => level > 0 || slot(inst).is_some(),
        _ => false,
    }
}

/// What kind of an address an instruction names.
fn address(inst: &Instruction, known: &Known) -> Kind {
    let parts = [inst.memory_base(), inst.memory_index()];
    if parts[0] == Register::RIP {
        return Kind::Fixed(LEVEL_MAX);
    }
    let parts = parts.into_iter().filter(|part| *part != Register::None);
    let kinds: Vec<Kind> =
        parts.map(|part| known.get(Place::Register(number(part))).kind).collect();
    match kinds[..] {
        [masked @ (Kind::Masked | Kind::MaskedBy(_))] => masked,
        _ => Kind::of_all(kinds.into_iter()),
    }
}

/// The slot of the native stack that an instruction names.
fn slot(inst: &Instruction) -> Option<Place> {
    let by_frame = match inst.memory_base() {
        Register::RSP => false,
        Register::RBP => true,
        _ => return None,
    };
    let offset = inst.memory_displacement64() as i64;
    (inst.memory_index() == Register::None).then_some(Place::Slot { by_frame, offset })
}

fn constant(value: i64) -> Cell {
    Cell { kind: Kind::Const(value), id: Id::number(value) }
}

/// The identity of a sum with a constant, or of a conjunction.
fn sum(inst: &Instruction, operands: &[Cell], known: &Known) -> Option<Id> {
    let bytes = size(inst);
    let sum = match (inst.mnemonic(), operands) {
        (Mnemonic::Add, [a, Cell { kind: Kind::Const(more), .. }]) => {
            a.id.and_plus_in(*more, bytes)
        }
        (Mnemonic::Sub, [a, Cell { kind: Kind::Const(less), .. }]) => {
            a.id.and_plus_in(less.wrapping_neg(), bytes)
        }
        (Mnemonic::Lea, _) => {
            let place = |register| known.get(Place::Register(number(register))).id;
            let displacement = inst.memory_displacement64() as i64;
            match [inst.memory_base(), inst.memory_index()] {
                [Register::None | Register::RIP, _] => return None,
                [base, Register::None] => place(base).and_plus_in(displacement, bytes),
                [base, index] => place(base)
                    .and_times(place(index), inst.memory_index_scale())
                    .and_plus(displacement),
            }
        }
        (Mnemonic::And, [a, b]) => conjunction_id(a.id, b.id),
        _ => return None,
    };
    Some(sum.partial(bytes))
}

/// The identity of a conjunction.
fn conjunction_id(a: Id, b: Id) -> Id {
    if a == b { a } else { id(("and", a.min(b), a.max(b))) }
}

fn size(inst: &Instruction) -> usize {
    match inst.op0_kind() {
        OpKind::Register => inst.op0_register().size(),
        _ => inst.memory_size().size(),
    }
}

/// The lower half of a value.
fn cut(kind: Kind) -> Kind {
    match kind {
        Kind::Const(value) => Kind::Const(i64::from(value as u32)),
        Kind::Fixed(level) => Kind::Fixed(level),
        _ => Kind::Any,
    }
}

fn conjunction(a: Kind, b: Kind, known: &Known) -> Kind {
    match (a, b) {
        _ if known.is_state(a) || known.is_state(b) => Kind::Masked,
        (Kind::Says(all), _) | (_, Kind::Says(all)) => Kind::MaskedBy(all),
        _ => Kind::of_all([a, b].into_iter()),
    }
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    format!("{mnemonic:?}").starts_with("Cmov")
}

/// What `if condition { b } else { a }` is: the state, where it is that of before the last branch
/// on the way that the program takes, and 0 on the other.
fn choice(condition: ConditionCode, a: Kind, b: Kind, known: &Known) -> Kind {
    let none = Kind::Const(0);
    let (before, holds) = match (a, b) {
        (_, b) if b == none => (a, negated(condition)),
        (a, _) if a == none => (b, condition),
        _ => return Kind::Any,
    };
    let truth = known.flags.truth(holds);
    let ahead = match before {
        Kind::Const(ALL_ONES) => Kind::Says(and_then(0, truth)),
        Kind::Says(all) => Kind::Says(and_then(all, truth)),
        _ => Kind::Any,
    };
    let (Flow::Branched { branches, .. }, Some(count)) = (&known.flow, known.said(before)) else {
        return ahead;
    };
    match branches.get(count) {
        Some(branch) if *branch != truth => ahead,
        Some(_) if count + 1 == branches.len() => Kind::State,
        Some(_) => Kind::Prior(count + 1),
        None => ahead,
    }
}

fn called(inst: &Instruction, known: &mut Known) {
    use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
    for register in [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11] {
        let place = Place::Register(number(register));
        known.cells.insert(place, Cell { kind: Kind::Any, id: id((inst.ip(), place)) });
    }
    (known.flags, known.is_own_comparison) = (Flags::of(inst.ip()), false);
}

fn negated(condition: ConditionCode) -> ConditionCode {
    use ConditionCode as C;
    match condition {
        C::o => C::no,
        C::no => C::o,
        C::b => C::ae,
        C::ae => C::b,
        C::e => C::ne,
        C::ne => C::e,
        C::be => C::a,
        C::a => C::be,
        C::s => C::ns,
        C::ns => C::s,
        C::p => C::np,
        C::np => C::p,
        C::l => C::ge,
        C::ge => C::l,
        C::le => C::g,
        C::g => C::le,
        C::None => C::None,
    }
}
