//! The instructions of XIR in LLVM's IR.

use std::mem::offset_of;

use towpath_bpf::interp::function_address;
use towpath_bpf::proto::id;

use super::function::{Lowering, llvm_type, zero};
use super::module::LIKELY;
use super::symbols::Symbol;
use crate::machine_unsafe::{Machine, Packet, RedirectCell};
use crate::xir::{
    Alias, Arg, AtomicOp, BinaryOp, Cond, CtxField, InstData, Op, Place, RuntimeFunction,
    StackRange, Type, UnaryOp, Value, Width, may_stop,
};

impl Lowering<'_> {
    pub(super) fn inst(&mut self, data: &InstData) {
        let operand = match &data.op {
            Op::Const(value) => {
                let ty = data.result.map_or(Type::I64, |result| self.function.ty(result));
                Some(match ty {
                    Type::I32 => (*value as i32).to_string(),
                    Type::I64 => (*value as i64).to_string(),
                })
            }
            Op::Unary(op, a) => Some(self.unary(*op, *a)),
            Op::Binary(op, a, b) => Some(self.binary(*op, *a, *b)),
            Op::Compare(cond, a, b) => {
                let (ty, a, b) = (self.ty(*a), self.text(*a), self.text(*b));
                let flag = self.temporary(format_args!("icmp {} {ty} {a}, {b}", condition(*cond)));
                Some(self.temporary(format_args!("zext i1 {flag} to i32")))
            }
            Op::Select(c, a, b) => {
                let condition = self.is_not_zero(*c);
                let (ty, a, b) = (self.ty(*a), self.text(*a), self.text(*b));
                Some(self.temporary(format_args!("select i1 {condition}, {ty} {a}, {ty} {b}")))
            }
            Op::CtxLoad(field) => Some(self.ctx_load(*field)),
            Op::WorkerId => Some(self.machine_field("i32", offset_of!(Machine, worker))),
            Op::MapRef(_)
            | Op::MapValueAddr { .. }
            | Op::MapMetaAddr { .. }
            | Op::FunctionRef(_)
            | Op::StackAddr(_) => Some(self.known_address(data)),
            Op::MapLookup { .. }
            | Op::CallHelper { .. }
            | Op::CallKfunc { .. }
            | Op::CallRuntime { .. }
            | Op::Call { .. } => Some(self.call(&data.op)),
            Op::Guard { address, bytes, need } => {
                let (address, bytes) = (self.text(*address), bytes.to_string());
                let need = (*need as u64).to_string();
                self.call_runtime(Symbol::Guard, &[address, bytes, need, zero(), zero()]);
                None
            }
            // Programs with a time budget or masks are compiled by tier 1 only.
            Op::Callee(_) | Op::CalleeKfunc(_) | Op::Barrier => None,
            Op::Look => {
                self.look();
                None
            }
            Op::BudgetSet(budget) => {
                self.set_budget(&budget.to_string());
                None
            }
            Op::BudgetSpend(cost) => Some(self.spend(*cost)),
            Op::SetRedirect { kind, words, found } => {
                self.set_redirect(*kind, *words, *found);
                None
            }
            Op::Load { .. }
            | Op::Store { .. }
            | Op::StackLoad(_)
            | Op::StackStore(..)
            | Op::AtomicRmw { .. }
            | Op::CompareExchange { .. }
            | Op::LoadAcquire(_)
            | Op::StoreRelease { .. } => self.memory(&data.op),
        };
        if let (Some(result), Some(operand)) = (data.result, operand) {
            self.set(result, operand);
        }
    }

    fn ty(&self, value: Value) -> &'static str {
        llvm_type(self.function.ty(value))
    }

    fn text(&self, value: Value) -> String {
        self.value(value).to_owned()
    }

    fn unary(&mut self, op: UnaryOp, a: Value) -> String {
        let (ty, a) = (self.ty(a), self.text(a));
        match op {
            UnaryOp::Zext => self.temporary(format_args!("zext i32 {a} to i64")),
            UnaryOp::Sext => self.temporary(format_args!("sext i32 {a} to i64")),
            UnaryOp::Trunc => self.temporary(format_args!("trunc i64 {a} to i32")),
            UnaryOp::Bswap64 => self.bswap("i64", &a),
            UnaryOp::Bswap32 if ty == "i32" => self.bswap("i32", &a),
            UnaryOp::Sext8 => self.through("i8", ty, &a, "sext", false),
            UnaryOp::Sext16 => self.through("i16", ty, &a, "sext", false),
            UnaryOp::Bswap16 => self.through("i16", ty, &a, "zext", true),
            UnaryOp::Bswap32 => self.through("i32", ty, &a, "zext", true),
        }
    }

    fn bswap(&mut self, ty: &str, a: &str) -> String {
        self.temporary(format_args!("call {ty} @llvm.bswap.{ty}({ty} {a})"))
    }

    /// Cuts a value to `narrow`, optionally swaps its bytes, and extends it again.
    fn through(&mut self, narrow: &str, wide: &str, a: &str, extend: &str, swap: bool) -> String {
        let mut value = self.temporary(format_args!("trunc {wide} {a} to {narrow}"));
        if swap {
            value = self.bswap(narrow, &value);
        }
        self.temporary(format_args!("{extend} {narrow} {value} to {wide}"))
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> String {
        let bits = self.function.ty(a).bits();
        let (ty, a, b) = (self.ty(a), self.text(a), self.text(b));
        let name = match op {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Xor => "xor",
            BinaryOp::Shl => "shl",
            BinaryOp::LShr => "lshr",
            BinaryOp::AShr => "ashr",
            // Not two shifts: the left one would be merged into a product in front of it.
            BinaryOp::Rotl => {
                let name = format_args!("call {ty} @llvm.fshl.{ty}({ty} {a}, {ty} {a}, {ty} {b})");
                return self.temporary(name);
            }
            BinaryOp::UDiv | BinaryOp::URem | BinaryOp::SDiv | BinaryOp::SRem => {
                return self.division(op, ty, &a, &b);
            }
        };
        let b = match op {
            // In LLVM, a count of the width or more is undefined.
            BinaryOp::Shl | BinaryOp::LShr | BinaryOp::AShr => {
                self.temporary(format_args!("and {ty} {b}, {}", bits - 1))
            }
            _ => b,
        };
        self.temporary(format_args!("{name} {ty} {a}, {b}"))
    }

    /// Division that always has a result: a zero divisor is replaced by 1 and the result chosen
    /// after, and a signed divisor of -1 becomes a negation.
    fn division(&mut self, op: BinaryOp, ty: &str, a: &str, b: &str) -> String {
        let by_zero = self.temporary(format_args!("icmp eq {ty} {b}, 0"));
        let mut divisor = self.temporary(format_args!("select i1 {by_zero}, {ty} 1, {ty} {b}"));
        let (name, on_zero) = match op {
            BinaryOp::UDiv => ("udiv", "0"),
            BinaryOp::URem => ("urem", a),
            BinaryOp::SDiv => ("sdiv", "0"),
            _ => ("srem", a),
        };
        let result = if matches!(op, BinaryOp::SDiv | BinaryOp::SRem) {
            let negates = self.temporary(format_args!("icmp eq {ty} {b}, -1"));
            divisor = self.temporary(format_args!("select i1 {negates}, {ty} 1, {ty} {divisor}"));
            let result = self.temporary(format_args!("{name} {ty} {a}, {divisor}"));
            match op {
                BinaryOp::SDiv => {
                    let negated = self.temporary(format_args!("sub {ty} 0, {a}"));
                    self.temporary(format_args!(
                        "select i1 {negates}, {ty} {negated}, {ty} {result}"
                    ))
                }
                _ => result,
            }
        } else {
            self.temporary(format_args!("{name} {ty} {a}, {divisor}"))
        };
        self.temporary(format_args!("select i1 {by_zero}, {ty} {on_zero}, {ty} {result}"))
    }

    fn ctx_load(&mut self, field: CtxField) -> String {
        let packet = self.machine_field("ptr", offset_of!(Machine, packet));
        let value = self.private_field("i32", &packet, Packet::offset_of(field));
        if field.value_type() == Type::I32 {
            return value;
        }
        let buffer = self.private_field("i64", &packet, offset_of!(Packet, buffer));
        let value = self.temporary(format_args!("zext i32 {value} to i64"));
        self.temporary(format_args!("add nuw i64 {buffer}, {value}"))
    }

    /// Addresses that are known when the code is placed, or relative to the frame.
    fn known_address(&mut self, data: &InstData) -> String {
        let pointer = match &data.op {
            Op::MapRef(map) => return self.map_handle(*map),
            Op::MapValueAddr { map, offset } => {
                let symbol = self.shared.symbol(Symbol::MapValue(*map));
                format!("getelementptr (i8, ptr {symbol}, i64 {offset})")
            }
            Op::MapMetaAddr { map, what } => self.shared.symbol(Symbol::MapMeta(*map, *what)),
            // Programs only pass it to helpers, which know the function by the interpreter's
            // number.
            Op::FunctionRef(function) => {
                let start = self.module.functions.get(*function as usize).map_or(0, |f| f.start);
                return (function_address(start as usize) as i64).to_string();
            }
            Op::StackAddr(offset) => {
                let pointer = self.frame_pointer((*offset).into());
                let number = self.temporary(format_args!("ptrtoint ptr {pointer} to i64"));
                if let Some(result) = data.result {
                    self.set_address(result, pointer);
                }
                return number;
            }
            _ => return zero(),
        };
        if let Some(result) = data.result {
            self.set_address(result, pointer.clone());
        }
        format!("ptrtoint (ptr {pointer} to i64)")
    }

    pub(super) fn map_handle(&mut self, map: u32) -> String {
        let symbol = self.shared.symbol(Symbol::Map(map));
        format!("ptrtoint (ptr {symbol} to i64)")
    }

    fn memory(&mut self, op: &Op) -> Option<String> {
        match op {
            Op::Load { place, probe: false } => {
                let address = self.place(*place);
                Some(self.load(place.width, &address, place.alias))
            }
            Op::Load { place, probe: true } => Some(self.probe(*place)),
            Op::Store { place, value } => {
                let address = self.place(*place);
                self.store(place.width, *value, &address, place.alias);
                None
            }
            Op::StackLoad(range) => {
                let address = self.frame_pointer(range.offset.into());
                Some(self.load(stack_width(*range), &address, Alias::Stack))
            }
            Op::StackStore(range, value) => {
                let address = self.frame_pointer(range.offset.into());
                self.store(stack_width(*range), *value, &address, Alias::Stack);
                None
            }
            _ => self.atomic(op),
        }
    }

    fn atomic(&mut self, op: &Op) -> Option<String> {
        match op {
            Op::AtomicRmw { place, op: AtomicOp::Take, .. } => Some(self.take(*place)),
            Op::AtomicRmw { place, op, value } => {
                let (address, value) = (self.place(*place), self.text(*value));
                let (name, ty) = (atomic_name(*op), memory_type(place.width));
                let suffix = self.atomic_suffix(*place);
                Some(self.temporary(format_args!(
                    "atomicrmw {name} ptr {address}, {ty} {value} seq_cst{suffix}"
                )))
            }
            Op::CompareExchange { place, expected, new } => {
                let (address, ty) = (self.place(*place), memory_type(place.width));
                let (expected, new) = (self.text(*expected), self.text(*new));
                let suffix = self.atomic_suffix(*place);
                let pair = self.temporary(format_args!(
                    "cmpxchg ptr {address}, {ty} {expected}, {ty} {new} seq_cst seq_cst{suffix}"
                ));
                Some(self.temporary(format_args!("extractvalue {{ {ty}, i1 }} {pair}, 0")))
            }
            Op::LoadAcquire(place) => {
                let (address, ty) = (self.place(*place), memory_type(place.width));
                let suffix = self.atomic_suffix(*place);
                let text = format!("load atomic {ty}, ptr {address} acquire{suffix}");
                let value = self.temporary(text);
                Some(self.extend(value, place.width))
            }
            Op::StoreRelease { place, value } => {
                let address = self.place(*place);
                let value = self.cut(*value, place.width);
                let (ty, suffix) = (memory_type(place.width), self.atomic_suffix(*place));
                self.line(format_args!("store atomic {ty} {value}, ptr {address} release{suffix}"));
                None
            }
            _ => None,
        }
    }

    /// Suffix of atomic accesses: aligned to their size, since other programs are refused.
    fn atomic_suffix(&mut self, place: Place) -> String {
        let scope = self.shared.scopes.suffix(place.alias);
        format!(", align {}{scope}", place.width.bytes())
    }

    fn place(&mut self, place: Place) -> String {
        let base = self.address(place.base).to_owned();
        match place.offset {
            0 => base,
            offset => self.temporary(format_args!("getelementptr i8, ptr {base}, i64 {offset}")),
        }
    }

    fn frame_pointer(&mut self, offset: i64) -> String {
        self.temporary(format_args!("getelementptr i8, ptr %frame, i64 {offset}"))
    }

    fn probe(&mut self, place: Place) -> String {
        let (base, bytes) = (self.text(place.base), place.width.bytes().to_string());
        let address = self.temporary(format_args!("add i64 {base}, {}", place.offset));
        let value = self.call_runtime(Symbol::Probe, &[address, bytes, zero(), zero(), zero()]);
        match place.width {
            Width::W64 => value,
            _ => self.temporary(format_args!("trunc i64 {value} to i32")),
        }
    }

    /// Program memory: little-endian, any alignment, proved accessible.
    fn load(&mut self, width: Width, address: &str, alias: Alias) -> String {
        let (ty, scope) = (memory_type(width), self.shared.scopes.suffix(alias));
        let value = self.temporary(format_args!("load {ty}, ptr {address}, align 1{scope}"));
        self.extend(value, width)
    }

    fn store(&mut self, width: Width, value: Value, address: &str, alias: Alias) {
        let value = self.cut(value, width);
        let (ty, scope) = (memory_type(width), self.shared.scopes.suffix(alias));
        self.line(format_args!("store {ty} {value}, ptr {address}, align 1{scope}"));
    }

    fn extend(&mut self, value: String, width: Width) -> String {
        match width {
            Width::W8 | Width::W16 => {
                self.temporary(format_args!("zext {} {value} to i32", memory_type(width)))
            }
            Width::W32 | Width::W64 => value,
        }
    }

    fn cut(&mut self, value: Value, width: Width) -> String {
        let (from, to, value) = (self.ty(value), memory_type(width), self.text(value));
        if from == to {
            return value;
        }
        self.temporary(format_args!("trunc {from} {value} to {to}"))
    }

    fn call(&mut self, op: &Op) -> String {
        match op {
            Op::MapLookup { map, key } => {
                let handle = self.map_handle(*map);
                let key = self.arg(key);
                let worker = self.machine_field("i32", offset_of!(Machine, worker));
                let worker = self.temporary(format_args!("zext i32 {worker} to i64"));
                self.call_direct(RuntimeFunction::MapLookup, &[handle, key, worker])
            }
            Op::CallRuntime { function: RuntimeFunction::Jiffies, .. } => self.jiffies(),
            Op::CallRuntime { function, args } => {
                let args: Vec<String> = args.iter().map(|arg| self.arg(arg)).collect();
                self.call_direct(*function, &args)
            }
            Op::CallHelper { id: id::XDP_ADJUST_HEAD, args } => {
                let args = self.args(args);
                self.adjust_head(&args)
            }
            Op::CallHelper { id, args } => {
                let args = self.args(args);
                let result = self.call_with_machine(Symbol::Helper(*id), &args);
                if may_stop(*id) {
                    self.leave_if_stopped();
                }
                result
            }
            Op::CallKfunc { kfunc, args } => {
                let args = self.args(args);
                self.call_runtime(Symbol::Kfunc(*kfunc), &args)
            }
            Op::Call { function, args } => self.call_function(*function, args),
            _ => zero(),
        }
    }

    /// A load in front is cheaper than an exchange if there is nothing to take.
    fn take(&mut self, place: Place) -> String {
        let (address, ty) = (self.place(place), memory_type(place.width));
        let suffix = self.atomic_suffix(place);
        let (from, [exchange, done]) =
            (self.label.clone(), std::array::from_fn(|_| self.new_label()));
        let load = format_args!("load atomic {ty}, ptr {address} monotonic{suffix}");
        let there = self.temporary(load);
        let is_there = self.temporary(format_args!("icmp ne {ty} {there}, 0"));
        self.line(format_args!("br i1 {is_there}, label %{exchange}, label %{done}"));

        self.start(exchange.clone());
        let swap = format_args!("atomicrmw xchg ptr {address}, {ty} 0 seq_cst{suffix}");
        let taken = self.temporary(swap);
        self.line(format_args!("br label %{done}"));

        self.start(done);
        self.temporary(format_args!("phi {ty} [ {there}, %{from} ], [ {taken}, %{exchange} ]"))
    }

    /// Ticks change a few hundred times a second: one call serves a whole burst.
    fn jiffies(&mut self) -> String {
        let (from, [ask, done]) = (self.label.clone(), std::array::from_fn(|_| self.new_label()));
        let known = self.machine_field("i64", offset_of!(Machine, jiffies));
        let is_known = self.temporary(format_args!("icmp ne i64 {known}, 0"));
        self.line(format_args!("br i1 {is_known}, label %{done}, label %{ask}, !prof {LIKELY}"));

        self.start(ask.clone());
        let asked = self.call_direct(RuntimeFunction::Jiffies, &[]);
        self.line(format_args!("br label %{done}"));

        self.start(done);
        self.temporary(format_args!("phi i64 [ {known}, %{from} ], [ {asked}, %{ask} ]"))
    }

    fn call_function(&mut self, function: u32, args: &[Value]) -> String {
        // The callee's frame lies below ours, whose depth the verifier determined.
        let depth = i64::from(self.function.stack_bytes.next_multiple_of(16));
        let frame = self.frame_pointer(-depth);
        let args: String = args.iter().map(|arg| format!(", i64 {}", self.value(*arg))).collect();
        let result = self.temporary(format_args!(
            "call fastcc i64 @f{function}(ptr %machine, ptr {frame}{args})"
        ));
        self.leave_if_stopped();
        result
    }

    /// Writes the running frame's cell; the number of no burst if nothing was found.
    fn set_redirect(&mut self, kind: u32, words: [Value; 2], found: Option<Value>) {
        let cells = self.machine_field("ptr", offset_of!(Machine, redirects));
        let index = self.machine_field("i32", offset_of!(Machine, index));
        let index = self.temporary(format_args!("zext i32 {index} to i64"));
        let bytes = size_of::<RedirectCell>();
        let offset = self.temporary(format_args!("mul nuw i64 {index}, {bytes}"));
        let cell =
            self.temporary(format_args!("getelementptr inbounds i8, ptr {cells}, i64 {offset}"));
        let mut burst = self.machine_field("i32", offset_of!(Machine, burst));
        if let Some(found) = found {
            let (found, none) = (self.is_not_zero(found), RedirectCell::NO_BURST);
            burst = self.temporary(format_args!("select i1 {found}, i32 {burst}, i32 {none}"));
        }
        let [first, second] = words.map(|word| self.text(word));
        let at = offset_of!(RedirectCell, words);
        for (value, offset) in [
            (format!("i32 {burst}"), offset_of!(RedirectCell, burst)),
            (format!("i32 {kind}"), offset_of!(RedirectCell, kind)),
            (format!("i64 {first}"), at),
            (format!("i64 {second}"), at + size_of::<u64>()),
        ] {
            let place =
                self.temporary(format_args!("getelementptr inbounds i8, ptr {cell}, i64 {offset}"));
            let scope = self.shared.scopes.suffix(Alias::Ctx);
            self.line(format_args!("store {value}, ptr {place}, align 4{scope}"));
        }
    }

    fn spend(&mut self, cost: u32) -> String {
        let left = self.machine_field("i64", offset_of!(Machine, budget));
        let left = self.temporary(format_args!("sub i64 {left}, {cost}"));
        self.set_budget(&left);
        let flag = self.temporary(format_args!("icmp slt i64 {left}, 0"));
        self.temporary(format_args!("zext i1 {flag} to i32"))
    }

    fn set_budget(&mut self, budget: &str) {
        let offset = offset_of!(Machine, budget);
        let place =
            self.temporary(format_args!("getelementptr inbounds i8, ptr %machine, i64 {offset}"));
        let scope = self.shared.scopes.suffix(Alias::Ctx);
        self.line(format_args!("store i64 {budget}, ptr {place}, align 4{scope}"));
    }

    fn args(&mut self, args: &[Arg]) -> [String; 5] {
        let mut all = [const { String::new() }; 5].map(|_| zero());
        for (slot, arg) in all.iter_mut().zip(args) {
            *slot = self.arg(arg);
        }
        all
    }

    fn arg(&mut self, arg: &Arg) -> String {
        match arg {
            Arg::Value(value) => self.text(*value),
            Arg::StackRead(range) | Arg::StackReadWrite(range) => {
                let pointer = self.frame_pointer(range.offset.into());
                self.temporary(format_args!("ptrtoint ptr {pointer} to i64"))
            }
        }
    }
}

fn memory_type(width: Width) -> &'static str {
    match width {
        Width::W8 => "i8",
        Width::W16 => "i16",
        Width::W32 => "i32",
        Width::W64 => "i64",
    }
}

fn stack_width(range: StackRange) -> Width {
    Width::from_bytes(u32::from(range.len)).unwrap_or(Width::W64)
}

fn atomic_name(op: AtomicOp) -> &'static str {
    match op {
        AtomicOp::Add => "add",
        AtomicOp::And => "and",
        AtomicOp::Or => "or",
        AtomicOp::Xor => "xor",
        AtomicOp::Exchange | AtomicOp::Take => "xchg",
    }
}

fn condition(cond: Cond) -> &'static str {
    match cond {
        Cond::Eq => "eq",
        Cond::Ne => "ne",
        Cond::Ult => "ult",
        Cond::Ule => "ule",
        Cond::Ugt => "ugt",
        Cond::Uge => "uge",
        Cond::Slt => "slt",
        Cond::Sle => "sle",
        Cond::Sgt => "sgt",
        Cond::Sge => "sge",
    }
}
