//! Tests of the registry: numbers, names and tables of types must agree.

use towpath_bpf::proto::{self, KfuncFlags};

use super::*;

#[test]
fn every_helper_here_is_one_that_programs_may_call() {
    for &(id, _) in TABLES.iter().flat_map(|table| table.iter()) {
        assert!(proto::helper(id).is_some(), "helper {id} ({:?})", proto::helper_name(id));
    }
    for (name, _) in kfuncs() {
        assert!(proto::kfunc(name).is_some(), "kfunc {name}");
    }
}

/// Compiled code reloads packet pointers only after helpers that declare a move.
#[test]
fn what_moves_the_packet_says_so() {
    for proto in proto::helpers() {
        if let Some(helper) = helper(proto.id) {
            assert_eq!(helper.moves, proto.changes_packet, "{}", proto.name);
        }
    }
    for &(name, kfunc) in kfuncs() {
        let proto = proto::kfunc(name).unwrap();
        assert_eq!(kfunc.moves, proto.flags.has(KfuncFlags::CHANGES_PACKET), "{name}");
    }
}

#[test]
fn kfuncs_are_found_by_the_number_of_their_name() {
    let number = kfunc_number("bpf_xdp_pull_data").unwrap();
    assert!(kfunc(number).is_some());
    assert_eq!(kfunc_number("bpf_no_such_thing"), None);
    assert!(kfunc(u32::MAX).is_none());
}

#[test]
fn whatever_the_verifier_lets_pass_can_be_called() {
    let helpers = proto::helpers().filter(|proto| proto.id != proto::id::TAIL_CALL);
    let missing: Vec<&str> =
        helpers.filter(|proto| helper(proto.id).is_none()).map(|proto| proto.name).collect();
    assert!(missing.is_empty(), "helpers without a function: {missing:?}");
    let missing: Vec<&str> = proto::kfuncs()
        .filter(|proto| kfunc_number(proto.name).is_none())
        .map(|proto| proto.name)
        .collect();
    assert!(missing.is_empty(), "kfuncs without a function: {missing:?}");
}
