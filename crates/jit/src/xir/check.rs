//! The checker of the invariants of functions, for use between any two passes.
//!
//! It runs after each pass in debug builds and tests, so that a broken pass is reported with the
//! first rule that it breaks, and not by wrong machine code.

use super::cfg::Dominators;
use super::function::{Function, Module};
use super::ir::Op::{Barrier, Look};
use super::ir::{Arg, Block, Inst, InstData, Jump, Op, Terminator, Type, UnaryOp, Value, Width};

/// A rule that a function breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("function {function}, block b{}: {what}", block.0)]
pub struct CheckError {
    /// Name of the function.
    pub function: String,
    /// Block in which the rule is broken.
    pub block: Block,
    /// The rule, and the values concerned.
    pub what: String,
}

/// Checks every function of a module.
///
/// # Errors
///
/// Fails with the first broken rule: a value defined twice, used where its definition doesn't
/// dominate, or of the wrong type; a jump with the wrong arguments; a stack access outside the
/// stack; a call out of range.
pub fn check(module: &Module) -> Result<(), CheckError> {
    module.all().try_for_each(|function| Checker::new(module, function).run())
}

struct Checker<'a> {
    module: &'a Module,
    function: &'a Function,
    dominators: Dominators,
    /// Definition of each value: block and position (0 for parameters).
    definitions: Vec<Option<(Block, usize)>>,
}

type Outcome = Result<(), String>;

impl<'a> Checker<'a> {
    fn new(module: &'a Module, function: &'a Function) -> Self {
        let dominators = Dominators::new(function);
        let definitions = vec![None; function.values.len()];
        Checker { module, function, dominators, definitions }
    }

    fn run(mut self) -> Result<(), CheckError> {
        let blocks: Vec<Block> = self.dominators.order().to_vec();
        for &block in &blocks {
            self.define(block).map_err(|what| self.error(block, what))?;
        }
        for &block in &blocks {
            self.check_block(block).map_err(|what| self.error(block, what))?;
        }
        Ok(())
    }

    fn error(&self, block: Block, what: String) -> CheckError {
        CheckError { function: self.function.name.clone(), block, what }
    }

    fn define(&mut self, block: Block) -> Outcome {
        let data = self.function.block(block);
        let params = data.params.iter().map(|&value| (value, 0));
        let results = data.insts.iter().enumerate().filter_map(|(index, &inst)| {
            self.function.insts.get(inst.0 as usize)?.result.map(|value| (value, index + 1))
        });
        for (value, position) in params.chain(results).collect::<Vec<_>>() {
            let slot = self.definitions.get_mut(value.0 as usize);
            match slot {
                None => return Err(format!("v{} has no type", value.0)),
                Some(Some(_)) => return Err(format!("v{} is defined twice", value.0)),
                Some(slot) => *slot = Some((block, position)),
            }
        }
        Ok(())
    }

    fn check_block(&self, block: Block) -> Outcome {
        let data = self.function.block(block);
        for (index, &inst) in data.insts.iter().enumerate() {
            self.check_inst(block, index + 1, inst)?;
        }
        let mut outcome = Ok(());
        data.end.for_each_operand(|value| {
            if outcome.is_ok() {
                outcome = self.check_use(block, usize::MAX, value);
            }
        });
        outcome?;
        self.check_end(&data.end)
    }

    fn check_inst(&self, block: Block, position: usize, inst: Inst) -> Outcome {
        let Some(data) = self.function.insts.get(inst.0 as usize) else {
            return Err(format!("instruction i{} does not exist", inst.0));
        };
        let mut outcome = Ok(());
        data.op.for_each_operand(|value| {
            if outcome.is_ok() {
                outcome = self.check_use(block, position, value);
            }
        });
        outcome?;
        self.check_types(data).map_err(|what| format!("{:?}: {what}", data.op))
    }

    fn check_use(&self, block: Block, position: usize, value: Value) -> Outcome {
        let definition = self.definitions.get(value.0 as usize).copied().flatten();
        let reaches = match definition {
            Some((at, defined)) if at == block => defined < position,
            Some((at, _)) => self.dominators.dominates(at, block),
            None => false,
        };
        if reaches { Ok(()) } else { Err(format!("v{} is used before it is defined", value.0)) }
    }

    fn check_types(&self, data: &InstData) -> Outcome {
        let result = data.result.map(|value| self.function.ty(value));
        match &data.op {
            Op::Binary(_, a, b) => self.all(result, &[*a, *b]),
            Op::Compare(_, a, b) => {
                self.all(Some(self.function.ty(*a)), &[*b])?;
                same(result, Type::I32)
            }
            Op::Select(c, a, b) => {
                self.all(Some(Type::I32), &[*c])?;
                self.all(result, &[*a, *b])
            }
            Op::Unary(op, a) => self.check_unary(*op, *a, result),
            Op::Load { place, .. } | Op::LoadAcquire(place) => {
                self.all(Some(Type::I64), &[place.base])?;
                same(result, place.width.value_type())
            }
            Op::Store { place, value } | Op::StoreRelease { place, value } => {
                self.all(Some(Type::I64), &[place.base])?;
                self.holds(*value, place.width)
            }
            Op::AtomicRmw { place, value, .. } => {
                self.all(Some(Type::I64), &[place.base])?;
                self.all(Some(place.width.value_type()), &[*value])?;
                same(result, place.width.value_type())
            }
            Op::CompareExchange { place, expected, new } => {
                self.all(Some(Type::I64), &[place.base])?;
                self.all(Some(place.width.value_type()), &[*expected, *new])?;
                same(result, place.width.value_type())
            }
            Op::StackLoad(range) => {
                let width = stack_width(*range)?;
                same(result, width.value_type())
            }
            Op::StackStore(range, value) => {
                let width = stack_width(*range)?;
                self.holds(*value, width)
            }
            Op::CtxLoad(field) => same(result, field.value_type()),
            Op::CallHelper { args, .. } | Op::CallKfunc { args, .. } => self.check_args(args),
            Op::CallRuntime { function, args } => {
                if args.len() != function.arg_count() {
                    return Err(format!("it takes {} arguments", function.arg_count()));
                }
                self.check_each_arg(args)?;
                same(result, Type::I64)
            }
            Op::MapLookup { key, .. } => {
                self.check_args(std::slice::from_ref(key))?;
                same(result, Type::I64)
            }
            Op::Call { function, args } => self.check_call(*function, args),
            Op::MapRef(_)
            | Op::MapValueAddr { .. }
            | Op::MapMetaAddr { .. }
            | Op::FunctionRef(_)
            | Op::StackAddr(_) => same(result, Type::I64),
            Op::WorkerId | Op::BudgetSpend(_) => same(result, Type::I32),
            Op::SetRedirect { kind: _, words, found } => {
                self.all(Some(Type::I64), words).and(self.all(Some(Type::I32), found.as_slice()))
            }
            Op::Guard { address, .. } => self.all(Some(Type::I64), &[*address]),
            Op::Callee(_) | Op::CalleeKfunc(_) | Look | Barrier | Op::BudgetSet(_) => Ok(()),
            Op::Const(value) => match result {
                Some(ty) if *value & !ty.mask() == 0 => Ok(()),
                _ => Err("the constant does not fit its type".into()),
            },
        }
    }

    fn check_unary(&self, op: UnaryOp, a: Value, result: Option<Type>) -> Outcome {
        match op {
            UnaryOp::Sext | UnaryOp::Zext => {
                self.all(Some(Type::I32), &[a])?;
                same(result, Type::I64)
            }
            UnaryOp::Trunc => {
                self.all(Some(Type::I64), &[a])?;
                same(result, Type::I32)
            }
            UnaryOp::Bswap64 => {
                self.all(Some(Type::I64), &[a])?;
                same(result, Type::I64)
            }
            UnaryOp::Bswap16 | UnaryOp::Bswap32 | UnaryOp::Sext8 | UnaryOp::Sext16 => {
                self.all(result, &[a])
            }
        }
    }

    fn check_args(&self, args: &[Arg]) -> Outcome {
        if args.len() > 5 {
            return Err("a call takes at most five arguments".into());
        }
        self.check_each_arg(args)
    }

    fn check_each_arg(&self, args: &[Arg]) -> Outcome {
        args.iter().try_for_each(|arg| match arg {
            Arg::Value(value) => self.all(Some(Type::I64), &[*value]),
            Arg::StackRead(range) | Arg::StackReadWrite(range) => {
                if range.is_valid() {
                    Ok(())
                } else {
                    Err(format!("{range:?} leaves the stack"))
                }
            }
        })
    }

    fn check_call(&self, callee: u32, args: &[Value]) -> Outcome {
        let Some(callee) = self.module.functions.get(callee as usize) else {
            return Err(format!("function {callee} does not exist"));
        };
        let params = callee.blocks.first().map_or(0, |entry| entry.params.len());
        if params != args.len() {
            return Err(format!("{} takes {params} arguments", callee.name));
        }
        self.all(Some(Type::I64), args)
    }

    fn check_end(&self, end: &Terminator) -> Outcome {
        match end {
            Terminator::Branch(value, ..) => self.all(Some(Type::I32), &[*value])?,
            Terminator::Return(value) => self.all(Some(Type::I64), &[*value])?,
            Terminator::TailCall { map, index, .. } => {
                self.all(Some(Type::I64), &[*map])?;
                self.all(Some(Type::I32), &[*index])?;
            }
            Terminator::Jump(_) | Terminator::Unreachable => {}
        }
        end.jumps().try_for_each(|jump| self.check_jump(jump))
    }

    fn check_jump(&self, jump: &Jump) -> Outcome {
        let Some(target) = self.function.blocks.get(jump.target.0 as usize) else {
            return Err(format!("block b{} does not exist", jump.target.0));
        };
        if target.params.len() != jump.args.len() {
            return Err(format!("b{} takes {} arguments", jump.target.0, target.params.len()));
        }
        let mut pairs = jump.args.iter().zip(&target.params);
        pairs.try_for_each(|(&arg, &param)| self.all(Some(self.function.ty(param)), &[arg]))
    }

    fn all(&self, ty: Option<Type>, values: &[Value]) -> Outcome {
        match values.iter().find(|value| Some(self.function.ty(**value)) != ty) {
            None => Ok(()),
            Some(value) => Err(format!("v{} is not of type {ty:?}", value.0)),
        }
    }

    /// Checks that a stored value has the type that a load of the width gives.
    fn holds(&self, value: Value, width: Width) -> Outcome {
        self.all(Some(width.value_type()), &[value])
    }
}

fn same(result: Option<Type>, expected: Type) -> Outcome {
    if result == Some(expected) { Ok(()) } else { Err(format!("the result is not {expected:?}")) }
}

fn stack_width(range: super::ir::StackRange) -> Result<Width, String> {
    let width = Width::from_bytes(u32::from(range.len));
    width.filter(|_| range.is_valid()).ok_or_else(|| format!("{range:?} is not one access"))
}
