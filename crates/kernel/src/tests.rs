use std::sync::Arc;

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::program::{AttachType, Function, MapType};

use super::*;

/// Runs `check` with the kernel, or says why not.
fn with_kernel(check: impl FnOnce(&Kernel)) {
    match Kernel::open() {
        Ok(kernel) => check(&kernel),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

fn linked(insns: Vec<Insn>, maps: Vec<MapDef>) -> Linked {
    let entry =
        Function { start: 0, name: "probe".into(), linkage: Linkage::Global, type_id: None };
    Linked {
        name: "probe".into(),
        section: "xdp".into(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".into(),
        insns,
        functions: vec![entry],
        lines: Vec::new(),
        maps: maps.into(),
        unresolved: Vec::new(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::new(Btf::default()),
    }
}

fn array() -> MapDef {
    MapDef::new("counters", MapType::Array, 4, 16, 1)
}

#[test]
fn a_program_counts_in_a_map_and_shortens_the_packet() {
    with_kernel(|kernel| {
        let maps = kernel.load_maps(&[array()]).expect("an array map");
        let insns = vec![
            Insn::new(0xbf, 6, 1, 0, 0), // r6 = r1
            Insn::new(0x18, 1, 2, 0, 0), // r1 = &counters[0] + 8
            Insn::new(0, 0, 0, 0, 8),
            Insn::new(0xb7, 2, 0, 0, 5),  // r2 = 5
            Insn::new(0xdb, 1, 2, 0, 0),  // lock *(u64 *)r1 += r2
            Insn::new(0xbf, 1, 6, 0, 0),  // r1 = r6
            Insn::new(0xb7, 2, 0, 0, -4), // r2 = -4
            Insn::new(0x85, 0, 0, 0, 65), // bpf_xdp_adjust_tail
            Insn::new(0xb7, 0, 0, 0, 3),  // r0 = XDP_TX
            Insn::new(0x95, 0, 0, 0, 0),  // exit
        ];
        let program = kernel.load(&linked(insns, vec![array()]), &maps).expect("accepted");
        let result = program.test_run(&TestRun::new(&[7; 64])).expect("runs");
        assert_eq!((result.retval, result.data), (3, vec![7; 60]));
        assert_eq!(
            maps.maps()[0].lookup(&0u32.to_le_bytes()),
            Ok([[0; 8], [5, 0, 0, 0, 0, 0, 0, 0]].concat())
        );
        assert!(program.info().expect("info").verified_insns >= 9);
    });
}

#[test]
fn a_refusal_carries_the_log() {
    with_kernel(|kernel| {
        let maps = kernel.load_maps(&[]).expect("no maps");
        let insns = vec![Insn::new(0xbf, 0, 3, 0, 0), Insn::new(0x95, 0, 0, 0, 0)];
        let error = kernel.load(&linked(insns, Vec::new()), &maps).expect_err("r3 is not set");
        assert_eq!(error.errno(), Some(Errno::EACCES));
        assert!(error.log().contains("R3 !read_ok"), "{}", error.log());
    });
}

#[test]
fn sizes_that_do_not_fit_a_map_never_reach_the_kernel() {
    with_kernel(|kernel| {
        let maps = kernel.load_maps(&[array()]).expect("an array map");
        assert_eq!(maps.maps()[0].lookup(&[0; 3]), Err(Errno::EINVAL));
        assert_eq!(maps.maps()[0].update(&[0; 4], &[0; 4], 0), Err(Errno::EINVAL));
    });
}

#[test]
fn without_perfmon_addresses_do_not_leak() {
    with_kernel(|kernel| {
        let maps = kernel.load_maps(&[]).expect("no maps");
        // r0 = r10, 32 bits of it: an address.
        let leak =
            linked(vec![Insn::new(0xbc, 0, 10, 0, 0), Insn::new(0x95, 0, 0, 0, 0)], Vec::new());
        assert!(kernel.load(&leak, &maps).is_ok());
        let options = LoadOptions { without_perfmon: true, ..LoadOptions::default() };
        assert!(kernel.load_with(&leak, &maps, &options).is_err());
        assert!(kernel.load(&leak, &maps).is_ok(), "the capability is back");
    });
}
