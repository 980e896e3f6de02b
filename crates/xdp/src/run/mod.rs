//! A run of a program over a frame: everything the program can access, and how.
//!
//! [`Run`] is the [`Runtime`] of the interpreter, and helpers get it from every caller, so that
//! compiled code shares them.

mod context;
mod reach_unsafe;
mod recent;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;
use std::sync::Arc;

use towpath_bpf::insn::{REG_COUNT, STACK_BYTES};
use towpath_bpf::interp::{
    self, AtomicOp, Callbacks, Code, Fault, MAX_CHAIN_FRAMES, Observer, Runtime, Stop, Violation,
};
use towpath_maps::ringbuf::Ringbuf;
use towpath_maps::{Arena, Map, MapSet};

pub(crate) use context::EGRESS_IFINDEX;
pub(crate) use reach_unsafe::share;
use recent::Recent;

use crate::conntrack::Connection;
use crate::frame::Frame;
use crate::helpers;
use crate::memory;
use crate::objects::Class;
use crate::program::{Surroundings, TailCallee};
use crate::targets::Targets;
use crate::worker::Worker;
use crate::xfrm::Layout;

/// The state of one run.
pub(crate) struct Run<'a> {
    pub(crate) frame: &'a mut Frame,
    pub(crate) worker: &'a mut Worker,
    /// Maps of the running program.
    pub(crate) maps: &'a MapSet,
    /// Maps of the program that the burst was given to: redirects refer to maps by their indexes
    /// here.
    burst_maps: &'a MapSet,
    pub(crate) surroundings: &'a Surroundings,
    /// Number of the frame in its burst.
    pub(crate) index: u32,
    /// Targets of redirect calls.
    pub(crate) targets: Targets,
    /// Instructions that the interpreter executed.
    pub(crate) executed: u64,
    /// Memory besides stack, frame and maps that the program got from a helper.
    pub(crate) extras: Vec<Extra>,
    /// Ring buffer records it has reserved and not yet given back.
    pub(crate) records: Vec<Record<'a>>,
    /// Process and thread ids, once the program asked for them; `uid_gid` has user and group.
    pub(crate) pid_tgid: Option<u64>,
    pub(crate) uid_gid: Option<u64>,
    /// Cached lookups of types of the running program.
    pub(crate) types: Types,
    /// Lowest stack address the active functions may touch.
    stack_floor: u64,
    /// r10 of the function that the interpreter starts with.
    stack_base: u64,
    /// Recent grants.
    recent: Recent,
    /// Whether the program was verified, so that helpers need not check again. The interpreter
    /// always checks.
    pub(crate) proved: bool,
    /// Cost of called functions since it was last read, in instructions, and its limit.
    pub(crate) cost: Cost,
    /// The observer of this run.
    observer: Option<&'a dyn Observer>,
    /// Whether the run is observed: by an observer of its own, or the worker's sanitizer or
    /// observer.
    watched: bool,
}

/// The cost of called functions in a run of an untrusted program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    spent: u64,
    left: u64,
}

/// Cached results from a program's BTF that helpers need repeatedly.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// Structures of the program, whether an object is for each CPU, and the objects' class.
    pub(crate) allocated: Vec<(u64, bool, Arc<Class>)>,
    /// The layout of connections.
    pub(crate) connection: Option<Connection>,
    /// The layout of IPsec states.
    pub(crate) xfrm: Option<Arc<Layout>>,
}

/// A piece of memory a helper gave to the program: an object, a slice, a sample of user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extra {
    /// First byte.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Stores and atomics are allowed.
    pub(crate) writable: bool,
}

/// A reserved ring buffer record.
#[derive(Debug, Clone)]
pub(crate) struct Record<'a> {
    /// First byte of its data.
    pub(crate) addr: u64,
    /// Number of bytes.
    pub(crate) len: u64,
    /// Its ring buffer.
    pub(crate) ring: &'a Ringbuf,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        frame: &'a mut Frame,
        worker: &'a mut Worker,
        maps: &'a MapSet,
        surroundings: &'a Surroundings,
    ) -> Self {
        let watched = worker.sanitizer.is_some() || worker.onlooker.is_some();
        let stack_base = worker.stack_top();
        Run {
            frame,
            worker,
            maps,
            burst_maps: maps,
            surroundings,
            index: 0,
            targets: Targets::default(),
            executed: 0,
            extras: Vec::new(),
            records: Vec::new(),
            pid_tgid: None,
            uid_gid: None,
            types: Types::default(),
            stack_floor: stack_base,
            stack_base,
            recent: Recent::new(),
            proved: false,
            cost: Cost { spent: 0, left: surroundings.limits.insns },
            observer: None,
            watched,
        }
    }

    /// Sets an observer.
    pub(crate) fn set_observer(&mut self, observer: Option<&'a dyn Observer>) {
        self.observer = observer;
        self.watched |= observer.is_some();
    }

    /// Shows the next instruction to the observers.
    fn show(&mut self, code: &Code, slot: usize, regs: &[u64; REG_COUNT]) -> Result<(), Violation> {
        if let Some(mut sanitizer) = self.worker.sanitizer.take() {
            sanitizer.step(self, code, slot, regs);
            self.worker.sanitizer = Some(sanitizer);
        }
        if let Some(onlooker) = &self.worker.onlooker {
            onlooker.0.observe(code, slot, regs)?;
        }
        self.observer.map_or(Ok(()), |observer| observer.observe(code, slot, regs))
    }

    /// Releases locks and records of a program that was ended, as others wait for them.
    #[cold]
    pub(crate) fn abandon(&mut self) {
        memory::unlock_all();
        for Record { addr, ring, .. } in self.records.drain(..) {
            if let Some(sample) = NonNull::new(addr as *mut u8) {
                // It fails only for records that were not reserved.
                let _refused = ring.discard(sample);
            }
        }
        self.extras.clear();
    }

    /// The monotonic time that programs see, by the worker's counter.
    #[inline]
    pub(crate) fn monotonic_ns(&mut self) -> u64 {
        self.surroundings.clock.set_time().unwrap_or_else(|| self.worker.ticks.now())
    }

    /// Fails if the run is asked to end.
    #[inline]
    pub(crate) fn may_go_on(&self) -> Result<(), Violation> {
        if self.worker.brake.is_asked() { Err(Violation::Stopped) } else { Ok(()) }
    }

    /// Charges the cost of a call to the interpreter's budget, if that is limited; before the call,
    /// which may be long.
    fn charge(&mut self, callee: u32, args: &[u64; 5]) -> Result<(), Violation> {
        let limit = self.surroundings.limits.insns;
        if limit == u64::MAX {
            return Ok(());
        }
        let cost = helpers::cost::of(self, callee, args);
        self.cost.left = self.cost.left.checked_sub(cost).ok_or(Violation::Budget { limit })?;
        self.cost.spent += cost;
        Ok(())
    }

    /// Makes the worker's whole stack accessible to compiled code: the verifier proved how much it
    /// needs.
    pub(crate) fn enter_compiled(&mut self) {
        self.stack_floor = self.worker.stack_floor();
    }

    /// Index of a map for redirects; `None` for an inner map, or one of another program than the
    /// burst's.
    pub(crate) fn index_of(&self, map: &Map) -> Option<u32> {
        let own = |other: &Arc<Map>| std::ptr::eq(Arc::as_ptr(other), map);
        self.burst_maps.maps().iter().position(own).map(|index| index as u32)
    }

    /// The program's arena, if it has one.
    pub(crate) fn arena(&self) -> Option<&Arena> {
        self.maps.maps().iter().find_map(|map| map.arena())
    }

    /// Loads 1, 2, 4 or 8 bytes the program may read.
    #[inline(always)]
    pub(crate) fn get(&self, addr: u64, size: u32) -> Result<u64, Box<Violation>> {
        Ok(memory::load(self.grant(addr, u64::from(size), false)?))
    }

    /// Stores 1, 2, 4 or 8 bytes where the program may write.
    #[inline(always)]
    pub(crate) fn put(&self, addr: u64, size: u32, value: u64) -> Result<(), Box<Violation>> {
        memory::store(self.grant(addr, u64::from(size), true)?, value);
        Ok(())
    }

    /// Copies bytes to where the program may write.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Box<Violation>> {
        if bytes.is_empty() {
            return Ok(());
        }
        memory::copy_in(self.grant(addr, bytes.len() as u64, true)?, bytes);
        Ok(())
    }
}

impl Run<'_> {
    /// The program in a slot of a program array.
    pub(crate) fn callee(
        &self,
        map: u64,
        index: u32,
    ) -> Result<Option<Arc<TailCallee>>, Violation> {
        let Some(map) = self.map_by_handle(map) else {
            let (function, why) = ("bpf_tail_call", "a program array");
            return Err(Violation::Argument { function, argument: 2, value: map, why });
        };
        Ok(map.program(index).and_then(|id| self.surroundings.programs.callee(id)))
    }

    /// Runs a program that a tail call of compiled code led to in the interpreter: the last one of
    /// `tail_calls`, with its stack below `frame`.
    pub(crate) fn interpret_tail_called(
        &mut self,
        code: &Arc<Code>,
        frame: u64,
        tail_calls: &mut u32,
    ) -> Result<u64, Fault> {
        let before = (self.stack_floor, self.stack_base, self.proved);
        (self.stack_base, self.proved) = (frame, false);
        let (context, limits) = (self.worker.context_addr(), &self.surroundings.limits);
        let result = interp::run_tail_called(code, context, self, limits, tail_calls);
        (self.stack_floor, self.stack_base, self.proved) = before;
        result
    }
}

impl Runtime for Run<'_> {
    #[inline]
    fn look(&mut self) -> Result<(), Violation> {
        self.may_go_on()
    }

    fn take_cost(&mut self) -> u64 {
        std::mem::take(&mut self.cost.spent)
    }

    fn ended(&mut self, insns: u64) {
        self.executed += insns;
    }

    #[inline]
    fn observe(
        &mut self,
        code: &Code,
        slot: usize,
        regs: &[u64; REG_COUNT],
    ) -> Result<(), Violation> {
        if self.watched { self.show(code, slot, regs) } else { Ok(()) }
    }

    fn load(&mut self, addr: u64, size: u32) -> Result<u64, Violation> {
        if let Some(offset) = self.context_offset(addr) {
            return self.load_context(addr, offset, size);
        }
        if !self.worker.held.frames.is_empty()
            && let Some(loaded) = self.load_held(addr, size)
        {
            return loaded;
        }
        Ok(memory::load(self.grant(addr, u64::from(size), false)?))
    }

    fn load_probe(&mut self, addr: u64, size: u32) -> u64 {
        self.grant_unproved(addr, u64::from(size), false).map_or(0, memory::load)
    }

    fn store(&mut self, addr: u64, size: u32, value: u64) -> Result<(), Violation> {
        memory::store(self.grant(addr, u64::from(size), true)?, value);
        Ok(())
    }

    fn atomic(
        &mut self,
        addr: u64,
        size: u32,
        op: AtomicOp,
        operand: u64,
    ) -> Result<u64, Violation> {
        if !addr.is_multiple_of(u64::from(size)) {
            let why = "an atomic is aligned to its size";
            return Err(Violation::Memory { addr, size: size.into(), write: true, why });
        }
        let write = op != AtomicOp::LoadAcquire;
        Ok(memory::atomic(self.grant(addr, u64::from(size), write)?, op, operand))
    }

    fn arena_address(&mut self, addr: u64) -> Option<u64> {
        self.arena().map(|arena| arena.resolve(addr))
    }

    fn arena_user_base(&mut self) -> u64 {
        self.arena().map_or(0, Arena::user_half)
    }

    fn enter_frame(&mut self, depth: usize) -> Result<u64, Violation> {
        let top = self.stack_base - (depth * STACK_BYTES) as u64;
        let floor = top - STACK_BYTES as u64;
        if depth >= MAX_CHAIN_FRAMES || floor < self.worker.stack_floor() {
            return Err(Violation::CallDepth { limit: MAX_CHAIN_FRAMES });
        }
        self.stack_floor = floor;
        Ok(top)
    }

    fn leave_frame(&mut self, depth: usize) {
        self.stack_floor = self.stack_base - (depth * STACK_BYTES) as u64;
    }

    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop> {
        let helper = helpers::helper(id).ok_or(Violation::UnknownHelper { id })?;
        self.charge(id, &args)?;
        (helper.function)(&mut helpers::Call { run: self, callbacks }, args)
    }

    fn call_kfunc(
        &mut self,
        id: u32,
        args: [u64; 5],
        callbacks: &mut dyn Callbacks<Self>,
    ) -> Result<u64, Stop> {
        let kfunc =
            helpers::kfunc(id).ok_or_else(|| Violation::UnknownKfunc { name: id.to_string() })?;
        self.charge(id | helpers::cost::KFUNC, &args)?;
        (kfunc.function)(&mut helpers::Call { run: self, callbacks }, args)
    }

    fn tail_call(&mut self, map: u64, index: u32) -> Result<Option<Arc<Code>>, Stop> {
        let Some(callee) = self.callee(map, index)? else { return Ok(None) };
        self.turn_to_program(Some(&callee));
        Ok(Some(Arc::clone(&callee.code)))
    }

    fn resume(&mut self, code: &Arc<Code>) {
        let callee = self.surroundings.programs.of_code(code);
        self.turn_to_program(callee.as_deref());
    }
}
