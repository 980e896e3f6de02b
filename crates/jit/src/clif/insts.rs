//! The instructions of XIR in Cranelift's IR.

use std::mem::offset_of;

use cranelift_codegen::ir::{
    self, AtomicRmwOp, Endianness, InstBuilder, InstructionData, MemFlagsData, Opcode,
    condcodes::IntCC, types,
};

use towpath_bpf::interp::function_address;
use towpath_bpf::proto::id;

use super::lower::{Lowering, clif_type};
use crate::machine_unsafe::{Machine, Packet, RedirectCell};
use crate::xir::{
    Arg, AtomicOp, BinaryOp, Cond, CtxField, InstData, Need, Op, Place, RuntimeFunction,
    StackRange, Type, UnaryOp, Value, Width, may_stop,
};

impl Lowering<'_, '_> {
    pub(super) fn inst(&mut self, data: &InstData) {
        if let (Some(result), Some(number)) = (data.result, self.number_of(&data.op)) {
            return self.set_number(result, number);
        }
        let value = match &data.op {
            Op::Unary(UnaryOp::Bswap16, a) if clif_type(self.function.ty(*a)) == types::I32 => {
                Some(self.bswap16(data.result, *a))
            }
            Op::Unary(op, a) => Some(self.unary(*op, *a)),
            Op::Binary(op, a, b) => Some(self.binary(*op, *a, *b)),
            Op::Compare(cond, a, b) => {
                let (a, b) = (self.value(*a), self.value(*b));
                Some(self.compare(condition(*cond), a, b))
            }
            Op::Select(c, a, b) => {
                let (c, a, b) = (self.value(*c), self.value(*a), self.value(*b));
                Some(self.select(c, a, b))
            }
            Op::CtxLoad(field) => Some(self.ctx_load(*field)),
            Op::WorkerId => {
                let wide = self.worker();
                if let Some(result) = data.result {
                    self.wide[result.0 as usize] = Some(wide);
                }
                Some(self.builder.ins().ireduce(types::I32, wide))
            }
            Op::MapLookup { .. }
            | Op::CallHelper { .. }
            | Op::CallKfunc { .. }
            | Op::CallRuntime { .. }
            | Op::Call { .. } => Some(self.call(&data.op)),
            Op::Load { place, probe: false } => {
                let base = self.value(place.base);
                Some(self.load_at(data.result, place.width, base, place.offset))
            }
            Op::StackLoad(range) => {
                let (width, frame) = (stack_width(*range), self.frame);
                Some(self.load_at(data.result, width, frame, range.offset.into()))
            }
            _ => self.memory(&data.op),
        };
        if let (Some(result), Some(value)) = (data.result, value) {
            self.set(result, value);
        }
    }

    fn unary(&mut self, op: UnaryOp, a: Value) -> ir::Value {
        if let (UnaryOp::Zext, Some(wide)) = (op, self.wide[a.0 as usize]) {
            return wide;
        }
        let ty = clif_type(self.function.ty(a));
        let a = self.value(a);
        let ins = self.builder.ins();
        match op {
            UnaryOp::Zext => ins.uextend(types::I64, a),
            UnaryOp::Sext => ins.sextend(types::I64, a),
            UnaryOp::Trunc => ins.ireduce(types::I32, a),
            UnaryOp::Bswap64 => ins.bswap(a),
            UnaryOp::Bswap32 if ty == types::I32 => ins.bswap(a),
            UnaryOp::Sext8 => self.through(types::I8, ty, a, true, false),
            UnaryOp::Sext16 => self.through(types::I16, ty, a, true, false),
            UnaryOp::Bswap16 => self.through(types::I16, ty, a, false, true),
            UnaryOp::Bswap32 => self.through(types::I32, ty, a, false, true),
        }
    }

    /// Swaps the bytes of halves of 32 bits, and extends to 64 bits at once, as narrow loads do.
    fn bswap16(&mut self, result: Option<Value>, a: Value) -> ir::Value {
        let value = self.value(a);
        let value = self.builder.ins().ireduce(types::I16, value);
        let swapped = self.builder.ins().bswap(value);
        let wide = self.builder.ins().uextend(types::I64, swapped);
        if let Some(result) = result {
            self.wide[result.0 as usize] = Some(wide);
            self.halves.insert(result, swapped);
        }
        self.builder.ins().ireduce(types::I32, wide)
    }

    /// Cuts a value to `narrow`, optionally swaps its bytes, and extends it again.
    fn through(
        &mut self,
        narrow: ir::Type,
        wide: ir::Type,
        value: ir::Value,
        signed: bool,
        swap: bool,
    ) -> ir::Value {
        let mut value = self.builder.ins().ireduce(narrow, value);
        if swap {
            value = self.builder.ins().bswap(value);
        }
        match signed {
            true => self.builder.ins().sextend(wide, value),
            false => self.builder.ins().uextend(wide, value),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> ir::Value {
        let ty = clif_type(self.function.ty(a));
        let (a, b) = (self.value(a), self.value(b));
        let ins = self.builder.ins();
        match op {
            BinaryOp::Add => ins.iadd(a, b),
            BinaryOp::Sub => ins.isub(a, b),
            BinaryOp::Mul => self.product(a, b),
            BinaryOp::And => self.conjunction(ty, a, b),
            BinaryOp::Or => ins.bor(a, b),
            BinaryOp::Xor => ins.bxor(a, b),
            BinaryOp::Shl => ins.ishl(a, b),
            BinaryOp::LShr => ins.ushr(a, b),
            BinaryOp::AShr => ins.sshr(a, b),
            BinaryOp::Rotl => ins.rotl(a, b),
            BinaryOp::UDiv | BinaryOp::URem | BinaryOp::SDiv | BinaryOp::SRem => {
                self.division(op, ty, a, b)
            }
        }
    }

    /// A move keeps the lower half, without a mask in a register.
    fn conjunction(&mut self, ty: ir::Type, a: ir::Value, b: ir::Value) -> ir::Value {
        if ty == types::I64 && self.number(b) == Some(u32::MAX.into()) {
            let low = self.builder.ins().ireduce(types::I32, a);
            return self.builder.ins().uextend(types::I64, low);
        }
        self.builder.ins().band(a, b)
    }

    /// Division that never traps: a zero divisor is replaced by 1 and the result chosen after, and
    /// a signed divisor of -1 becomes a negation. Most divisors are constants other than these.
    fn division(&mut self, op: BinaryOp, ty: ir::Type, a: ir::Value, b: ir::Value) -> ir::Value {
        if self.divides_plainly(ty, b) {
            return match op {
                BinaryOp::UDiv => self.builder.ins().udiv(a, b),
                BinaryOp::URem => self.builder.ins().urem(a, b),
                BinaryOp::SDiv => self.builder.ins().sdiv(a, b),
                _ => self.builder.ins().srem(a, b),
            };
        }
        let one = self.builder.ins().iconst(ty, 1);
        let zero = self.builder.ins().iconst(ty, 0);
        let by_zero = self.builder.ins().icmp_imm_u(IntCC::Equal, b, 0);
        let divisor = self.builder.ins().select(by_zero, one, b);
        let (result, on_zero) = match op {
            BinaryOp::UDiv => (self.builder.ins().udiv(a, divisor), zero),
            BinaryOp::URem => (self.builder.ins().urem(a, divisor), a),
            _ => {
                let minus_one = self.builder.ins().icmp_imm_s(IntCC::Equal, b, -1);
                let divisor = self.builder.ins().select(minus_one, one, divisor);
                if op == BinaryOp::SDiv {
                    let quotient = self.builder.ins().sdiv(a, divisor);
                    let negated = self.builder.ins().ineg(a);
                    (self.builder.ins().select(minus_one, negated, quotient), zero)
                } else {
                    (self.remainder(a, divisor), a)
                }
            }
        };
        self.builder.ins().select(by_zero, on_zero, result)
    }

    /// A signed remainder. Cranelift's own has a branch that masks would not cover.
    fn remainder(&mut self, a: ir::Value, divisor: ir::Value) -> ir::Value {
        if self.masks.is_none() {
            return self.builder.ins().srem(a, divisor);
        }
        let quotient = self.builder.ins().sdiv(a, divisor);
        let whole = self.builder.ins().imul(quotient, divisor);
        self.builder.ins().isub(a, whole)
    }

    /// Whether a divisor is a constant other than 0 and -1.
    fn divides_plainly(&self, ty: ir::Type, divisor: ir::Value) -> bool {
        let Some(number) = self.number(divisor) else { return false };
        let number = if ty == types::I32 { i64::from(number as i32) } else { number };
        number != 0 && number != -1
    }

    /// Multiplies by 3, 5 or 9 as a value plus its shift: machines compute such addresses faster
    /// than products.
    fn product(&mut self, a: ir::Value, b: ir::Value) -> ir::Value {
        let Some(shift) = self.number(b).and_then(|number| match number {
            3 => Some(1),
            5 => Some(2),
            9 => Some(3),
            _ => None,
        }) else {
            return self.builder.ins().imul(a, b);
        };
        let shifted = self.builder.ins().ishl_imm_u(a, shift);
        self.builder.ins().iadd(a, shifted)
    }

    /// The constant of a value, if it has one.
    pub(super) fn number(&self, value: ir::Value) -> Option<i64> {
        let dfg = &self.builder.func.dfg;
        match dfg.value_def(value).inst().map(|inst| dfg.insts[inst])? {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// Number of the running worker, extended. It is the same for a whole burst, but must not move
    /// out of the loop: parts of addresses would follow it and take up the stack.
    fn worker(&mut self) -> ir::Value {
        let offset = offset_of!(Machine, worker) as i32;
        self.builder.ins().uload32(MemFlagsData::trusted(), self.machine, offset)
    }

    fn ctx_load(&mut self, field: CtxField) -> ir::Value {
        let packet = self.packet();
        let (flags, offset) = (MemFlagsData::trusted(), Packet::offset_of(field) as i32);
        if field.value_type() == Type::I32 {
            return self.builder.ins().load(types::I32, flags, packet, offset);
        }
        let value = self.builder.ins().uload32(flags, packet, offset);
        let buffer = self.buffer(packet);
        let address = self.builder.ins().iadd(buffer, value);
        // The same number, but not a sum: else each access would keep both parts in registers.
        self.builder.ins().bitcast(types::I64, MemFlagsData::new(), address)
    }

    /// Address of the running frame's record.
    pub(super) fn packet(&mut self) -> ir::Value {
        match self.around {
            // In the loop, one load serves all iterations.
            Some(around) => around.packet,
            None => {
                let offset = offset_of!(Machine, packet) as i32;
                self.builder.ins().load(types::I64, fixed(), self.machine, offset)
            }
        }
    }

    /// Address of the frame's buffer; loaded once in a block.
    fn buffer(&mut self, packet: ir::Value) -> ir::Value {
        let here = self.builder.current_block();
        if let Some((block, buffer)) = self.buffer
            && here == Some(block)
        {
            return buffer;
        }
        let offset = offset_of!(Packet, buffer) as i32;
        let buffer = self.builder.ins().load(types::I64, fixed(), packet, offset);
        self.buffer = here.map(|block| (block, buffer));
        buffer
    }

    /// Number that an instruction gives, if it is known at compile time.
    fn number_of(&self, op: &Op) -> Option<u64> {
        match op {
            Op::Const(number) => Some(*number),
            Op::MapRef(map) => Some(self.environment.map_handle(*map)),
            Op::MapValueAddr { map, offset } => {
                let base = self.environment.map_value(*map);
                Some(base.wrapping_add(u64::from(*offset)))
            }
            Op::MapMetaAddr { map, what } => Some(self.environment.map_meta(*map, *what)),
            // Programs only pass it to helpers, which know the function by the interpreter's
            // number.
            Op::FunctionRef(function) => {
                let start = self.module.functions.get(*function as usize).map_or(0, |f| f.start);
                Some(function_address(start as usize))
            }
            _ => None,
        }
    }

    fn memory(&mut self, op: &Op) -> Option<ir::Value> {
        match op {
            Op::Load { place, probe: true } => Some(self.probe(*place)),
            Op::Guard { address, bytes, need } => {
                self.guard(*address, *bytes, *need);
                None
            }
            Op::Callee(helper) => {
                self.set_callee(*helper);
                None
            }
            Op::CalleeKfunc(kfunc) => {
                self.set_callee(self.environment.kfunc_number(*kfunc) | 1 << 31);
                None
            }
            Op::Look => {
                self.leave_if_stopped();
                None
            }
            Op::Barrier => {
                self.barrier();
                None
            }
            Op::BudgetSet(budget) => {
                let budget = self.iconst(u64::from(*budget));
                self.set_budget(budget);
                None
            }
            Op::BudgetSpend(cost) => Some(self.spend(*cost)),
            Op::SetRedirect { kind, words, found } => {
                self.set_redirect(*kind, *words, *found);
                None
            }
            Op::Store { place, value } => {
                let base = self.value(place.base);
                self.store(place.width, *value, base, place.offset);
                None
            }
            Op::StackStore(range, value) => {
                let frame = self.frame;
                self.store(stack_width(*range), *value, frame, i32::from(range.offset));
                None
            }
            Op::StackAddr(offset) => Some(self.stack_addr(*offset)),
            Op::AtomicRmw { place, op, value } => Some(self.atomic_rmw(*place, *op, *value)),
            Op::CompareExchange { place, expected, new } => {
                let address = self.place_addr(*place);
                let (expected, new) = (self.value(*expected), self.value(*new));
                Some(self.builder.ins().atomic_cas(flags(), address, expected, new))
            }
            Op::LoadAcquire(place) => {
                let address = self.place_addr(*place);
                let ty = memory_type(place.width);
                let value = self.builder.ins().atomic_load(ty, flags(), address);
                Some(self.extend(value, place.width))
            }
            Op::StoreRelease { place, value } => {
                let address = self.place_addr(*place);
                let value = self.value(*value);
                let value = self.cut(value, place.width);
                self.builder.ins().atomic_store(flags(), value, address);
                None
            }
            _ => None,
        }
    }

    fn guard(&mut self, address: Value, bytes: u32, need: Need) {
        let address = self.value(address);
        let (bytes, need) = (self.iconst(bytes.into()), self.iconst(need as u64));
        let target = self.environment.callees.guard as usize as u64;
        self.call_runtime(target, &[address, bytes, need]);
    }

    fn set_callee(&mut self, number: u32) {
        let number = self.builder.ins().iconst(types::I32, i64::from(number));
        let (machine, offset) = (self.machine, offset_of!(Machine, callee) as i32);
        self.builder.ins().store(MemFlagsData::trusted(), number, machine, offset);
    }

    fn set_budget(&mut self, budget: ir::Value) {
        let (machine, offset) = (self.machine, offset_of!(Machine, budget) as i32);
        self.builder.ins().store(MemFlagsData::trusted(), budget, machine, offset);
    }

    fn spend(&mut self, cost: u32) -> ir::Value {
        let left = self.machine_field(types::I64, offset_of!(Machine, budget));
        let left = self.builder.ins().iadd_imm_s(left, -i64::from(cost));
        self.set_budget(left);
        let zero = self.iconst(0);
        self.compare(IntCC::SignedLessThan, left, zero)
    }

    /// Writes the running frame's cell; the number of no burst if nothing was found.
    fn set_redirect(&mut self, kind: u32, words: [Value; 2], found: Option<Value>) {
        let cells = self.machine_field(types::I64, offset_of!(Machine, redirects));
        let index = match self.around {
            Some(around) => around.index,
            None => {
                let index = self.machine_field(types::I32, offset_of!(Machine, index));
                self.builder.ins().uextend(types::I64, index)
            }
        };
        let offset = self.builder.ins().imul_imm_s(index, size_of::<RedirectCell>() as i64);
        let cell = self.builder.ins().iadd(cells, offset);
        let mut burst = self.machine_field(types::I32, offset_of!(Machine, burst));
        if let Some(found) = found {
            let found = self.value(found);
            let none = self.builder.ins().iconst(types::I32, i64::from(RedirectCell::NO_BURST));
            burst = self.builder.ins().select(found, burst, none);
        }
        let kind = self.builder.ins().iconst(types::I32, i64::from(kind));
        let [first, second] = words.map(|word| self.value(word));
        let at = offset_of!(RedirectCell, words);
        for (value, offset) in [
            (burst, offset_of!(RedirectCell, burst)),
            (kind, offset_of!(RedirectCell, kind)),
            (first, at),
            (second, at + size_of::<u64>()),
        ] {
            self.builder.ins().store(MemFlagsData::trusted(), value, cell, offset as i32);
        }
    }

    fn probe(&mut self, place: Place) -> ir::Value {
        let address = self.place_addr(place);
        let bytes = self.iconst(place.width.bytes().into());
        let target = self.environment.callees.probe as usize as u64;
        let value = self.call_runtime(target, &[address, bytes]);
        match place.width {
            Width::W64 => value,
            _ => self.builder.ins().ireduce(types::I32, value),
        }
    }

    /// Loads a narrow value as 64 bits at once: machines extend at no cost, and Cranelift would
    /// extend again for each use.
    fn load_at(
        &mut self,
        result: Option<Value>,
        width: Width,
        base: ir::Value,
        offset: i32,
    ) -> ir::Value {
        let (base, offset) = self.masked_place(base, offset);
        let ins = self.builder.ins();
        let wide = match width {
            Width::W8 => ins.uload8(types::I64, flags(), base, offset),
            Width::W16 => ins.uload16(types::I64, flags(), base, offset),
            Width::W32 if result.is_some_and(|result| self.is_extended[result.0 as usize]) => {
                ins.uload32(flags(), base, offset)
            }
            Width::W32 | Width::W64 => {
                return ins.load(memory_type(width), flags(), base, offset);
            }
        };
        if let Some(result) = result {
            self.wide[result.0 as usize] = Some(wide);
        }
        self.builder.ins().ireduce(types::I32, wide)
    }

    fn extend(&mut self, value: ir::Value, width: Width) -> ir::Value {
        match width {
            Width::W8 | Width::W16 => self.builder.ins().uextend(types::I32, value),
            Width::W32 | Width::W64 => value,
        }
    }

    fn cut(&mut self, value: ir::Value, width: Width) -> ir::Value {
        match width {
            Width::W8 | Width::W16 => self.builder.ins().ireduce(memory_type(width), value),
            Width::W32 | Width::W64 => value,
        }
    }

    fn store(&mut self, width: Width, value: Value, base: ir::Value, offset: i32) {
        let value = match (self.known_number(value), self.halves.get(&value)) {
            // As wide as the place: then it is an immediate of the instruction.
            (Some(number), _) => {
                let number = number & (u64::MAX >> (64 - width.bytes() * 8));
                self.builder.ins().iconst(memory_type(width), number as i64)
            }
            (None, Some(&half)) if width == Width::W16 => half,
            (None, _) => {
                let value = self.value(value);
                self.cut(value, width)
            }
        };
        let (base, offset) = self.masked_place(base, offset);
        self.builder.ins().store(flags(), value, base, offset);
    }

    fn atomic_rmw(&mut self, place: Place, op: AtomicOp, value: Value) -> ir::Value {
        let address = self.place_addr(place);
        let value = self.value(value);
        let op = match op {
            AtomicOp::Add => AtomicRmwOp::Add,
            AtomicOp::And => AtomicRmwOp::And,
            AtomicOp::Or => AtomicRmwOp::Or,
            AtomicOp::Xor => AtomicRmwOp::Xor,
            AtomicOp::Exchange => AtomicRmwOp::Xchg,
            AtomicOp::Take => return self.take(place.width, address, value),
        };
        self.builder.ins().atomic_rmw(memory_type(place.width), flags(), op, address, value)
    }

    /// A load in front is cheaper than an exchange if there is nothing to take.
    fn take(&mut self, width: Width, address: ir::Value, none: ir::Value) -> ir::Value {
        let ty = memory_type(width);
        let [exchange, done] = std::array::from_fn(|_| self.builder.create_block());
        let result = self.builder.append_block_param(done, ty);
        let there = self.builder.ins().load(ty, flags(), address, 0);
        self.branch(there, [(exchange, &[]), (done, &[there.into()])]);

        self.builder.switch_to_block(exchange);
        let op = AtomicRmwOp::Xchg;
        let taken = self.builder.ins().atomic_rmw(ty, flags(), op, address, none);
        self.builder.ins().jump(done, &[taken.into()]);

        self.builder.switch_to_block(done);
        result
    }

    fn place_addr(&mut self, place: Place) -> ir::Value {
        let base = self.value(place.base);
        let address = self.builder.ins().iadd_imm_s(base, i64::from(place.offset));
        self.masked(address)
    }

    fn stack_addr(&mut self, offset: i16) -> ir::Value {
        let frame = self.frame;
        self.builder.ins().iadd_imm_s(frame, i64::from(offset))
    }

    fn call(&mut self, op: &Op) -> ir::Value {
        match op {
            Op::MapLookup { map, key } => {
                let handle = self.iconst(self.environment.map_handle(*map));
                let key = self.arg(key);
                let worker = self.worker();
                self.call_direct(RuntimeFunction::MapLookup, &[handle, key, worker])
            }
            Op::CallRuntime { function: RuntimeFunction::Jiffies, .. } => self.jiffies(),
            Op::CallRuntime { function, args } => {
                let args: Vec<_> = args.iter().map(|arg| self.arg(arg)).collect();
                self.call_direct(*function, &args)
            }
            Op::CallHelper { id, args } => {
                let args: Vec<_> = args.iter().map(|arg| self.arg(arg)).collect();
                if *id == id::XDP_ADJUST_HEAD {
                    return self.adjust_head(&args);
                }
                let helper = (self.environment.callees.helper)(*id) as usize as u64;
                let result = self.call_with_machine(helper, &args);
                if may_stop(*id) {
                    self.leave_if_stopped();
                }
                result
            }
            Op::CallKfunc { kfunc, args } => {
                let args: Vec<_> = args.iter().map(|arg| self.arg(arg)).collect();
                let number = self.environment.kfunc_number(*kfunc);
                let kfunc = (self.environment.callees.kfunc)(number);
                self.call_runtime(kfunc as usize as u64, &args)
            }
            Op::Call { function, args } => self.call_function(*function, args),
            _ => self.iconst(0),
        }
    }

    /// Ticks change a few hundred times a second: one call serves a whole burst.
    fn jiffies(&mut self) -> ir::Value {
        let [ask, done] = std::array::from_fn(|_| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        self.builder.set_cold_block(ask);
        let known = self.machine_field(types::I64, offset_of!(Machine, jiffies));
        self.branch(known, [(done, &[known.into()]), (ask, &[])]);

        self.builder.switch_to_block(ask);
        let asked = self.call_direct(RuntimeFunction::Jiffies, &[]);
        self.builder.ins().jump(done, &[asked.into()]);

        self.builder.switch_to_block(done);
        result
    }

    fn call_function(&mut self, function: u32, args: &[Value]) -> ir::Value {
        let callee = self.func_ref(function);
        self.calls_program();
        // The callee's frame lies below ours, whose depth the verifier determined.
        let depth = i64::from(self.function.stack_bytes.next_multiple_of(16));
        let frame = self.frame;
        let frame = self.builder.ins().iadd_imm_s(frame, -depth);
        let mut all = vec![self.machine, frame];
        for &arg in args {
            let arg = self.value(arg);
            all.push(arg);
        }
        let call = self.builder.ins().call(callee, &all);
        let result = self.builder.inst_results(call)[0];
        self.leave_if_stopped();
        result
    }

    fn arg(&mut self, arg: &Arg) -> ir::Value {
        match arg {
            Arg::Value(value) => self.value(*value),
            Arg::StackRead(range) | Arg::StackReadWrite(range) => self.stack_addr(range.offset),
        }
    }

    pub(super) fn iconst(&mut self, value: u64) -> ir::Value {
        self.builder.ins().iconst(types::I64, value as i64)
    }
}

/// Flags of loads from memory that does not change during a run.
fn fixed() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// Program memory: little-endian, any alignment, proved accessible.
fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_endianness(Endianness::Little)
}

fn memory_type(width: Width) -> ir::Type {
    match width {
        Width::W8 => types::I8,
        Width::W16 => types::I16,
        Width::W32 => types::I32,
        Width::W64 => types::I64,
    }
}

fn stack_width(range: StackRange) -> Width {
    Width::from_bytes(u32::from(range.len)).unwrap_or(Width::W64)
}

fn condition(cond: Cond) -> IntCC {
    match cond {
        Cond::Eq => IntCC::Equal,
        Cond::Ne => IntCC::NotEqual,
        Cond::Ult => IntCC::UnsignedLessThan,
        Cond::Ule => IntCC::UnsignedLessThanOrEqual,
        Cond::Ugt => IntCC::UnsignedGreaterThan,
        Cond::Uge => IntCC::UnsignedGreaterThanOrEqual,
        Cond::Slt => IntCC::SignedLessThan,
        Cond::Sle => IntCC::SignedLessThanOrEqual,
        Cond::Sgt => IntCC::SignedGreaterThan,
        Cond::Sge => IntCC::SignedGreaterThanOrEqual,
    }
}
