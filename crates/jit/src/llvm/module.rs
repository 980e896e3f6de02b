//! A module of XIR as LLVM's textual IR.
//!
//! It is text, because LLVM's reader checks it, people can read it, and it is the key under which
//! the machine code is cached: it contains no address.

use std::mem::offset_of;

use super::alias::Scopes;
use super::function::{self, line};
use super::library_unsafe::Library;
use super::lines::{self, Lines};
use super::symbols::{Symbol, attributes};
use crate::machine_unsafe::Machine;
use crate::slots::Slots;
use crate::xir::{Alias, Function, Module, Op};

/// State shared by the functions of a module.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) scopes: Scopes,
    /// Symbols that the code refers to.
    pub(super) symbols: Vec<Symbol>,
    /// Origins of the code.
    pub(super) lines: Lines,
    /// Number of loops with a known number of rounds so far.
    loops: usize,
}

impl Shared {
    /// Suffix for the branch of one more loop with a known number of rounds. The vectorizer works
    /// on no other.
    pub(super) fn counted_loop(&mut self) -> String {
        self.loops += 1;
        format!(", !llvm.loop !{}", FIRST_LOOP + self.loops - 1)
    }

    /// Operand for a symbol.
    pub(super) fn symbol(&mut self, symbol: Symbol) -> String {
        if !self.symbols.contains(&symbol) {
            self.symbols.push(symbol);
        }
        format!("@{}", symbol.name())
    }
}

/// Branch weights: the first edge is the usual one.
pub(super) const LIKELY: &str = "!1";

/// Node that makes the vectorizer work on a loop.
const VECTORIZE: &str = "!3";
/// First node of loops; scopes have lower numbers.
const FIRST_LOOP: usize = 1 << 20;

/// Name of the function that runs a burst.
pub(super) const BATCH: &str = "batch";

/// Name of the entry for callbacks of function `index`.
pub(super) fn callback_name(index: usize) -> String {
    format!("callback{index}")
}

/// A module as text.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) ir: String,
    /// Symbols that it refers to.
    pub(super) symbols: Vec<Symbol>,
}

/// Translates a module.
pub(super) fn translate(module: &Module, slots: &Slots) -> Text {
    let mut shared = Shared::default();
    let mut ir = String::new();
    for index in 0..module.functions.len() {
        function::translate((module, slots), index, &mut shared, &mut ir);
    }
    let mut functions = module.functions.len();
    batch(functions, module.has_tail_calls(), &mut shared, &mut ir);
    for index in callbacks(module) {
        functions += 1;
        let params = function::params(&module.functions[index]).len();
        callback(index, (functions, params), &mut shared, &mut ir);
    }
    declarations(&shared.symbols, &mut ir);
    loops(shared.loops, &mut ir);
    shared.scopes.write(&mut ir);
    shared.lines.write(functions + 1, &mut ir);
    Text { ir, symbols: shared.symbols }
}

/// Functions that helpers may call: functions without another caller, and functions whose address
/// is taken.
pub(super) fn callbacks(module: &Module) -> Vec<usize> {
    let mut called = vec![false; module.functions.len()];
    let mut referred = vec![false; module.functions.len()];
    let mut note = |op: &Op| {
        let (list, index) = match op {
            Op::Call { function, .. } => (&mut called, *function),
            Op::FunctionRef(function) => (&mut referred, *function),
            _ => return,
        };
        if let Some(slot) = list.get_mut(index as usize) {
            *slot = true;
        }
    };
    for function in &module.functions {
        live_ops(function).for_each(&mut note);
    }
    (1..module.functions.len()).filter(|&index| referred[index] || !called[index]).collect()
}

fn live_ops(function: &Function) -> impl Iterator<Item = &Op> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts.map(|&inst| &function.inst(inst).op)
}

/// Writes `fn(machine, frames, returned, first, count) -> u64`: like tier 1's batch entry, with the
/// program inside of the loop. It is function `own` of the text.
fn batch(own: usize, has_tail_calls: bool, shared: &mut Shared, out: &mut String) {
    let (head, place) = (lines::of_function(own), shared.lines.suffix(own, 0));
    let scope = shared.scopes.suffix(Alias::Ctx);
    let machine = |field: usize| format!("getelementptr inbounds i8, ptr %machine, i64 {field}");
    let mut say = |text: &str| line(out, text);
    say(&format!(
        "define i64 @{BATCH}(ptr noundef nonnull %machine, ptr noundef %frames, \
         ptr noundef %returned, i64 noundef %first, i64 noundef %count) #0{head} {{\nstart:"
    ));
    say(&format!("  %stack.p = {}", machine(offset_of!(Machine, stack_top))));
    say(&format!("  %stack = load i64, ptr %stack.p, align 8{scope}"));
    say("  %frame = inttoptr i64 %stack to ptr");
    say(&format!("  %ctx.p = {}", machine(offset_of!(Machine, ctx))));
    say(&format!("  %ctx = load i64, ptr %ctx.p, align 8{scope}"));
    say(&format!("  %packet.p = {}", machine(offset_of!(Machine, packet))));
    say(&format!("  %index.p = {}", machine(offset_of!(Machine, index))));
    say(&format!("  %stop.p = {}", machine(offset_of!(Machine, stop))));
    say(&format!("  %target.p = {}", machine(offset_of!(Machine, target))));
    say(&format!("  %calls.p = {}", machine(offset_of!(Machine, tail_calls))));
    say("  br label %head\nhead:");
    say("  %index = phi i64 [ %first, %start ], [ %following, %next ]");
    say("  %more = icmp ult i64 %index, %count");
    say("  br i1 %more, label %body, label %done\nbody:");
    say("  %from = getelementptr inbounds ptr, ptr %frames, i64 %index");
    say(&format!("  %packet = load ptr, ptr %from, align 8{scope}"));
    say(&format!("  store ptr %packet, ptr %packet.p, align 8{scope}"));
    say("  %number = trunc i64 %index to i32");
    say(&format!("  store i32 %number, ptr %index.p, align 4{scope}"));
    if has_tail_calls {
        say(&format!("  store ptr null, ptr %target.p, align 8{scope}"));
        say(&format!("  store i32 0, ptr %calls.p, align 4{scope}"));
    }
    say(&format!("  %r0 = call fastcc i64 @f0(ptr %machine, ptr %frame, i64 %ctx){place}"));
    say(&format!("  %stop = load i32, ptr %stop.p, align 4{scope}"));
    say("  %goes.on = icmp eq i32 %stop, 0");
    say(&format!("  br i1 %goes.on, label %next, label %done, !prof {LIKELY}\nnext:"));
    say("  %low = trunc i64 %r0 to i32");
    say("  %place = getelementptr inbounds i32, ptr %returned, i64 %index");
    say(&format!("  store i32 %low, ptr %place, align 4{scope}"));
    say("  %following = add nuw i64 %index, 1");
    say("  br label %head\ndone:");
    say("  ret i64 %index\n}\n");
}

/// Writes `fn(machine, frame pointer, r1 to r5) -> u64`: the entry of function `index`, which takes
/// `params`, for the runtime. It is function `own` of the text.
fn callback(index: usize, (own, params): (usize, usize), shared: &mut Shared, out: &mut String) {
    let (head, place) = (lines::of_function(own), shared.lines.suffix(own, 0));
    let registers: String = (1..=5).map(|register| format!(", i64 %r{register}")).collect();
    let args: String = (1..=params).map(|register| format!(", i64 %r{register}")).collect();
    let name = callback_name(index);
    line(out, format_args!("define i64 @{name}(ptr %machine, ptr %frame{registers}) #0{head} {{"));
    let call = format_args!("call fastcc i64 @f{index}(ptr %machine, ptr %frame{args})");
    line(out, format_args!("  %r0 = {call}{place}"));
    line(out, "  ret i64 %r0\n}\n");
}

fn loops(count: usize, out: &mut String) {
    for node in (FIRST_LOOP..).take(count) {
        line(out, format_args!("!{node} = distinct !{{!{node}, {VECTORIZE}}}"));
    }
    line(out, format_args!("{VECTORIZE} = !{{!\"llvm.loop.vectorize.enable\", i1 true}}"));
}

fn declarations(symbols: &[Symbol], out: &mut String) {
    for &symbol in symbols {
        let name = symbol.name();
        match symbol.params() {
            // An array of unknown length: nothing is assumed about its end.
            None => line(out, format_args!("@{name} = external global [0 x i8], align 1")),
            Some((pointers, numbers)) => {
                let pointers = std::iter::repeat_n("ptr", pointers);
                let params: Vec<_> = pointers.chain(std::iter::repeat_n("i64", numbers)).collect();
                let (params, group) = (params.join(", "), symbol.attributes());
                line(out, format_args!("declare i64 @{name}({params}) #{group}"));
            }
        }
    }
    for ty in ["i16", "i32", "i64"] {
        line(out, format_args!("declare {ty} @llvm.bswap.{ty}({ty})"));
        line(out, format_args!("declare {ty} @llvm.fshl.{ty}({ty}, {ty}, {ty})"));
    }
    line(out, "attributes #0 = { nounwind }");
    for (index, group) in attributes(Library::major()).iter().enumerate() {
        line(out, format_args!("attributes #{} = {{ {group} }}", index + 1));
    }
    line(out, format_args!("{LIKELY} = !{{!\"branch_weights\", i32 1000000, i32 1}}"));
}
