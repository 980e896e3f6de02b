use std::collections::HashSet;

use super::*;

#[test]
fn every_helper_appears_once_with_its_kernel_name() {
    let mut seen = HashSet::new();
    for proto in helpers() {
        assert!(seen.insert(proto.id), "{} twice", proto.name);
        assert_eq!(helper_name(proto.id), Some(proto.name));
        assert!(proto.args.len() <= 5);
    }
    assert_eq!(helper_name(26), Some("bpf_skb_load_bytes"));
    assert!(helper(26).is_none(), "sk_buff helpers are not for XDP");
}

#[test]
fn every_size_argument_follows_memory() {
    for proto in helpers() {
        for (index, arg) in proto.args.iter().enumerate() {
            if matches!(arg.kind, ArgKind::ConstSize | ArgKind::ConstSizeOrZero) {
                let before = proto.args[index - 1];
                assert_eq!(before.kind, ArgKind::Mem, "{}", proto.name);
                assert!(!before.flags.has(Flags::FIXED), "{}", proto.name);
            }
        }
    }
    for proto in kfuncs() {
        for (index, param) in proto.params.iter().enumerate() {
            if matches!(param.kind, KArg::Size { .. }) {
                let before = proto.params[index - 1].kind;
                assert!(matches!(before, KArg::MemSize { .. }), "{}", proto.name);
            }
        }
    }
}

#[test]
fn helpers_that_write_packets_do_not_keep_them() {
    let writers = [id::XDP_STORE_BYTES, id::DYNPTR_WRITE, id::XDP_ADJUST_HEAD, id::XDP_ADJUST_TAIL];
    for writer in writers.into_iter().filter_map(helper) {
        assert!(!writer.keeps_packet, "{}", writer.name);
    }
    for proto in helpers().filter(|proto| proto.keeps_packet) {
        let runs_program = proto.args.iter().any(|arg| arg.kind == ArgKind::Func);
        assert!(!proto.changes_packet && !runs_program, "{}", proto.name);
    }
}

#[test]
fn kfunc_numbers_and_tables_agree() {
    let listed: Vec<KfuncId> = kfuncs().map(|proto| proto.id).collect();
    assert_eq!(listed, KfuncId::ALL, "one row for each number, in order");
    assert_eq!(kfunc("bpf_xdp_pull_data").map(|proto| proto.id), Some(KfuncId::XdpPullData));
}

#[test]
fn helpers_page_is_up_to_date() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/helpers.md");
    let page = markdown::page();
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        std::fs::write(path, &page)?;
    }
    let committed = std::fs::read_to_string(path)?;
    assert!(committed == page, "docs/helpers.md is out of date: run with TOWPATH_BLESS=1");
    Ok(())
}
