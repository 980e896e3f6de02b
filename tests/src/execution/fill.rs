//! The same elements for the maps of both sides.

use towpath_bpf::Errno;
use towpath_kernel::KernelMap;
use towpath_maps::{Map, Value};
use towpath_workload::elements;

use super::Mismatch;
use crate::random::Random;

/// Fills one map on both sides; both must answer each update alike.
pub(super) fn fill(
    theirs: &KernelMap,
    ours: &Map,
    packets: &[Vec<u8>],
    random: &mut Random,
) -> Option<Mismatch> {
    for (key, value) in elements(ours.def(), packets, random) {
        let theirs_said = theirs.update(&key, &value, 0);
        let ours_said = ours.user().update(&key, &Value::One(value), 0);
        if theirs_said != ours_said {
            let text = |said: Result<(), Errno>| format!("update of {key:02x?}: {said:?}");
            return Some(Mismatch {
                kind: format!("map {}", ours.name()),
                packet: 0,
                kernel: text(theirs_said),
                ours: text(ours_said),
            });
        }
    }
    None
}
