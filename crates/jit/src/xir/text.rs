//! The readable form of XIR, for `prog dump xir`, golden tests and messages.

use std::fmt;

use super::function::{Function, Module};
use super::ir::{Arg, Block, InstData, Jump, Op, Place, StackRange, Terminator, Type, Value};
use crate::machine_unsafe::RedirectCell;

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, function) in self.all().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{function}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "function {} {{", self.name)?;
        for block in self.block_ids() {
            let data = self.block(block);
            let dead = data.insts.is_empty() && data.end == Terminator::Unreachable;
            if dead && block != Function::ENTRY {
                continue;
            }
            write!(f, "{block}")?;
            list(f, &data.params, |f, param| write!(f, "{param}: {}", self.ty(*param)))?;
            writeln!(f, ":")?;
            for &inst in &data.insts {
                writeln!(f, "    {}", WithTypes(self, self.inst(inst)))?;
            }
            writeln!(f, "    {}", data.end)?;
        }
        writeln!(f, "}}")
    }
}

struct WithTypes<'a>(&'a Function, &'a InstData);

impl fmt::Display for WithTypes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WithTypes(function, data) = self;
        if let Some(result) = data.result {
            write!(f, "{result} = {} ", function.ty(result))?;
        }
        write!(f, "{}", data.op)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Const(value) => write!(f, "const {value:#x}"),
            Op::Unary(op, a) => write!(f, "{} {a}", lower(op)),
            Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", lower(op)),
            Op::Compare(cond, a, b) => write!(f, "cmp.{} {a}, {b}", lower(cond)),
            Op::Select(c, a, b) => write!(f, "select {c}, {a}, {b}"),
            Op::CtxLoad(field) => write!(f, "ctx.{}", lower(field)),
            Op::Load { place, probe: false } => write!(f, "load.{place}"),
            Op::Load { place, probe: true } => write!(f, "load.probe.{place}"),
            Op::Store { place, value } => write!(f, "store.{place}, {value}"),
            Op::StackLoad(range) => write!(f, "load.{range}"),
            Op::StackStore(range, value) => write!(f, "store.{range}, {value}"),
            Op::StackAddr(offset) => write!(f, "addr stack[{offset}]"),
            Op::AtomicRmw { place, op, value } => {
                write!(f, "atomic.{}.{place}, {value}", lower(op))
            }
            Op::CompareExchange { place, expected, new } => {
                write!(f, "cmpxchg.{place}, {expected}, {new}")
            }
            Op::LoadAcquire(place) => write!(f, "load.acquire.{place}"),
            Op::StoreRelease { place, value } => write!(f, "store.release.{place}, {value}"),
            Op::MapRef(map) => write!(f, "map #{map}"),
            Op::MapValueAddr { map, offset } => write!(f, "addr map #{map}[{offset}]"),
            Op::MapMetaAddr { map, what } => write!(f, "addr {} of map #{map}", lower(what)),
            Op::MapLookup { map, key } => write!(f, "lookup map #{map}, {key}"),
            Op::CallHelper { id, args } => {
                write!(f, "helper #{id}")?;
                list(f, args, |f, arg| write!(f, "{arg}"))
            }
            Op::CallKfunc { kfunc, args } => {
                write!(f, "kfunc #{kfunc}")?;
                list(f, args, |f, arg| write!(f, "{arg}"))
            }
            Op::CallRuntime { function, args } => {
                write!(f, "runtime {}", function.name())?;
                list(f, args, |f, arg| write!(f, "{arg}"))
            }
            Op::Call { function, args } => {
                write!(f, "call f{function}")?;
                list(f, args, |f, arg| write!(f, "{arg}"))
            }
            Op::FunctionRef(function) => write!(f, "addr f{function}"),
            Op::WorkerId => write!(f, "worker"),
            Op::Guard { address, bytes, need } => {
                write!(f, "guard.{} {address}, {bytes}", lower(need))
            }
            Op::SetRedirect { kind, words: [first, second], found } => {
                write!(f, "redirect.{} {first}, {second}", RedirectCell::kind_name(*kind))?;
                found.map_or(Ok(()), |found| write!(f, ", if {found}"))
            }
            Op::Callee(helper) => write!(f, "callee helper #{helper}"),
            Op::CalleeKfunc(kfunc) => write!(f, "callee kfunc #{kfunc}"),
            Op::Look => write!(f, "look"),
            Op::Barrier => write!(f, "barrier"),
            Op::BudgetSet(budget) => write!(f, "budget {budget}"),
            Op::BudgetSpend(cost) => write!(f, "spend {cost}"),
        }
    }
}

impl fmt::Display for Terminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Terminator::Jump(jump) => write!(f, "jump {jump}"),
            Terminator::Branch(value, yes, no) => write!(f, "branch {value}, {yes}, {no}"),
            Terminator::Return(value) => write!(f, "return {value}"),
            Terminator::TailCall { map, index, otherwise } => {
                write!(f, "tailcall {map}, {index}, {otherwise}")
            }
            Terminator::Unreachable => write!(f, "unreachable"),
        }
    }
}

impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        list(f, &self.args, |f, arg| write!(f, "{arg}"))
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Value(value) => write!(f, "{value}"),
            Arg::StackRead(range) => write!(f, "in {range}"),
            Arg::StackReadWrite(range) => write!(f, "inout {range}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alias = lower(&self.alias);
        write!(f, "{} {alias} [{}{:+}]", self.width.bytes() * 8, self.base, self.offset)
    }
}

impl fmt::Display for StackRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stack[{}]", u32::from(self.len) * 8, self.offset)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&lower(self))
    }
}

/// A variant's name in lower case: the text form uses the names of the code.
fn lower(variant: &dyn fmt::Debug) -> String {
    format!("{variant:?}").to_ascii_lowercase()
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut each: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    f.write_str("(")?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        each(f, item)?;
    }
    f.write_str(")")
}
