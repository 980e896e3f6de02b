//! Settings that an object leaves to its loader besides sizes of maps: constants, program arrays
//! and maps that another program fills. A program without them is refused, or does next to nothing;
//! the report names the reason, and the option that helps.

use towpath_bpf::map::Values;
use towpath_bpf::{Linked, Object};

/// Hint at constants that are 0, for a program that is refused.
pub(crate) fn constants(object: &Object) -> Option<String> {
    let names: Vec<&str> = object.unset_constants().filter(|name| is_meant(name)).collect();
    if names.is_empty() {
        return None;
    }
    let shown = names[..names.len().min(NAMES_MAX)].join(", ");
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    Some(format!(
        "these constants are 0, and may be what its loader sets: {shown}{more}; try --set \
         NAME=VALUE"
    ))
}

/// Empty program arrays, and empty maps that others fill, for a program that does little.
pub(crate) fn contents(linked: &Linked) -> Vec<String> {
    let maps = linked.maps.iter().filter(|map| map.section.is_none());
    maps.filter_map(|map| {
        let name = &map.name;
        if map.kind.values() == Values::Program && map.slots.is_empty() {
            Some(format!(
                "the jump table {name} is empty: fill it with --map-init, \
                 {{\"{name}\": [{{\"key\": 0, \"value\": \"PROGRAM\"}}]}}"
            ))
        } else if map.pin_by_name {
            Some(format!(
                "the map {name} is pinned (LIBBPF_PIN_BY_NAME) and another program's to fill: give \
                 it contents with --map-init"
            ))
        } else {
            None
        }
    })
    .collect()
}

/// Whether a name is a programmer's: names of the compiler's own constants are impossible in C.
fn is_meant(name: &str) -> bool {
    !name.contains('.') && !name.starts_with("__")
}

const NAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_bpf::program::{MapType, SlotInit};
    use towpath_workload::{plain_map, small};

    #[test]
    fn empty_jump_tables_and_pinned_maps_are_named() {
        let mut table = plain_map("jumps", MapType::ProgArray, (4, 4, 8));
        let mut filled = plain_map("filled", MapType::ProgArray, (4, 4, 8));
        filled.slots = vec![(0, SlotInit::Program("next".to_owned()))];
        let mut pinned = plain_map("limits", MapType::Hash, (4, 4, 8));
        pinned.pin_by_name = true;
        let maps = vec![table.clone(), filled, pinned, plain_map("own", MapType::Hash, (4, 4, 8))];
        let mut linked = small::returns(2);
        linked.maps = maps.into();
        let found = contents(&linked);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("jumps") && found[0].contains("--map-init"), "{found:?}");
        assert!(found[1].contains("limits") && found[1].contains("LIBBPF_PIN_BY_NAME"));
        table.section = Some(towpath_bpf::program::DataSection::Bss);
        linked.maps = vec![table].into();
        assert_eq!(contents(&linked), Vec::<String>::new());
    }
}
