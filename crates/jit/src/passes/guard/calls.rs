//! The runtime's functions trust their arguments; if an argument is not valid by construction, the
//! helper is called instead, which checks it. In front of each call of a helper the code stores the
//! helper's number: the cost of the call is taken from the run's budget before the call.

use towpath_bpf::proto::{self, ArgKind, id};

use super::super::{definition, definitions};
use crate::xir::{Arg, Dominators, Function, Inst, InstData, Op, Type};

pub(super) fn check_arguments(function: &mut Function) {
    let dominators = Dominators::new(function);
    let definitions = definitions(function, &dominators);
    for &block in dominators.order() {
        let old = std::mem::take(&mut function.block_mut(block).insts);
        let mut insts = Vec::with_capacity(old.len());
        for inst in old {
            let data = function.inst(inst).clone();
            let helper = match data.op {
                Op::CallRuntime { function: callee, ref args } => callee
                    .checked()
                    .and_then(|helper| as_helper(function, &definitions, helper, args)),
                // The form before any pass replaced it; its key may be anywhere.
                Op::MapLookup { map, key: key @ Arg::Value(_) } => {
                    let result = function.add_value(Type::I64);
                    let map = InstData { op: Op::MapRef(map), result: Some(result), ..data };
                    insts.push(function.add_inst(map));
                    let args = vec![Arg::Value(result), key];
                    Some(Op::CallHelper { id: id::MAP_LOOKUP_ELEM, args })
                }
                _ => None,
            };
            if let Some(helper) = helper {
                function.inst_mut(inst).op = helper;
            }
            let callee = match function.inst(inst).op {
                Op::CallHelper { id, .. } => Some(Op::Callee(id)),
                Op::CallKfunc { kfunc, .. } => Some(Op::CalleeKfunc(kfunc)),
                _ => None,
            };
            if let Some(op) = callee {
                let origin = function.inst(inst).origin;
                insts.push(function.add_inst(InstData { op, result: None, origin }));
            }
            insts.push(inst);
        }
        function.block_mut(block).insts = insts;
    }
}

/// The helper's call, unless all arguments are valid by construction: a map of this program, named
/// stack bytes, numbers.
fn as_helper(
    function: &Function,
    definitions: &[Option<Inst>],
    helper: u32,
    args: &[Arg],
) -> Option<Op> {
    let is_map = |arg: &Arg| match arg {
        Arg::Value(value) => {
            matches!(definition(function, definitions, *value), Some(Op::MapRef(_)))
        }
        Arg::StackRead(_) | Arg::StackReadWrite(_) => false,
    };
    let kinds = proto::helper(helper).map_or(&[][..], |proto| proto.args);
    let is_right = |(arg, kind): (&Arg, ArgKind)| match kind {
        ArgKind::Anything | ArgKind::ConstSize | ArgKind::ConstSizeOrZero => true,
        ArgKind::ConstMapPtr => is_map(arg),
        _ => !matches!(arg, Arg::Value(_)),
    };
    // Functions that copy as much as their arguments say are charged for it, which only helpers
    // are.
    let is_right = |it| is_right(it) && !copies(helper);
    // The worker's number may follow the helper's own arguments.
    let own = args.iter().take(kinds.len());
    let all_right = own.zip(kinds.iter().map(|kind| kind.kind)).all(is_right);
    let args = args.iter().take(kinds.len()).cloned().collect();
    (!all_right).then_some(Op::CallHelper { id: helper, args })
}

/// Whether a helper's time depends on more than a key's length.
fn copies(helper: u32) -> bool {
    use id::{CSUM_DIFF, MAP_PEEK_ELEM, MAP_POP_ELEM, MAP_PUSH_ELEM, MAP_UPDATE_ELEM};
    [CSUM_DIFF, MAP_PEEK_ELEM, MAP_POP_ELEM, MAP_PUSH_ELEM, MAP_UPDATE_ELEM].contains(&helper)
}
