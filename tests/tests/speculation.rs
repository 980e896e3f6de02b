//! Machine code of guests' programs is masked against speculation: the code itself is looked at.

use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::btf::Btf;
use towpath_tests::masks::{barriers, is_known, unmasked};
use towpath_tests::programs::gadgets::{self, Gadget};
use towpath_tests::tables::functions;
use towpath_xdp::{Exec, Frame, LoadError, LoadOptions, Program, Trust};

fn linked(gadget: &Gadget) -> Linked {
    let kernel = Arc::new(Btf::default());
    let mut linked = Linked::of_insns("gadget", gadget.insns.clone(), gadgets::maps(), &kernel);
    linked.functions = functions(&gadget.insns, &[]);
    linked
}

fn load(gadget: &Gadget, exec: Exec, trust: Trust, masked: bool) -> Program {
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    (options.jit.trust, options.jit.mask_speculation) = (trust, masked);
    let program = Program::from_linked(linked(gadget), &options);
    let program = program.unwrap_or_else(|error| panic!("{:?}: {error}", gadget.parts));
    assert_eq!(program.exec(), exec, "{:?}: {:?}", gadget.parts, program.exec_status());
    program
}

/// Each gadget is found in code without masks, and in none with them.
#[test]
fn no_gadget_is_left_in_masked_code() {
    if !is_known() {
        println!("skipped: the walk knows the instructions of x86-64");
        return;
    }
    let all = gadgets::all();
    assert!(all.len() > 500, "{} gadgets", all.len());
    for gadget in &all {
        for trust in [Trust::Verified, Trust::Guest] {
            let open = load(gadget, Exec::Jit, trust, false);
            let open = open.machine_code().expect("compiled");
            assert!(!unmasked(open).is_empty(), "{:?}, {trust:?}: no gadget", gadget.parts);
            assert_eq!(barriers(open), 0);

            let masked = load(gadget, Exec::Jit, trust, true);
            let found = unmasked(masked.machine_code().expect("compiled"));
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert!(found.is_empty(), "{:?}, {trust:?}: {found:#?}", gadget.parts);
        }
    }
}

/// Masks change nothing of what a program does.
#[test]
fn masked_gadgets_do_what_they_did() {
    for gadget in gadgets::all() {
        let ways = [
            load(&gadget, Exec::Interp, Trust::Verified, false),
            load(&gadget, Exec::Jit, Trust::Verified, true),
            load(&gadget, Exec::Jit, Trust::Guest, true),
        ];
        for number in [0u32, 5, 47, 48, 63, 4095, 0x8000_0000, u32::MAX] {
            let mut packet = [7; 64];
            packet[..8].copy_from_slice(&[number.to_le_bytes(); 2].concat());
            let outcome = |program: &Program| {
                let mut frame = Frame::new(&packet).expect("a packet");
                let verdict = program.run(&mut program.worker(0), &mut frame).expect("no fault");
                (verdict.returned, frame.to_vec())
            };
            let [wanted, rest @ ..] = &ways;
            for way in rest {
                assert_eq!(outcome(way), outcome(wanted), "{:?}, {number}", gadget.parts);
            }
        }
    }
}

/// LLVM's code is not masked: a program for it gets the first tier's code, with a message.
#[test]
fn tier_2_has_no_masked_code() {
    let all = gadgets::all();
    let gadget = all.first().expect("there are some");
    let mut options = LoadOptions { exec: Exec::Llvm, ..LoadOptions::default() };
    options.jit.mask_speculation = true;
    let program = Program::from_linked(linked(gadget), &options).expect("tier 1 has it");
    program.wait_for_tier2(std::time::Duration::from_secs(60));
    assert_eq!(program.exec(), Exec::Jit);
    let status = format!("{:?}", program.exec_status());
    assert!(status.contains("masked against speculation has tier 1 only"), "{status}");
    assert!(!is_known() || barriers(program.machine_code().expect("compiled")) > 0);
}

/// A program without machine code is not interpreted instead: the interpreter masks nothing.
#[test]
fn without_masked_code_a_program_is_refused() {
    let all = gadgets::all();
    let gadget = all.first().expect("there are some");
    let mut options = LoadOptions { exec: Exec::Jit, ..LoadOptions::default() };
    options.jit.code_bytes_max = 0;
    let open = Program::from_linked(linked(gadget), &options).expect("it is interpreted");
    assert_eq!(open.exec(), Exec::Interp);
    options.jit.mask_speculation = true;
    let refused = Program::from_linked(linked(gadget), &options).map(|_program| ());
    assert!(matches!(refused, Err(LoadError::Unmasked { .. })), "{refused:?}");
}
