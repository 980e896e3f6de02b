//! Cost of calls in instructions, for programs with limited time.
//!
//! Each row of the tables says how much its function does beside what every call takes: it copies
//! or compares what its arguments say, walks a map, or neither. It is charged before it is done.

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
        // Read out of the program's memory, and written into the map, or the other way round.
        ArgKind::MapValue => map.map_or(0, |map| 2 * u64::from(map.value_size())),
        ArgKind::ConstSize | ArgKind::ConstSizeOrZero | ArgKind::ConstAllocSizeOrZero => {
            u64::from(value as u32)
        }
        _ => 0,
    });
    bytes.sum::<u64>() / BYTES
}

/// Arguments of a kfunc that are sizes. Of one that works on a dynptr any number may be: the
/// largest that can be one is taken for it. Registers behind its parameters hold whatever they
/// hold.
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

/// The function goes through all of the map, whether there is anything or not. What it calls for
/// each element is charged there.
pub(super) fn by_elements(run: &Run<'_>, _callee: u32, args: &[u64; 5]) -> u64 {
    run.map_by_handle(args[0]).map_or(0, |map| u64::from(map.max_entries()) / ELEMENTS)
}

/// The function goes through routes, sockets or text, beside what its arguments say.
pub(super) fn of_a_walk(run: &Run<'_>, callee: u32, args: &[u64; 5]) -> u64 {
    WALK + by_arguments(run, callee, args)
}

fn map_among<'a>(run: &Run<'a>, kinds: &[proto::Arg], args: &[u64; 5]) -> Option<&'a Map> {
    let place = kinds.iter().position(|arg| arg.kind == ArgKind::ConstMapPtr)?;
    run.map_by_handle(*args.get(place)?)
}

/// Of a callee's number: it is a kfunc's.
pub(crate) const KFUNC: u32 = 1 << 31;
/// The cost of every call; the compiler charges it with the instructions around the call.
pub(crate) const CALL: u64 = towpath_jit::CALL_COST as u64;
/// Bytes that are copied in the time of an instruction.
const BYTES: u64 = 8;
/// Places of a map that are looked at in the time of an instruction.
const ELEMENTS: u64 = 4;
/// Routes, sockets, text.
const WALK: u64 = 500;
/// No object is larger.
const SIZE_MAX: u64 = u32::MAX as u64;
