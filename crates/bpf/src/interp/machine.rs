//! The registers, the call stack and the loop that executes one instruction after another.

use std::sync::Arc;

use super::code::imm64;
use super::{
    Callbacks, Code, Fault, MAX_CALL_FRAMES, MAX_LOOPS, MAX_TAIL_CALLS, Runtime, Stop, Violation,
    alu, function_address, function_slot, jump, memory,
};
use crate::insn::{
    BPF_ALU, BPF_ALU64, BPF_ATOMIC, BPF_CALL, BPF_END, BPF_EXIT, BPF_JA, BPF_JCOND, BPF_JMP,
    BPF_JMP32, BPF_LDX, BPF_MEM, BPF_MOV, BPF_ST, BPF_STX, Insn, PSEUDO_CALL, PSEUDO_FUNC,
    PSEUDO_KFUNC_CALL, REG_COUNT, REG_FP,
};

/// Bounds on one run. A verified program ends by itself; the limit is for unverified streams and
/// for tests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of instructions after which the run ends with [`Violation::Budget`].
    pub insns: u64,
}

impl Default for Limits {
    /// No limit on instructions.
    fn default() -> Self {
        Limits { insns: u64::MAX }
    }
}

/// Runs a program from its first instruction with r1 = `ctx` and returns its r0.
pub fn run<R: Runtime>(
    code: &Arc<Code>,
    ctx: u64,
    runtime: &mut R,
    limits: &Limits,
) -> Result<u64, Fault> {
    run_at(code, 0, [ctx, 0, 0, 0, 0], runtime, limits)
}

/// Runs a program that a tail call from other code reached. `tail_calls` counts the tail calls
/// before the run; those of the run are added.
pub fn run_tail_called<R: Runtime>(
    code: &Arc<Code>,
    ctx: u64,
    runtime: &mut R,
    limits: &Limits,
    tail_calls: &mut u32,
) -> Result<u64, Fault> {
    let mut machine = Machine { tail_calls: *tail_calls, ..Machine::new(code, limits) };
    let result = machine.run(0, [ctx, 0, 0, 0, 0], runtime);
    *tail_calls = machine.tail_calls;
    result
}

/// Runs one function of a program on its own, as a timer does with its callback.
pub fn run_function<R: Runtime>(
    code: &Arc<Code>,
    function: u64,
    args: [u64; 5],
    runtime: &mut R,
    limits: &Limits,
) -> Result<u64, Fault> {
    match function_slot(function) {
        Some(slot) => run_at(code, slot, args, runtime, limits),
        None => Err(Fault {
            program: code.name.clone(),
            insn: 0,
            source_line: None,
            violation: Violation::NotAFunction { addr: function },
        }),
    }
}

/// Runs the code from any slot with any arguments.
pub(super) fn run_at<R: Runtime>(
    code: &Arc<Code>,
    slot: usize,
    args: [u64; 5],
    runtime: &mut R,
    limits: &Limits,
) -> Result<u64, Fault> {
    Machine::new(code, limits).run(slot, args, runtime)
}

/// The state of a run.
struct Machine {
    code: Arc<Code>,
    regs: [u64; REG_COUNT],
    /// Slot of the next instruction.
    next: usize,
    /// Frames of the callers and, last, of the running function.
    frames: Vec<CallFrame>,
    tail_calls: u32,
    limit: u64,
    executed: u64,
    /// Number of executed instructions at which the run ends: the limit less the cost of called
    /// functions.
    until: u64,
    /// Place of the first violation.
    stopped_at: Option<(Arc<Code>, usize)>,
}

/// Saved state to go back to a caller.
struct CallFrame {
    /// The caller; `None` if that is a helper or the start of the run.
    caller: Option<Caller>,
    /// Rounds left for `may_goto`; the kernel keeps this counter in the function's stack frame.
    loops_left: u32,
    role: Role,
}

/// Role of a frame in the unwinding of an exception (`bpf_stack_walker` in the kernel's helpers.c).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A function, which is unwound.
    Function,
    /// The start of a program, by the run or by a tail call: the last frame to be unwound.
    Program,
    /// The program's exception callback, which replaces the start of the program.
    Catching,
}

struct Caller {
    code: Arc<Code>,
    next: usize,
    /// r6..r10, which a callee preserves.
    saved: [u64; 5],
}

/// Effect of an instruction on control flow.
enum Flow {
    Next,
    /// The function that was started by a helper or the run has returned.
    Done,
}

impl Machine {
    fn new(code: &Arc<Code>, limits: &Limits) -> Machine {
        Machine {
            code: Arc::clone(code),
            regs: [0; REG_COUNT],
            next: 0,
            frames: Vec::with_capacity(MAX_CALL_FRAMES),
            tail_calls: 0,
            limit: limits.insns,
            executed: 0,
            until: limits.insns,
            stopped_at: None,
        }
    }

    /// Runs a function to the end.
    fn run<R: Runtime>(
        &mut self,
        slot: usize,
        args: [u64; 5],
        runtime: &mut R,
    ) -> Result<u64, Fault> {
        let result = self.call_slot(runtime, slot, args, Role::Program);
        runtime.ended(self.executed);
        match result {
            // An exception goes no further than to the run's first frame.
            Ok(r0) | Err(Stop::Throw(r0)) => Ok(r0),
            Err(Stop::Violation(violation)) => Err(self.fault(*violation)),
        }
    }

    /// Runs a function to its exit, for any caller in the host.
    fn call_slot<R: Runtime>(
        &mut self,
        runtime: &mut R,
        slot: usize,
        args: [u64; 5],
        role: Role,
    ) -> Result<u64, Stop> {
        let base = self.frames.len();
        self.push_frame(runtime, None, role)?;
        self.regs[1..6].copy_from_slice(&args);
        self.next = slot;
        loop {
            let at = self.next;
            let flow = match self.step(runtime) {
                Err(Stop::Throw(cookie)) => self.catch(runtime, base, cookie),
                flow => flow,
            };
            match flow {
                Ok(Flow::Next) => {}
                Ok(Flow::Done) => return Ok(self.regs[0]),
                Err(stop) => {
                    if self.stopped_at.is_none() && matches!(stop, Stop::Violation(_)) {
                        self.stopped_at = Some((Arc::clone(&self.code), at));
                    }
                    return Err(stop);
                }
            }
        }
    }

    /// Handles `bpf_throw`: unwinds the functions of the running program, whose exception callback
    /// makes its result; without a callback that is the cookie itself (`bpf_throw` and `ex_cb` in
    /// the kernel's helpers.c). Callers before a tail call go on with the result. The exception is
    /// passed on to the caller in the host if the program started further out than at frame `base`.
    fn catch<R: Runtime>(
        &mut self,
        runtime: &mut R,
        base: usize,
        cookie: u64,
    ) -> Result<Flow, Stop> {
        let start = self.frames.iter().rposition(|frame| frame.role != Role::Function);
        let Some(start) = start.filter(|&start| start >= base) else {
            return Err(Stop::Throw(cookie));
        };
        while self.frames.len() > start + 1 {
            self.pop_frame(runtime);
        }
        let frame = &mut self.frames[start];
        match self.code.exception_callback() {
            Some(slot) if frame.role == Role::Program => {
                (frame.role, frame.loops_left) = (Role::Catching, MAX_LOOPS);
                self.regs[usize::from(REG_FP)] = runtime.enter_frame(start)?;
                self.regs[1] = cookie;
                self.next = slot as usize;
                Ok(Flow::Next)
            }
            _ => {
                self.regs[0] = cookie;
                Ok(self.exit(runtime))
            }
        }
    }

    /// Executes one instruction.
    #[inline]
    fn step<R: Runtime>(&mut self, runtime: &mut R) -> Result<Flow, Stop> {
        let at = self.next;
        let Some(&insn) = self.code.insns().get(at) else {
            return Err(self.outside(at as i64));
        };
        if usize::from(insn.dst) >= REG_COUNT || self.executed >= self.until {
            return Err(self.refuse(insn));
        }
        if self.executed.is_multiple_of(LOOK_PERIOD) {
            runtime.look()?;
        }
        runtime.observe(&self.code, at, &self.regs)?;
        self.executed += 1;
        self.next = at + 1;
        match insn.class() {
            BPF_ALU | BPF_ALU64 => self.arithmetic(runtime, insn)?,
            BPF_LDX => {
                let base = self.source(insn)?;
                let value = memory::load(runtime, insn, base, self.code.access(at))?;
                self.regs[usize::from(insn.dst)] = value.ok_or_else(|| unknown(insn))?;
            }
            BPF_ST | BPF_STX => self.store(runtime, insn, at)?,
            BPF_JMP | BPF_JMP32 => return self.jump(runtime, insn, at),
            _ => self.load_immediate(insn, at)?,
        }
        Ok(Flow::Next)
    }

    fn arithmetic<R: Runtime>(&mut self, runtime: &mut R, insn: Insn) -> Result<(), Stop> {
        let dst = self.regs[usize::from(insn.dst)];
        let value = if insn.op() == BPF_END {
            alu::swap(insn, dst)
        } else if is_address_space_cast(insn) {
            Some(cast(runtime, insn, self.source(insn)?))
        } else {
            alu::alu(insn, dst, self.operand(insn)?)
        };
        self.regs[usize::from(insn.dst)] = value.ok_or_else(|| unknown(insn))?;
        Ok(())
    }

    fn store<R: Runtime>(&mut self, runtime: &mut R, insn: Insn, at: usize) -> Result<(), Stop> {
        let access = self.code.access(at);
        let base = self.regs[usize::from(insn.dst)];
        match (insn.class(), insn.mode()) {
            (BPF_ST, BPF_MEM) => {
                memory::store(runtime, insn, base, access, i64::from(insn.imm) as u64)?;
            }
            (BPF_STX, BPF_MEM) => memory::store(runtime, insn, base, access, self.source(insn)?)?,
            (BPF_STX, BPF_ATOMIC) => {
                self.source(insn)?;
                if !memory::atomic(runtime, insn, access, &mut self.regs)? {
                    return Err(unknown(insn));
                }
            }
            _ => return Err(unknown(insn)),
        }
        Ok(())
    }

    /// `LD`: the only defined form is the two-slot immediate (the legacy packet loads are for
    /// socket filters).
    fn load_immediate(&mut self, insn: Insn, at: usize) -> Result<(), Stop> {
        if !insn.is_ld_imm64() {
            return Err(unknown(insn));
        }
        let value = match insn.src {
            0 => imm64(self.code.insns(), at).ok_or_else(|| self.outside(at as i64 + 1))?,
            PSEUDO_FUNC => function_address(self.target(at, i64::from(insn.imm))?),
            _ => return Err(unknown(insn)),
        };
        self.regs[usize::from(insn.dst)] = value;
        self.next = at + 2;
        Ok(())
    }

    fn jump<R: Runtime>(&mut self, runtime: &mut R, insn: Insn, at: usize) -> Result<Flow, Stop> {
        match (insn.class(), insn.op()) {
            (BPF_JMP, BPF_CALL) => return self.call(runtime, insn, at),
            (BPF_JMP, BPF_EXIT) => return Ok(self.exit(runtime)),
            (BPF_JMP, BPF_JA) => self.next = self.target(at, i64::from(insn.off))?,
            // The long form of a jump (`gotol`).
            (BPF_JMP32, BPF_JA) => self.next = self.target(at, i64::from(insn.imm))?,
            (BPF_JMP, BPF_JCOND) if insn.src == 0 => self.may_goto(insn, at)?,
            _ => {
                let dst = self.regs[usize::from(insn.dst)];
                let taken = jump::taken(insn, dst, self.operand(insn)?);
                if taken.ok_or_else(|| unknown(insn))? {
                    self.next = self.target(at, i64::from(insn.off))?;
                }
            }
        }
        Ok(Flow::Next)
    }

    /// Falls through as long as rounds are left, then jumps (`BPF_MAY_GOTO`).
    fn may_goto(&mut self, insn: Insn, at: usize) -> Result<(), Stop> {
        let target = self.target(at, i64::from(insn.off))?;
        if let Some(frame) = self.frames.last_mut() {
            match frame.loops_left.checked_sub(1) {
                Some(left) => frame.loops_left = left,
                None => self.next = target,
            }
        }
        Ok(())
    }

    fn call<R: Runtime>(&mut self, runtime: &mut R, insn: Insn, at: usize) -> Result<Flow, Stop> {
        let args = [self.regs[1], self.regs[2], self.regs[3], self.regs[4], self.regs[5]];
        match insn.src {
            0 if insn.is_tail_call() => self.tail_call(runtime, args)?,
            0 => {
                self.regs[0] = runtime.call_helper(insn.imm as u32, args, self)?;
                self.until = self.until.saturating_sub(runtime.take_cost());
            }
            PSEUDO_CALL => {
                let target = self.target(at, i64::from(insn.imm))?;
                let mut saved = [0; 5];
                saved.copy_from_slice(&self.regs[6..]);
                let caller = Caller { code: Arc::clone(&self.code), next: self.next, saved };
                self.push_frame(runtime, Some(caller), Role::Function)?;
                self.next = target;
            }
            PSEUDO_KFUNC_CALL if insn.imm < 0 => {
                let name = self.code.unknown_kfunc(insn.imm);
                return Err(Violation::UnknownKfunc { name }.into());
            }
            PSEUDO_KFUNC_CALL => {
                self.regs[0] = runtime.call_kfunc(insn.imm as u32, args, self)?;
                self.until = self.until.saturating_sub(runtime.take_cost());
            }
            _ => return Err(unknown(insn)),
        }
        Ok(Flow::Next)
    }

    /// `bpf_tail_call(ctx, prog_array, index)`: on success the running function is replaced, and
    /// its caller gets the other program's r0. On failure the next instruction runs.
    fn tail_call<R: Runtime>(&mut self, runtime: &mut R, args: [u64; 5]) -> Result<(), Stop> {
        if self.tail_calls >= MAX_TAIL_CALLS {
            return Ok(());
        }
        let Some(code) = runtime.tail_call(args[1], args[2] as u32)? else { return Ok(()) };
        self.tail_calls += 1;
        self.code = code;
        self.next = 0;
        if let Some(frame) = self.frames.last_mut() {
            (frame.role, frame.loops_left) = (Role::Program, MAX_LOOPS);
        }
        Ok(())
    }

    fn exit<R: Runtime>(&mut self, runtime: &mut R) -> Flow {
        match self.pop_frame(runtime) {
            Some(caller) => {
                self.resume(runtime, caller.code);
                self.next = caller.next;
                self.regs[6..].copy_from_slice(&caller.saved);
                Flow::Next
            }
            None => Flow::Done,
        }
    }

    /// Continues a caller's program, which may be another one than the current after a tail call.
    fn resume<R: Runtime>(&mut self, runtime: &mut R, code: Arc<Code>) {
        if !Arc::ptr_eq(&self.code, &code) {
            runtime.resume(&code);
            self.code = code;
        }
    }

    fn push_frame<R: Runtime>(
        &mut self,
        runtime: &mut R,
        caller: Option<Caller>,
        role: Role,
    ) -> Result<(), Stop> {
        self.regs[usize::from(REG_FP)] = runtime.enter_frame(self.frames.len())?;
        self.frames.push(CallFrame { caller, loops_left: MAX_LOOPS, role });
        Ok(())
    }

    fn pop_frame<R: Runtime>(&mut self, runtime: &mut R) -> Option<Caller> {
        let frame = self.frames.pop()?;
        runtime.leave_frame(self.frames.len());
        frame.caller
    }

    /// The second operand of an arithmetic or jump instruction.
    fn operand(&self, insn: Insn) -> Result<u64, Stop> {
        if insn.is_reg_operand() { self.source(insn) } else { Ok(i64::from(insn.imm) as u64) }
    }

    fn source(&self, insn: Insn) -> Result<u64, Stop> {
        self.regs.get(usize::from(insn.src)).copied().ok_or_else(|| unknown(insn))
    }

    /// The slot `distance` after the one that follows `at`.
    fn target(&self, at: usize, distance: i64) -> Result<usize, Stop> {
        let target = at as i64 + 1 + distance;
        match usize::try_from(target) {
            Ok(slot) if slot < self.code.insns().len() => Ok(slot),
            _ => Err(self.outside(target)),
        }
    }

    fn outside(&self, target: i64) -> Stop {
        Violation::OutsideProgram { target, len: self.code.insns().len() }.into()
    }

    #[cold]
    fn refuse(&self, insn: Insn) -> Stop {
        if self.executed >= self.until {
            return Violation::Budget { limit: self.limit }.into();
        }
        unknown(insn)
    }

    /// Adds the place to a violation.
    fn fault(&mut self, violation: Violation) -> Fault {
        let (code, insn) = match self.stopped_at.take() {
            Some(place) => place,
            None => (Arc::clone(&self.code), self.next),
        };
        Fault { program: code.name.clone(), insn, source_line: code.source_line(insn), violation }
    }
}

impl<R: Runtime> Callbacks<R> for Machine {
    fn call(&mut self, runtime: &mut R, function: u64, args: [u64; 5]) -> Result<u64, Stop> {
        let slot = function_slot(function).ok_or(Violation::NotAFunction { addr: function })?;
        if slot >= self.code.insns().len() {
            return Err(Violation::NotAFunction { addr: function }.into());
        }
        let (regs, next, code) = (self.regs, self.next, Arc::clone(&self.code));
        let r0 = self.call_slot(runtime, slot, args, Role::Function)?;
        (self.regs, self.next) = (regs, next);
        self.resume(runtime, code);
        Ok(r0)
    }

    fn code(&self) -> Arc<Code> {
        Arc::clone(&self.code)
    }
}

fn unknown(insn: Insn) -> Stop {
    let Insn { code, src, off, imm, .. } = insn;
    Violation::UnknownInstruction { code, src, off, imm }.into()
}

/// Whether this is `addr_space_cast`: a 64-bit register move whose offset is 1
/// (`BPF_ADDR_SPACE_CAST`).
fn is_address_space_cast(insn: Insn) -> bool {
    insn.code == (BPF_ALU64 | BPF_MOV | 0x08) && insn.off == 1
}

/// Casts an address. To the arena (imm 1): only the low 32 bits matter from here on. To user space
/// (imm 1 << 16): the address in the user's mapping, and null stays null (`do_jit` and
/// `emit_...addr_space_cast`).
fn cast<R: Runtime>(runtime: &mut R, insn: Insn, value: u64) -> u64 {
    let low = u64::from(value as u32);
    if insn.imm == CAST_TO_USER && low != 0 {
        return (runtime.arena_user_base() & !0xffff_ffff) | low;
    }
    low
}

/// Immediate of a cast to user space: destination address space 0, source address space 1, which is
/// in the upper half.
const CAST_TO_USER: i32 = 1 << 16;
/// Number of instructions between two checks whether the run may continue.
const LOOK_PERIOD: u64 = 1024;
