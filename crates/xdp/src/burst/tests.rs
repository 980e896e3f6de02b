//! Tests that a burst does to each frame what a separate run would have done.

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_maps::Value;

use crate::program::testing::{linked, map_def};
use crate::{Burst, Exec, Frame, LoadOptions, Program, RedirectTarget};

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn::new(code, dst, src, off, imm)
}

/// By the packet's first byte: 1 is redirected to interface 5, 2 calls redirect but passes, 3 gets
/// 4 bytes in front and is sent back by `XDP_TX`, anything else is dropped.
fn program(exec: Exec) -> Program {
    let (mov, call, jne) = (BPF_ALU64 | BPF_MOV, BPF_JMP | BPF_CALL, BPF_JMP | BPF_JNE);
    let exit = insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    let redirect =
        [insn(mov, 1, 0, 0, 5), insn(mov, 2, 0, 0, 0), insn(call, 0, 0, 0, id::REDIRECT as i32)];
    let mut insns = vec![
        insn(mov | BPF_X, 6, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0),
        insn(mov | BPF_X, 4, 2, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 4, 0, 0, 14),
        insn(mov, 0, 0, 0, 1),
        insn(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 1, 0),
        insn(BPF_LDX | BPF_MEM | BPF_B, 0, 2, 0, 0),
        insn(jne, 0, 0, 4, 1),
    ];
    insns.extend(redirect);
    insns.push(exit);
    insns.push(insn(jne, 0, 0, 5, 2));
    insns.extend(redirect);
    insns.extend([insn(mov, 0, 0, 0, 2), exit, insn(jne, 0, 0, 5, 3)]);
    insns.extend([
        insn(mov | BPF_X, 1, 6, 0, 0),
        insn(mov, 2, 0, 0, -4),
        insn(call, 0, 0, 0, id::XDP_ADJUST_HEAD as i32),
        insn(mov, 0, 0, 0, 3),
        exit,
        insn(mov, 0, 0, 0, 1),
        exit,
    ]);
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    options.jit.cache = towpath_jit::CodeCache::Off;
    let program = Program::from_linked(linked(&insns, &[]), &options).unwrap();
    program.wait_for_tier2(Duration::from_secs(60));
    let status = program.exec_status();
    assert!(program.exec() == exec || exec == Exec::Llvm && status.fallback.is_some());
    program
}

fn frames() -> Vec<Frame> {
    let packet = |first: u8| Frame::new(&[first; 60]).unwrap();
    [0, 1, 2, 3, 9, 3, 1, 1].map(packet).into()
}

#[test]
fn frames_of_a_burst_are_judged_as_if_alone() {
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        let program = program(exec);
        let (mut worker, mut burst) = (program.worker(0), Burst::default());
        let (mut together, mut alone) = (frames(), frames());
        // The second time all buffers are reused.
        for _ in 0..2 {
            program.run_burst(&mut worker, &mut together, &mut burst).unwrap();
            assert_eq!((burst.len(), burst.faults().len()), (8, 0));
            for (index, frame) in alone.iter_mut().enumerate() {
                let verdict = program.run(&mut worker, frame).unwrap();
                assert_eq!(burst.returned(index), verdict.returned, "{exec:?} frame {index}");
                assert_eq!(
                    format!("{:?}", burst.target(index)),
                    format!("{:?}", verdict.target),
                    "{exec:?} frame {index}"
                );
                assert_eq!(together[index].to_vec(), frame.to_vec(), "{exec:?} frame {index}");
            }
            let wanted: Vec<bool> = (0..8).map(|i| burst.target(i).is_some()).collect();
            assert_eq!(wanted, [false, true, false, false, false, false, true, true]);
            assert!(matches!(burst.target(6), Some(RedirectTarget::Interface { ifindex: 5 })));
            (together, alone) = (frames(), frames());
        }
    }
}

#[test]
fn a_burst_may_be_empty() {
    let program = program(Exec::Jit);
    let mut burst = Burst::default();
    program.run_burst(&mut program.worker(0), &mut [], &mut burst).unwrap();
    assert!(burst.is_empty());
}

/// Returns the first word of what a hash table holds for the packet's first word, else 1. Counts
/// the packet before, in an array.
fn lookup_program(exec: Exec) -> Program {
    let (mov, call) = (BPF_ALU64 | BPF_MOV, BPF_JMP | BPF_CALL);
    let map = |dst, index| {
        [insn(BPF_LD | BPF_IMM | BPF_DW, dst, PSEUDO_MAP_FD, 0, index), Insn::default()]
    };
    let [map_low, map_high] = map(1, 0);
    let insns = [
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0),
        insn(mov | BPF_X, 4, 2, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 4, 0, 0, 14),
        insn(mov, 0, 0, 0, 1),
        insn(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 9, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 5, 2, 0, 0),
        insn(BPF_STX | BPF_MEM | BPF_W, 10, 5, -4, 0),
        insn(mov | BPF_X, 2, 10, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 2, 0, 0, -4),
        map_low,
        map_high,
        insn(call, 0, 0, 0, id::MAP_LOOKUP_ELEM as i32),
        insn(BPF_JMP | BPF_JEQ, 0, 0, 2, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 0, 0, 0, 0),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        insn(mov, 0, 0, 0, 1),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    let options = LoadOptions { exec, ..LoadOptions::default() };
    let maps = [map_def(MapType::Hash, 4, 16, 80_000)];
    Program::from_linked(linked(&insns, &maps), &options).unwrap()
}

#[test]
fn looking_ahead_in_a_large_table_changes_nothing() {
    let program = lookup_program(Exec::Jit);
    assert!(!program.looks_ahead(), "nothing to look ahead for in an empty table");
    let table = program.maps().map(0).unwrap().user();
    for number in 0..70_000_u32 {
        let mut value = [0; 16];
        value[..4].copy_from_slice(&(number % 3).to_le_bytes());
        table.update(&number.to_le_bytes(), &Value::from(&value[..]), 0).unwrap();
    }
    assert!(program.looks_ahead());
    let packets = (0..64_u32).map(|i| i * 1_999).map(|number| {
        let mut packet = [0; 60];
        packet[..4].copy_from_slice(&number.to_le_bytes());
        (number, Frame::new(&packet).unwrap())
    });
    let (numbers, mut frames): (Vec<u32>, Vec<Frame>) = packets.unzip();
    let mut burst = Burst::default();
    program.run_burst(&mut program.worker(0), &mut frames, &mut burst).unwrap();
    for (index, number) in numbers.into_iter().enumerate() {
        let wanted = if number < 70_000 { number % 3 } else { 1 };
        assert_eq!(burst.returned(index), wanted, "key {number}");
    }
}

/// Calls `bpf_redirect(5)`, then `bpf_redirect_map` with the packet's first byte as key and these
/// flags.
fn map_redirect_program(exec: Exec, flags: i32) -> Program {
    let (mov, call) = (BPF_ALU64 | BPF_MOV, BPF_JMP | BPF_CALL);
    let insns = [
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0),
        insn(mov | BPF_X, 4, 2, 0, 0),
        insn(BPF_ALU64 | BPF_ADD, 4, 0, 0, 14),
        insn(mov, 0, 0, 0, 1),
        insn(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 9, 0),
        insn(BPF_LDX | BPF_MEM | BPF_B, 6, 2, 0, 0),
        insn(mov, 1, 0, 0, 5),
        insn(mov, 2, 0, 0, 0),
        insn(call, 0, 0, 0, id::REDIRECT as i32),
        insn(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        insn(mov | BPF_X, 2, 6, 0, 0),
        insn(mov, 3, 0, 0, flags),
        insn(call, 0, 0, 0, id::REDIRECT_MAP as i32),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    options.jit.cache = towpath_jit::CodeCache::Off;
    let program =
        Program::from_linked(linked(&insns, &[map_def(MapType::Devmap, 4, 4, 4)]), &options);
    let program = program.unwrap();
    program.wait_for_tier2(Duration::from_secs(60));
    let status = program.exec_status();
    assert!(program.exec() == exec || exec == Exec::Llvm && status.fallback.is_some());
    let entry = Value::from(&7_u32.to_ne_bytes()[..]);
    program.maps().map(0).unwrap().user().update(&1_u32.to_ne_bytes(), &entry, 0).unwrap();
    program
}

#[test]
fn a_map_without_the_entry_forgets_the_redirect_before() {
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        // A miss passes.
        let program = map_redirect_program(exec, 2);
        let mut frames: Vec<Frame> =
            [1, 2, 4, 255, 1].map(|first: u8| Frame::new(&[first; 60]).unwrap()).into();
        let mut burst = Burst::default();
        for _ in 0..2 {
            program.run_burst(&mut program.worker(0), &mut frames, &mut burst).unwrap();
            let returned: Vec<u32> = (0..5).map(|index| burst.returned(index)).collect();
            assert_eq!(returned, [4, 2, 2, 2, 4], "{exec:?}");
            for hit in [0, 4] {
                let target = burst.target(hit);
                let Some(RedirectTarget::Entry { map, key: 1, entry }) = target else {
                    panic!("{exec:?}: {target:?}")
                };
                assert!(Arc::ptr_eq(&map, program.maps().map(0).unwrap()));
                assert_eq!((entry.number, entry.id), (7, 0));
            }
            assert!((1..4).all(|miss| burst.last_redirect(miss).is_none()), "{exec:?}");
        }
    }
}

#[test]
fn a_broadcast_is_to_the_whole_map() {
    const BROADCAST: i32 = 1 << 3;
    const EXCLUDE_INGRESS: i32 = 1 << 4;
    for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
        for (flags, excludes) in [(BROADCAST, false), (BROADCAST | EXCLUDE_INGRESS | 1, true)] {
            let program = map_redirect_program(exec, flags);
            let mut frames: Vec<Frame> =
                [1, 200].map(|first: u8| Frame::new(&[first; 60]).unwrap()).into();
            let mut burst = Burst::default();
            program.run_burst(&mut program.worker(0), &mut frames, &mut burst).unwrap();
            for index in 0..2 {
                assert_eq!(burst.returned(index), 4, "{exec:?}");
                let target = burst.target(index);
                let Some(RedirectTarget::Broadcast { map, exclude_ingress }) = target else {
                    panic!("{exec:?}: {target:?}")
                };
                assert!(Arc::ptr_eq(&map, program.maps().map(0).unwrap()));
                assert_eq!(exclude_ingress, excludes, "{exec:?}");
            }
        }
    }
}
