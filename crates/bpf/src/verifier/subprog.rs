//! Functions of the program: calls of static ones (followed in place) and global ones (verified
//! once on their own), and the checks at a function's end.

use crate::errno::Errno;
use crate::insn::Insn;
use crate::program::AttachType;

use super::env::{Result, Verifier};
use super::reg::{Base, Reg};
use super::show::type_name;
use super::state::{FRAME_COUNT_MAX, Frame, RefKind};

/// Number of registers that a call destroys: r0..r5.
const CALLER_SAVED_COUNT: usize = 6;

impl Verifier<'_> {
    /// Checks a call of a function of the program (`check_func_call`); returns the next instruction
    /// of the path.
    pub(crate) fn check_subprog_call(&mut self, insn: &Insn) -> Result<usize> {
        let callsite = self.path.insn_idx;
        let Some(subprog) = self.callee(callsite, insn) else {
            return Err(self.internal("a call leads to no function"));
        };
        if self.learned.subprogs[subprog].global {
            self.check_global_call(subprog)?;
            return Ok(callsite + 1);
        }
        let frame = self.new_frame(callsite, subprog, |caller, callee| {
            callee.regs[1..CALLER_SAVED_COUNT].copy_from_slice(&caller.regs[1..CALLER_SAVED_COUNT]);
        })?;
        self.clear_caller_saved();
        self.path.cur.frames.push(frame);
        self.log_state("Func call");
        Ok(self.learned.subprogs[subprog].start)
    }

    fn check_global_call(&mut self, subprog: usize) -> Result<()> {
        if self.path.cur.refs.active_locks > 0 {
            let message = "global function calls are not allowed while holding a lock, \
                           use static function instead";
            return Err(self.reject(Errno::EINVAL, message));
        }
        if self.learned.subprogs[subprog].might_sleep && !self.can_sleep_here() {
            let message =
                "global functions that may sleep are not allowed in non-sleepable context,";
            let hint = "here nothing may sleep: the program can't, or this is a section in which \
                        RCU is held, or preemption or interrupts are disabled";
            return Err(self.reject_hint(Errno::EINVAL, message, hint));
        }
        // Linux 6.18 has no such check: a held resource then stays held.
        if self.learned.subprogs[subprog].might_throw {
            self.check_leaks(true, true, "a call of a global function that may throw")?;
        }
        self.check_global_args(subprog)?;
        if self.learned.subprogs[subprog].changes_packet {
            self.clear_all_packet_pointers();
        }
        self.learned.subprogs[subprog].called = true;
        self.clear_caller_saved();
        self.mark_reg_unknown(0);
        Ok(())
    }

    /// Invalidates r0..r5 after a call: only r6..r10 keep their values.
    pub(crate) fn clear_caller_saved(&mut self) {
        self.path.cur.frame_mut().regs[..CALLER_SAVED_COUNT].fill(Reg::NOT_INIT);
    }

    /// The frame of a function about to run (`setup_func_entry`).
    pub(crate) fn new_frame(
        &self,
        callsite: usize,
        subprog: usize,
        set_up: impl FnOnce(&Frame, &mut Frame),
    ) -> Result<Frame> {
        let depth = self.path.cur.frames.len();
        if depth >= FRAME_COUNT_MAX {
            let message = format!("the call stack of {} frames is too deep", depth + 1);
            return Err(self.reject(Errno::E2BIG, message));
        }
        let caller = self.path.cur.frame();
        let mut callee = Frame::new(depth, callsite, subprog);
        callee.in_async_callback = caller.in_async_callback;
        callee.async_entry_count = caller.async_entry_count;
        set_up(caller, &mut callee);
        Ok(callee)
    }

    /// Checks the end of a function, or (`throws`) of the program; `None` if the path is complete
    /// (`process_bpf_exit_full`).
    pub(crate) fn check_exit(&mut self, throws: bool) -> Result<Option<usize>> {
        let outermost = self.path.cur.depth() == 0;
        if outermost && !throws && self.is_dequeue_exit() {
            self.give_packet()?;
        }
        let prefix = if throws { "bpf_throw" } else { "BPF_EXIT instruction in main prog" };
        self.check_leaks(throws, throws || outermost, prefix)?;
        if throws {
            return Ok(None);
        }
        if outermost {
            self.check_return_value()?;
            return Ok(None);
        }
        self.return_from_frame().map(Some)
    }

    /// Whether this is the end of a dequeue program itself, not of one of its functions that runs
    /// at another time.
    fn is_dequeue_exit(&self) -> bool {
        let frame = self.path.cur.frame();
        let is_program = frame.subprog == 0 && !frame.in_async_callback;
        is_program && !frame.in_exception_callback && self.input.prog.attach == AttachType::Dequeue
    }

    /// Checks the return value of a dequeue program: null, or the packet to send, which the program
    /// then no longer holds.
    fn give_packet(&mut self) -> Result<()> {
        self.check_reg_read(0)?;
        let reg = *self.reg(0);
        if reg.is(Base::Frame) && reg.ref_id != 0 {
            self.check_fixed_pointer(0, &reg)?;
            self.forget_reference(reg.ref_id);
            return Ok(());
        }
        if reg.is_null_const() {
            return self.mark_chain_precision(0);
        }
        let name = type_name(reg.kind);
        let message =
            format!("At program exit the register R0 is neither a packet nor NULL ({name})");
        let hint = "return what bpf_packet_dequeue() gave, or NULL to send nothing";
        Err(self.reject_hint(Errno::EINVAL, message, hint))
    }

    /// Follows a tail call in a called function. If it fails, the function goes on, on a path that
    /// is followed later. If it succeeds, another program replaces the function, and returns to its
    /// caller with any result and a possibly changed packet. The function's effects on its callers'
    /// stacks end here.
    pub(crate) fn return_by_tail_call(&mut self) -> Result<usize> {
        self.push_pending_state(self.path.cur.clone(), self.path.insn_idx + 1, self.path.insn_idx)?;
        self.clear_all_packet_pointers();
        self.mark_reg_unknown(0);
        self.return_from_frame()
    }

    /// Returns from a function (`prepare_func_exit`).
    fn return_from_frame(&mut self) -> Result<usize> {
        let result = *self.reg(0);
        if result.is(Base::Stack) {
            let message = "cannot return stack pointer to the caller";
            return Err(self.reject(Errno::EINVAL, message));
        }
        let frame = self.path.cur.frame();
        let (callsite, in_callback) = (frame.callsite, frame.in_callback);
        let range = frame.callback_ret_range;
        if in_callback {
            if !result.is_scalar() {
                return Err(self.reject(Errno::EACCES, "R0 not a scalar value"));
            }
            self.mark_chain_precision(0)?;
            self.check_result_range(range, "At callback return")?;
        }
        let ended = self.path.cur.frames.len() as u32;
        self.path.cur.frames.pop();
        if !in_callback {
            *self.reg_mut(0) = result;
        }
        self.invalidate_regs(|reg| !reg.is(Base::Stack) && reg.frame == ended);
        if !in_callback {
            return Ok(callsite + 1);
        }
        // The call decides again whether the callback runs once more.
        if let Some(previous) = self.find_previous_entry(self.path.cur.parent, callsite) {
            let mut current = std::mem::replace(&mut self.path.cur, super::state::State::new(0));
            self.widen_imprecise(previous, &mut current);
            self.path.cur = current;
        }
        Ok(callsite)
    }

    /// Checks the return value of the program, a global function or an async callback
    /// (`check_return_code`).
    fn check_return_value(&mut self) -> Result<()> {
        self.check_reg_read(0)?;
        let frame = self.path.cur.frame();
        let (asynchronous, range) = (frame.in_async_callback, frame.callback_ret_range);
        let own = frame.subprog != 0 && !frame.in_exception_callback;
        let reg = *self.reg(0);
        if !self.is_dequeue_exit() {
            self.forbid_leak(0, "as return value")?;
        }
        if asynchronous {
            if !reg.is_scalar() {
                let name = type_name(reg.kind);
                let message = format!(
                    "At async callback return the register R0 is not a known value ({name})"
                );
                return Err(self.reject(Errno::EINVAL, message));
            }
            self.mark_chain_precision(0)?;
            return self.check_result_range(range, "At async callback return");
        }
        if own && !reg.is_scalar() {
            let name = type_name(reg.kind);
            let message =
                format!("At subprogram exit the register R0 is not a scalar value ({name})");
            return Err(self.reject(Errno::EINVAL, message));
        }
        Ok(())
    }

    fn check_result_range(&self, range: (i32, i32), when: &str) -> Result<()> {
        let var = self.reg(0).var;
        let (low, high) = (i64::from(range.0), i64::from(range.1));
        if var.smin >= low && var.smax <= high {
            return Ok(());
        }
        let mut known = String::new();
        if var.smin > i64::MIN {
            known.push_str(&format!(" smin={}", var.smin));
        }
        if var.smax < i64::MAX {
            known.push_str(&format!(" smax={}", var.smax));
        }
        if known.is_empty() {
            known.push_str(" unknown scalar value");
        }
        let message =
            format!("{when} the register R0 has{known} should have been in [{low}, {high}]");
        Err(self.reject(Errno::EINVAL, message))
    }

    /// Checks that no resource is held: at exit, or (`exit` false) before a call, named by
    /// `prefix`, that can't run with a held resource.
    pub(crate) fn check_resource_leak(&mut self, exit: bool, prefix: &str) -> Result<()> {
        self.check_leaks(exit, true, prefix)
    }

    /// Checks for held resources (`check_resource_leak` of the kernel).
    fn check_leaks(&self, throws: bool, check_locks: bool, prefix: &str) -> Result<()> {
        let refs = &self.path.cur.refs;
        let inside = |what: &str, end: &str| {
            let message = format!("{prefix} cannot be used inside {what}-ed region");
            let hint = format!("{end}() is missing on the way to this place");
            self.reject_hint(Errno::EINVAL, message, &hint)
        };
        if check_locks && refs.active_locks > 0 {
            return Err(inside("bpf_spin_lock", "bpf_spin_unlock"));
        }
        if throws || self.path.cur.depth() == 0 {
            let lingering = refs.list.iter().find(|held| held.kind == RefKind::Ptr);
            if let Some(held) = lingering {
                let message =
                    format!("Unreleased reference id={} alloc_insn={}", held.id, held.insn_idx);
                return Err(self.reject_hint(
                    Errno::EINVAL,
                    message,
                    &self.kept_hint(held.insn_idx),
                ));
            }
        }
        if check_locks && refs.active_irq_id != 0 {
            return Err(inside("bpf_local_irq_save", "bpf_local_irq_restore"));
        }
        if check_locks && refs.active_rcu_locks > 0 {
            return Err(inside("bpf_rcu_read_lock", "bpf_rcu_read_unlock"));
        }
        if check_locks && refs.active_preempt_locks > 0 {
            return Err(inside("bpf_preempt_disable", "bpf_preempt_enable"));
        }
        Ok(())
    }
}
