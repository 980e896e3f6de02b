//! A function of XIR as a function of LLVM's IR, in text: blocks, parameters and terminators.

use std::fmt::{Display, Write};
use std::mem::offset_of;

use super::lines;
use super::module::Shared;
use super::pointers::{Form, Pointers};
use super::symbols::Symbol;
use crate::machine_unsafe::Machine;
use crate::slots::Slots;
use crate::xir::{
    Alias, Block, Dominators, Function, Jump, Module, RuntimeFunction, Terminator, Type, Value,
};

/// Translates function `index` of a module.
pub(super) fn translate(
    (module, slots): (&Module, &Slots),
    index: usize,
    shared: &mut Shared,
    out: &mut String,
) {
    let own = module.own.as_ref().filter(|_| index == 0);
    let function = own.unwrap_or(&module.functions[index]);
    let dominators = Dominators::new(function);
    let mut lowering = Lowering {
        module,
        function,
        slots,
        is_burst: index == 0,
        shared,
        pointers: Pointers::find(function, &dominators),
        values: vec![String::new(); function.values.len()],
        addresses: vec![String::new(); function.values.len()],
        incoming: vec![Vec::new(); function.blocks.len()],
        body: String::new(),
        label: "start".into(),
        temporaries: 0,
        may_stop: false,
        index,
        place: String::new(),
    };
    lowering.run(dominators.order(), out);
}

/// Parameters of a function.
pub(super) fn params(function: &Function) -> &[Value] {
    function.blocks.first().map_or(&[], |entry| &entry.params)
}

pub(super) struct Lowering<'a> {
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    pub(super) slots: &'a Slots,
    /// Whether it runs only for frames of the program's own bursts; callbacks may run for other
    /// frames, where maps have other numbers.
    pub(super) is_burst: bool,
    /// State shared by all functions of the module.
    pub(super) shared: &'a mut Shared,
    pointers: Pointers,
    /// Operand for each value; constants are written out.
    values: Vec<String>,
    /// Operand for the pointer form of each value that needs one.
    addresses: Vec<String>,
    /// Jumps to each block: the label they come from, and their arguments.
    incoming: Vec<Vec<(String, Vec<Value>)>>,
    /// Text of the block being translated.
    body: String,
    /// Label of the part of the block that is being written.
    pub(super) label: String,
    temporaries: usize,
    /// Whether a call may leave the function.
    may_stop: bool,
    /// Number of the function.
    index: usize,
    /// Suffix that names the BPF instruction of the text being written.
    place: String,
}

impl Lowering<'_> {
    fn run(&mut self, order: &[Block], out: &mut String) {
        let params: Vec<Value> = params(self.function).to_vec();
        let list: String =
            (0..params.len()).map(|number| format!(", i64 noundef %r{}", number + 1)).collect();
        let (index, head) = (self.index, lines::of_function(self.index));
        line(
            out,
            format_args!(
                "define internal fastcc i64 @f{index}(ptr noundef nonnull %machine, \
                 ptr noundef %frame{list}) #0{head} {{"
            ),
        );
        line(out, "start:");
        line(out, format_args!("  br label %{}", Function::ENTRY));
        let mut bodies = Vec::with_capacity(order.len());
        for &block in order {
            bodies.push((block, self.block(block)));
        }
        for (block, body) in bodies {
            line(out, format_args!("{block}:"));
            self.phis(block, out);
            out.push_str(&body);
        }
        if self.may_stop {
            line(out, "stopped:\n  ret i64 0");
        }
        line(out, "}\n");
    }

    fn block(&mut self, block: Block) -> String {
        self.label = block.to_string();
        let data = self.function.block(block);
        for &param in &data.params {
            self.values[param.0 as usize] = param_name(param);
            if self.pointers.form(param) == Some(Form::Param) {
                self.addresses[param.0 as usize] = address_name(param);
            } else {
                self.address_of(param);
            }
        }
        for &inst in &data.insts {
            let inst = self.function.inst(inst);
            self.place = self.shared.lines.suffix(self.index, inst.origin);
            self.inst(inst);
            if let Some(result) = inst.result {
                self.address_of(result);
            }
        }
        self.end(&data.end);
        std::mem::take(&mut self.body)
    }

    /// Writes the parameters of a block with the arguments of each jump. All labels are known by
    /// now.
    fn phis(&self, block: Block, out: &mut String) {
        let list = |texts: Vec<String>| texts.join(", ");
        for (position, &param) in self.function.block(block).params.iter().enumerate() {
            let from = &self.incoming[block.0 as usize];
            let mut numbers: Vec<String> = from
                .iter()
                .map(|(label, args)| format!("[ {}, %{label} ]", self.value(args[position])))
                .collect();
            if block == Function::ENTRY {
                numbers.push(format!("[ %r{}, %start ]", position + 1));
            }
            let (name, ty) = (param_name(param), llvm_type(self.function.ty(param)));
            line(out, format_args!("  {name} = phi {ty} {}", list(numbers)));
            if self.pointers.form(param) == Some(Form::Param) {
                let pointers = from
                    .iter()
                    .map(|(label, args)| format!("[ {}, %{label} ]", self.address(args[position])));
                let pointers = list(pointers.collect());
                line(out, format_args!("  {} = phi ptr {pointers}", address_name(param)));
            }
        }
    }

    /// Writes the pointer form of a value behind its definition, if it is needed.
    fn address_of(&mut self, value: Value) {
        let Some(form) = self.pointers.form(value) else { return };
        let address = match form {
            Form::Number => self.number_as_pointer(value),
            Form::Offset(base, offset) => {
                let base = self.address(base).to_owned();
                self.temporary(format_args!("getelementptr i8, ptr {base}, i64 {offset}"))
            }
            Form::Indexed(base, index) => {
                let (base, index) = (self.address(base).to_owned(), self.value(index).to_owned());
                self.temporary(format_args!("getelementptr i8, ptr {base}, i64 {index}"))
            }
            Form::Select(condition, a, b) => {
                let condition = self.is_not_zero(condition);
                let (a, b) = (self.address(a).to_owned(), self.address(b).to_owned());
                self.temporary(format_args!("select i1 {condition}, ptr {a}, ptr {b}"))
            }
            // The phi stands before all other text of its block.
            Form::Param => return,
        };
        self.addresses[value.0 as usize] = address;
    }

    fn number_as_pointer(&mut self, value: Value) -> String {
        let known = &self.addresses[value.0 as usize];
        if !known.is_empty() {
            return known.clone();
        }
        let number = self.value(value).to_owned();
        // A constant is not written where it is defined, so its pointer form may not be either.
        match number.starts_with(['%', 'p']) {
            true => self.temporary(format_args!("inttoptr i64 {number} to ptr")),
            false => format!("inttoptr (i64 {number} to ptr)"),
        }
    }

    fn end(&mut self, end: &Terminator) {
        match end {
            Terminator::Jump(jump) => {
                let label = self.label.clone();
                self.jump(jump, label);
                self.line(format_args!("br label %{}", jump.target));
            }
            Terminator::Branch(condition, yes, no) => self.branch(*condition, yes, no),
            Terminator::Return(value) => {
                let value = self.value(*value).to_owned();
                self.line(format_args!("ret i64 {value}"));
            }
            Terminator::TailCall { map, index, otherwise } => {
                self.tail_call(*map, *index, otherwise);
            }
            // Proved unreachable; if the proof is wrong, the run ends with XDP_ABORTED.
            Terminator::Unreachable => self.line("ret i64 0"),
        }
    }

    fn branch(&mut self, condition: Value, yes: &Jump, no: &Jump) {
        let condition = self.is_not_zero(condition);
        let label = self.label.clone();
        if yes.target != no.target {
            self.jump(yes, label.clone());
            self.jump(no, label);
            let known = self.counted(yes.target);
            self.line(format_args!(
                "br i1 {condition}, label %{}, label %{}{known}",
                yes.target, no.target
            ));
            return;
        }
        if let Some(jump) = self.chosen(&condition, yes, no) {
            self.jump(&jump, label);
            self.line(format_args!("br label %{}", jump.target));
            return;
        }
        self.jump(yes, label);
        // Two edges from one block to another need two labels to distinguish their arguments.
        let edge = self.new_label();
        self.line(format_args!("br i1 {condition}, label %{}, label %{edge}", yes.target));
        self.start(edge.clone());
        self.jump(no, edge);
        self.line(format_args!("br label %{}", no.target));
    }

    /// Merges two edges from one block to another into one, with selects of a few arguments: as
    /// branches they are better for tier 1 (`passes::predict`). LLVM decides by itself.
    fn chosen(&mut self, condition: &str, yes: &Jump, no: &Jump) -> Option<Jump> {
        let differing = yes.args.iter().zip(&no.args).filter(|(yes, no)| yes != no).count();
        if differing > SELECTS_MAX {
            return None;
        }
        let function = self.function;
        let params = &function.block(yes.target).params;
        let mut args = yes.args.clone();
        for ((arg, &other), &param) in args.iter_mut().zip(&no.args).zip(params) {
            if *arg == other {
                continue;
            }
            let ty = llvm_type(function.ty(param));
            let (a, b) = (self.value(*arg).to_owned(), self.value(other).to_owned());
            let value = self.temporary(format_args!("select i1 {condition}, {ty} {a}, {ty} {b}"));
            let mut address = String::new();
            if self.pointers.form(param) == Some(Form::Param) {
                let (a, b) = (self.address(*arg).to_owned(), self.address(other).to_owned());
                address = self.temporary(format_args!("select i1 {condition}, ptr {a}, ptr {b}"));
            }
            *arg = Value(self.values.len() as u32);
            self.values.push(value);
            self.addresses.push(address);
        }
        Some(Jump { target: yes.target, args })
    }

    /// Suffix for a branch back to a loop with a known number of rounds.
    fn counted(&mut self, head: Block) -> String {
        let comes_back = self.function.counted.contains(&head) && self.label == head.to_string();
        if comes_back { self.shared.counted_loop() } else { String::new() }
    }

    /// Calls a function of the runtime that may end the run.
    pub(super) fn call_runtime(&mut self, callee: Symbol, args: &[String; 5]) -> String {
        let result = self.call_with_machine(callee, args);
        self.leave_if_stopped();
        result
    }

    /// Calls a function of the runtime that takes the machine and five numbers.
    pub(super) fn call_with_machine(&mut self, callee: Symbol, args: &[String; 5]) -> String {
        let symbol = self.shared.symbol(callee);
        let args: String = args.iter().map(|arg| format!(", i64 {arg}")).collect();
        self.temporary(format_args!("call i64 {symbol}(ptr %machine{args})"))
    }

    /// Calls a function of the runtime with its own parameters.
    pub(super) fn call_direct(&mut self, function: RuntimeFunction, args: &[String]) -> String {
        let effects = function.effects();
        let symbol = self.shared.symbol(Symbol::Runtime(function));
        let machine = effects.takes_machine.then(|| "ptr %machine".to_owned());
        let args = machine.into_iter().chain(args.iter().map(|arg| format!("i64 {arg}")));
        let args: Vec<String> = args.collect();
        let result = self.temporary(format_args!("call i64 {symbol}({})", args.join(", ")));
        if effects.stops {
            self.leave_if_stopped();
        }
        result
    }

    /// Leaves this function behind a call that may end the run.
    pub(super) fn leave_if_stopped(&mut self) {
        let stop = self.machine_field("i32", offset_of!(Machine, stop));
        self.leave_if(&stop);
    }

    /// As [`Self::leave_if_stopped`], with no assumptions about the functions called before.
    pub(super) fn look(&mut self) {
        let offset = offset_of!(Machine, stop);
        let place =
            self.temporary(format_args!("getelementptr inbounds i8, ptr %machine, i64 {offset}"));
        let stop = self.temporary(format_args!("load volatile i32, ptr {place}, align 4"));
        self.leave_if(&stop);
    }

    fn leave_if(&mut self, stop: &str) {
        self.may_stop = true;
        let goes_on = self.temporary(format_args!("icmp eq i32 {stop}, 0"));
        let next = self.new_label();
        self.line(format_args!(
            "br i1 {goes_on}, label %{next}, label %stopped, !prof {}",
            super::module::LIKELY
        ));
        self.start(next);
    }

    pub(super) fn machine_field(&mut self, ty: &str, offset: usize) -> String {
        self.private_field(ty, "%machine", offset)
    }

    /// Loads from memory that the program cannot write.
    pub(super) fn private_field(&mut self, ty: &str, base: &str, offset: usize) -> String {
        let place =
            self.temporary(format_args!("getelementptr inbounds i8, ptr {base}, i64 {offset}"));
        let scope = self.shared.scopes.suffix(Alias::Ctx);
        self.temporary(format_args!("load {ty}, ptr {place}, align 4{scope}"))
    }

    pub(super) fn jump(&mut self, jump: &Jump, from: String) {
        self.incoming[jump.target.0 as usize].push((from, jump.args.clone()));
    }

    pub(super) fn is_not_zero(&mut self, value: Value) -> String {
        let (ty, value) = (llvm_type(self.function.ty(value)), self.value(value).to_owned());
        self.temporary(format_args!("icmp ne {ty} {value}, 0"))
    }

    /// Operand for a value.
    pub(super) fn value(&self, value: Value) -> &str {
        match self.values[value.0 as usize].as_str() {
            // The checker refuses undefined values, so this only keeps the text well-formed.
            "" => "0",
            text => text,
        }
    }

    /// Operand for a value's pointer form.
    pub(super) fn address(&self, value: Value) -> &str {
        match self.addresses[value.0 as usize].as_str() {
            "" => "null",
            text => text,
        }
    }

    pub(super) fn set(&mut self, value: Value, operand: String) {
        self.values[value.0 as usize] = operand;
    }

    pub(super) fn set_address(&mut self, value: Value, operand: String) {
        self.addresses[value.0 as usize] = operand;
    }

    /// Writes an instruction whose result gets a new name.
    pub(super) fn temporary(&mut self, text: impl Display) -> String {
        let name = format!("%t{}", self.temporaries);
        self.temporaries += 1;
        line(&mut self.body, format_args!("  {name} = {text}{}", self.place));
        name
    }

    /// Writes an instruction without a result.
    pub(super) fn line(&mut self, text: impl Display) {
        line(&mut self.body, format_args!("  {text}{}", self.place));
    }

    pub(super) fn new_label(&mut self) -> String {
        self.temporaries += 1;
        format!("l{}", self.temporaries - 1)
    }

    pub(super) fn start(&mut self, label: String) {
        line(&mut self.body, format_args!("{label}:"));
        self.label = label;
    }
}

/// Largest number of selects; with more, a branch is kept.
const SELECTS_MAX: usize = 2;

/// LLVM's name for one of XIR's types.
pub(super) fn llvm_type(ty: Type) -> &'static str {
    match ty {
        Type::I32 => "i32",
        Type::I64 => "i64",
    }
}

pub(super) fn zero() -> String {
    "0".into()
}

pub(super) fn line(out: &mut String, text: impl Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

fn param_name(value: Value) -> String {
    format!("%{value}")
}

fn address_name(value: Value) -> String {
    format!("%{value}.p")
}
