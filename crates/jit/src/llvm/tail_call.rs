//! `bpf_tail_call` without the runtime, as on tier 1: a program array is read like a map's values.

use std::mem::offset_of;

use towpath_bpf::interp::MAX_TAIL_CALLS;

use super::function::{Lowering, zero};
use super::module::LIKELY;
use super::symbols::Symbol;
use crate::machine_unsafe::{Machine, TailCallTarget};
use crate::slots::Slot;
use crate::xir::{Alias, Jump, MapMeta, Value};

impl Lowering<'_> {
    /// Enters the program in a slot, if there is one and the run may continue. Targets of tail
    /// calls run on tier 1 and leave no frame behind, so the one here is the only one.
    pub(super) fn tail_call(&mut self, map: Value, index: Value, otherwise: &Jump) {
        let (found, miss) = (self.new_label(), self.new_label());
        let target = match self.slots.slot(self.function, map, index) {
            Some(slot) => self.look_up(slot, index, &found, &miss),
            None => self.ask_for_target((map, index), &found, &miss),
        };

        self.start(found);
        let count = self.machine_field("i32", offset_of!(Machine, tail_calls));
        let below = self.temporary(format_args!("icmp ult i32 {count}, {MAX_TAIL_CALLS}"));
        let go = self.new_label();
        self.line(format_args!("br i1 {below}, label %{go}, label %{miss}"));

        self.start(miss.clone());
        self.jump(otherwise, miss);
        self.line(format_args!("br label %{}", otherwise.target));

        self.start(go);
        let count = self.temporary(format_args!("add i32 {count}, 1"));
        self.set_machine_field(&format!("i32 {count}"), offset_of!(Machine, tail_calls));
        let count = self.temporary(format_args!("zext i32 {count} to i64"));
        self.enter(&target, &count);
    }

    /// Reads the slot: only once, even if LLVM would prefer to read it again, since other threads
    /// change it.
    fn look_up(&mut self, slot: Slot, index: Value, found: &str, miss: &str) -> String {
        let look = self.new_label();
        let number = self.value(index).to_owned();
        let inside = self.temporary(format_args!("icmp ult i32 {number}, {}", slot.entries));
        self.line(format_args!("br i1 {inside}, label %{look}, label %{miss}"));

        self.start(look);
        let slots = self.shared.symbol(Symbol::MapMeta(slot.map, MapMeta::Programs));
        let scope = self.shared.scopes.suffix(Alias::MapMeta(slot.map));
        let number = self.temporary(format_args!("zext i32 {number} to i64"));
        let place = self.temporary(format_args!("getelementptr i64, ptr {slots}, i64 {number}"));
        let load = format_args!("load atomic i64, ptr {place} unordered, align 8{scope}");
        let target = self.temporary(load);
        let is_there = self.temporary(format_args!("icmp ne i64 {target}, 0"));
        self.line(format_args!("br i1 {is_there}, label %{found}, label %{miss}"));
        target
    }

    fn ask_for_target(&mut self, (map, index): (Value, Value), found: &str, miss: &str) -> String {
        let (map, index) = (self.value(map).to_owned(), self.value(index).to_owned());
        let index = self.temporary(format_args!("zext i32 {index} to i64"));
        let args = [map, index, zero(), zero(), zero()];
        let target = self.call_runtime(Symbol::TailCall, &args);
        let is_there = self.temporary(format_args!("icmp ne i64 {target}, 0"));
        self.line(format_args!("br i1 {is_there}, label %{found}, label %{miss}"));
        target
    }

    /// Enters a program, with its stack below that of the callers.
    fn enter(&mut self, target: &str, count: &str) {
        // For callers of any function but the entry, this program is the running one again.
        let running = offset_of!(Machine, target);
        let before = (!self.is_burst).then(|| self.machine_field("i64", running));
        self.set_machine_field(&format!("i64 {target}"), running);
        let place = self.temporary(format_args!("inttoptr i64 {target} to ptr"));
        let entry = self.private_field("i64", &place, offset_of!(TailCallTarget, entry));
        let ctx = self.machine_field("i64", offset_of!(Machine, ctx));
        let frame = self.temporary("ptrtoint ptr %frame to i64");
        let result = if SHARES_CONVENTION {
            let entry = self.temporary(format_args!("inttoptr i64 {entry} to ptr"));
            let args = format!("ptr %machine, i64 {frame}, i64 {ctx}, i64 {count}");
            self.temporary(format_args!("call i64 {entry}({args})"))
        } else {
            let symbol = self.shared.symbol(Symbol::Enter);
            let args = format!("ptr %machine, i64 {entry}, i64 {frame}, i64 {ctx}, i64 {count}");
            self.temporary(format_args!("call i64 {symbol}({args})"))
        };
        match before {
            Some(before) => self.go_on(&result, frame, &before),
            None => self.line(format_args!("ret i64 {result}")),
        }
    }

    /// Returns from a function in whose place another program ran: the program of `before` is the
    /// running one again, also if the other one threw.
    fn go_on(&mut self, result: &str, frame: String, before: &str) {
        let [stopped, returned] = std::array::from_fn(|_| self.new_label());
        let stop = self.machine_field("i32", offset_of!(Machine, stop));
        let goes_on = self.temporary(format_args!("icmp eq i32 {stop}, 0"));
        self.line(format_args!(
            "br i1 {goes_on}, label %{returned}, label %{stopped}, !prof {LIKELY}"
        ));
        let before = format!("i64 {before}");
        let running = offset_of!(Machine, target);

        self.start(stopped);
        let caught = self.call_runtime(Symbol::Catch, &[frame, zero(), zero(), zero(), zero()]);
        self.set_machine_field(&before, running);
        self.line(format_args!("ret i64 {caught}"));

        self.start(returned);
        self.set_machine_field(&before, running);
        self.line(format_args!("ret i64 {result}"));
    }

    fn set_machine_field(&mut self, value: &str, offset: usize) {
        let place =
            self.temporary(format_args!("getelementptr inbounds i8, ptr %machine, i64 {offset}"));
        let scope = self.shared.scopes.suffix(Alias::Ctx);
        self.line(format_args!("store {value}, ptr {place}, align 4{scope}"));
    }
}

/// Whether tier 1's convention passes these arguments as C does; if not, there is an entry
/// trampoline.
const SHARES_CONVENTION: bool = cfg!(target_arch = "x86_64");
