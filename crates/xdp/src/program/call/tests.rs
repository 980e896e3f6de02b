//! Programs of a few instructions, called with contexts.

use towpath_bpf::Insn;
use towpath_bpf::program::{Linked, MapType};

use super::*;
use crate::LoadOptions;
use crate::program::testing::{linked, map_def};

/// Loads a program that users call.
fn loaded(insns: &[Insn]) -> Program {
    let maps = [map_def(MapType::Array, 4, 8, 1)];
    let linked = Linked { attach: AttachType::Syscall, ..linked(insns, &maps) };
    Program::from_linked(linked, &LoadOptions::default()).expect("it is safe")
}

/// Doubles the context's second word into the first, and returns 7.
fn doubles() -> Program {
    loaded(&[
        Insn::new(0x61, 2, 1, 4, 0),
        Insn::new(0x0f, 2, 2, 0, 0),
        Insn::new(0x63, 1, 2, 0, 0),
        Insn::new(0xb7, 0, 0, 0, 7),
        Insn::new(0x95, 0, 0, 0, 0),
    ])
}

#[test]
fn a_context_is_read_and_written() {
    let program = doubles();
    let mut worker = program.worker(0);
    for extra in [0, 1, 1000, CONTEXT_BYTES_MAX - 8] {
        let mut context = vec![9; 8 + extra];
        context[4..8].copy_from_slice(&21u32.to_ne_bytes());
        assert_eq!(program.call(&mut worker, &mut context).expect("it runs"), 7);
        assert_eq!(context[..4], 42u32.to_ne_bytes());
        assert!(context[8..].iter().all(|byte| *byte == 9), "the rest stays");
    }
}

#[test]
fn contexts_of_other_lengths_and_other_programs_are_refused() {
    let program = doubles();
    let mut worker = program.worker(0);
    for bytes in [0, 7, CONTEXT_BYTES_MAX + 1] {
        let refused = program.call(&mut worker, &mut vec![0; bytes]);
        let refused = refused.expect_err("not of that length");
        assert!(matches!(refused, CallError::Context { least: 8, given, .. } if given == bytes));
        assert_eq!(refused.errno(), Errno::EINVAL);
    }
    let returns = [Insn::new(0xb7, 0, 0, 0, 2), Insn::new(0x95, 0, 0, 0, 0)];
    let xdp = Program::from_linked(linked(&returns, &[]), &LoadOptions::default()).expect("safe");
    let refused = xdp.call(&mut worker, &mut []).expect_err("an XDP program");
    assert_eq!(refused.errno(), Errno::ENOTSUPP);
    assert_eq!(loaded(&returns).call(&mut worker, &mut []).expect("it reads nothing"), 2);
}

#[test]
fn it_is_interpreted_whatever_was_asked_for() {
    let maps = [map_def(MapType::Array, 4, 8, 1)];
    let returns = [Insn::new(0xb7, 0, 0, 0, 2), Insn::new(0x95, 0, 0, 0, 0)];
    let linked = Linked { attach: AttachType::Syscall, ..linked(&returns, &maps) };
    let options = LoadOptions { exec: crate::Exec::Jit, ..LoadOptions::default() };
    let program = Program::from_linked(linked, &options).expect("it is safe");
    let status = program.exec_status();
    assert_eq!(status.runs, crate::Exec::Interp);
    assert_eq!(status.fallback.as_deref(), Some("a program that users call is interpreted"));
}
