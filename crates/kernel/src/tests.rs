use std::sync::Arc;

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::program::{AttachType, Function, MapType};

use super::*;

/// Runs `check` with the kernel, or prints why it is skipped.
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
        // r0 = the low 32 bits of r10: an address.
        let leak =
            linked(vec![Insn::new(0xbc, 0, 10, 0, 0), Insn::new(0x95, 0, 0, 0, 0)], Vec::new());
        assert!(kernel.load(&leak, &maps).is_ok());
        let options = LoadOptions { without_perfmon: true, ..LoadOptions::default() };
        assert!(kernel.load_with(&leak, &maps, &options).is_err());
        assert!(kernel.load(&leak, &maps).is_ok(), "the capability is back");
    });
}

#[test]
fn a_program_behind_poison_finds_it_on_its_stack() {
    with_kernel(|kernel| {
        let defs = vec![MapDef::new("stack", MapType::Array, 4, 1024, 1)];
        let maps = kernel.load_maps(&defs).expect("an array map");
        let mut reader = linked(stack_reader(), defs);
        reader.functions.push(Function {
            start: CALLEE,
            name: "callee".into(),
            linkage: Linkage::Static,
            type_id: None,
        });
        let program = kernel.load(&reader, &maps).expect("accepted");
        for seed in 1..4u64 {
            let mut words = (0..).map(|index: u64| index << 32 | seed << 8 | 0x5a);
            let poisoned = kernel.poisoned(&program, &reader, || words.next().expect("endless"));
            let result = poisoned.expect("a tail call").test_run(&TestRun::new(&[7; 64]));
            assert_eq!(result.expect("runs").retval, 2);
            let stack = maps.maps()[0].lookup(&0u32.to_le_bytes()).expect("it is there");
            let found = stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let wanted = (0..OWN_WORDS as u64).map(|index| index << 32 | seed << 8 | 0x5a);
            assert!(found.clone().take(OWN_WORDS).eq(wanted), "its own");
            // A callee's stack lies below return address and saved registers.
            let callees: Vec<u64> = found.skip(OWN_WORDS).take(CALLEE_WORDS).collect();
            let is_poison = |word: &&u64| **word as u32 == (seed << 8 | 0x5a) as u32;
            let poisoned = callees.iter().filter(is_poison).count();
            assert!(poisoned > CALLEE_WORDS / 2, "a callee's: {callees:x?}");
        }
    });
}

/// A program that stores the contents of its stack, and of the stack of a function that it calls.
fn stack_reader() -> Vec<Insn> {
    let copy = |from: usize, count: usize| {
        (0..count).flat_map(move |index| {
            [
                Insn::new(0x79, 2, 10, -8 * (index as i16 + 1), 0), // r2 = *(u64 *)(r10 - ...)
                Insn::new(0x7b, 6, 2, 8 * (from + index) as i16, 0), // *(u64 *)(r6 + ...) = r2
            ]
        })
    };
    let value = [Insn::new(0x18, 6, 2, 0, 0), Insn::new(0, 0, 0, 0, 0)]; // r6 = &stack[0]
    let mut insns = value.to_vec();
    insns.extend(copy(0, OWN_WORDS));
    insns.extend([
        Insn::new(0x85, 0, 1, 0, 2), // callee()
        Insn::new(0xb7, 0, 0, 0, 2), // r0 = XDP_PASS
        Insn::new(0x95, 0, 0, 0, 0), // exit
    ]);
    assert_eq!(insns.len(), CALLEE as usize);
    insns.extend(value);
    insns.extend(copy(OWN_WORDS, CALLEE_WORDS));
    insns.extend([Insn::new(0xb7, 0, 0, 0, 0), Insn::new(0x95, 0, 0, 0, 0)]);
    insns
}

const OWN_WORDS: usize = 32;
const CALLEE_WORDS: usize = 24;
/// First slot of the callee.
const CALLEE: u32 = 2 + 2 * OWN_WORDS as u32 + 3;
