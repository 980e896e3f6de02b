//! Cost of calls in instructions, for programs with limited time.
//!
//! Each row of the tables gives a function's cost beyond that of every call: it copies or compares
//! the memory of its arguments, walks a map, or neither. The cost is charged before the call.

use towpath_bpf::proto::{self, ArgKind, KArg};
use towpath_maps::Map;

use crate::run::Run;

/// The cost of a call with these arguments, in instructions.
pub(crate) type Cost = fn(&Run<'_>, u32, &[u64; 5]) -> u64;

/// The whole cost of a call; kfuncs have [`KFUNC`] in their number.
pub(crate) fn of(run: &Run<'_>, callee: u32, args: &[u64; 5]) -> u64 {
    CALL.saturating_add(beside(run, callee, args))
}

/// The cost of a call beyond the cost of every call.
pub(crate) fn beside(run: &Run<'_>, callee: u32, args: &[u64; 5]) -> u64 {
    let row = match callee & KFUNC {
        0 => super::helper(callee),
        _ => super::kfunc(callee & !KFUNC),
    };
    row.map_or(0, |row| (row.cost)(run, callee, args))
}

/// The cost by the prototype: keys and values of the map, and memory of a given size.
pub(super) fn by_arguments(run: &Run<'_>, callee: u32, args: &[u64; 5]) -> u64 {
    if callee & KFUNC != 0 {
        return by_sizes(callee & !KFUNC, args);
    }
    let Some(proto) = proto::helper(callee) else { return 0 };
    let map = map_among(run, proto.args, args);
    let bytes = proto.args.iter().zip(args).map(|(arg, &value)| match arg.kind {
        ArgKind::MapKey => map.map_or(0, |map| u64::from(map.key_size())),
        // Copied from the program's memory into the map, or vice versa.
        ArgKind::MapValue => map.map_or(0, |map| 2 * u64::from(map.value_size())),
        ArgKind::ConstSize | ArgKind::ConstSizeOrZero | ArgKind::ConstAllocSizeOrZero => {
            u64::from(value as u32)
        }
        _ => 0,
    });
    bytes.sum::<u64>() / BYTES
}

/// The cost of a kfunc's size arguments. If it works on a dynptr, any of its arguments may be a
/// size, so the largest possible one is charged. Registers beyond its parameters hold arbitrary
/// values.
fn by_sizes(number: u32, args: &[u64; 5]) -> u64 {
    let Some(proto) = super::kfunc_proto(number) else { return 0 };
    let has_dynptr = proto.params.iter().any(|param| param.kind == KArg::Dynptr);
    let sizes = proto.params.iter().zip(args).filter(|(param, value)| match param.kind {
        KArg::Size { .. } => true,
        KArg::Scalar | KArg::Const => has_dynptr && **value <= SIZE_MAX,
        _ => false,
    });
    let sizes = sizes.map(|(_, &value)| value.min(SIZE_MAX));
    sizes.max().map_or(0, |size| size / BYTES)
}

/// The cost of a walk through all slots of the map, used or not. Callbacks for each element are
/// charged separately.
pub(super) fn by_elements(run: &Run<'_>, _callee: u32, args: &[u64; 5]) -> u64 {
    run.map_by_handle(args[0]).map_or(0, |map| u64::from(map.max_entries()) / ELEMENTS)
}

/// The cost of a walk through routes, sockets or text, plus that of the arguments.
pub(super) fn of_a_walk(run: &Run<'_>, callee: u32, args: &[u64; 5]) -> u64 {
    WALK + by_arguments(run, callee, args)
}

fn map_among<'a>(run: &Run<'a>, kinds: &[proto::Arg], args: &[u64; 5]) -> Option<&'a Map> {
    let place = kinds.iter().position(|arg| arg.kind == ArgKind::ConstMapPtr)?;
    run.map_by_handle(*args.get(place)?)
}

/// Flag in a callee's number that marks a kfunc.
pub(crate) const KFUNC: u32 = 1 << 31;
/// The cost of every call; the compiler charges it with the instructions around the call.
pub(crate) const CALL: u64 = towpath_jit::CALL_COST as u64;
/// Bytes copied in the time of an instruction.
const BYTES: u64 = 8;
/// Slots of a map visited in the time of an instruction.
const ELEMENTS: u64 = 4;
/// Cost of a walk through routes, sockets or text.
const WALK: u64 = 500;
/// Largest size of an object.
const SIZE_MAX: u64 = u32::MAX as u64;
