//! Tests of programs with a deliberately wrong proof, whose faults must not end the process.
//!
//! As for guests, a test pass simulates the verifier's mistake. Here no code checks accesses, so
//! that the machine must detect the fault.

use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::insn::*;
use towpath_bpf::interp::Violation;
use towpath_bpf::program::MapType;
use towpath_bpf::proto::id;
use towpath_bpf::verifier::{Options, verify};
use towpath_jit::CodeCache;
use towpath_jit::passes::Pass;
use towpath_jit::xir::{Alias, Function, Op, Type};
use towpath_maps::{AnyEnvironment, Map};

use super::tests::with_packet;
use crate::program::Shared;
use crate::program::testing::{linked, load_over, map_def};
use crate::{Burst, Exec, Frame, LoadOptions, Program};

/// An address in the second page, which the system never maps (`vm.mmap_min_addr`): whatever other
/// threads map, an access there faults. Not null, because LLVM treats accesses to null as
/// unreachable.
const NOWHERE: u64 = 0x1000;

const PACKET: Pass = Pass::new("packet", "loses the packet's address", |function, _| {
    lose_address(function, |alias| alias == Alias::Packet);
});
const VALUES: Pass = Pass::new("values", "loses addresses of map values", |function, _| {
    lose_address(function, |alias| matches!(alias, Alias::Map(_) | Alias::Other | Alias::Packet));
});

fn lose_address(function: &mut Function, wanted: impl Fn(Alias) -> bool) {
    let nowhere = function.push(Function::ENTRY, 0, Type::I64, Op::Const(NOWHERE));
    function.block_mut(Function::ENTRY).insts.rotate_right(1);
    for inst in &mut function.insts {
        match &mut inst.op {
            Op::Load { place, .. } | Op::Store { place, .. } | Op::AtomicRmw { place, .. }
                if wanted(place.alias) =>
            {
                place.base = nowhere;
            }
            _ => {}
        }
    }
}

fn tiers() -> &'static [Exec] {
    let has_tier2 = towpath_jit::llvm_library().is_ok();
    if has_tier2 { &[Exec::Jit, Exec::Llvm] } else { &[Exec::Jit] }
}

fn program(insns: &[Insn], maps: &[MapDef], mistakes: &[Pass], exec: Exec) -> Program {
    let mut options = LoadOptions { exec, ..LoadOptions::default() };
    options.jit.passes.more.extend_from_slice(mistakes);
    options.jit.cache = CodeCache::Off;
    let program = Program::from_linked(linked(insns, maps), &options).expect("a correct one");
    program.wait_for_tier2(Duration::from_secs(60));
    assert_eq!(program.exec(), exec);
    program
}

/// A store at slot 8 that only frames of at least 30 bytes reach; they return 2, shorter ones 1.
fn store() -> Vec<Insn> {
    let mut insns = with_packet(&[Insn::new(BPF_ST | BPF_MEM | BPF_W, 2, 0, 8, 7)]);
    insns[4] = Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, 30);
    insns
}

fn frames(lens: &[usize]) -> Vec<Frame> {
    lens.iter().map(|&len| Frame::new(&vec![0; len]).expect("a frame")).collect()
}

fn run(program: &Program, lens: &[usize]) -> (Vec<u32>, Burst) {
    let (mut frames, mut burst) = (frames(lens), Burst::default());
    program.run_burst(&mut program.worker(0), &mut frames, &mut burst).expect("no timers");
    ((0..lens.len()).map(|frame| burst.returned(frame)).collect(), burst)
}

#[test]
fn a_fault_aborts_its_frame_and_the_others_go_on() {
    for &exec in tiers() {
        let program = program(&store(), &[], &[PACKET], exec);
        assert_eq!(run(&program, &[20, 20]).0, [1, 1]);
        assert!(program.stopped().is_none());

        let (returned, burst) = run(&program, &[20, 20, 60, 20, 60]);
        assert_eq!(returned, [1, 1, 0, 1, 2], "{exec:?}");
        let [(2, fault)] = burst.faults() else { panic!("{:?}", burst.faults()) };
        assert_eq!((&*fault.program, fault.insn), ("test", 8), "{exec:?}");
        assert!(
            matches!(fault.violation, Violation::Machine { signal: "SIGSEGV", addr } if addr != 0),
            "{fault}"
        );

        // The interpreter runs it from now on, correctly.
        assert_eq!(program.stopped(), Some(fault));
        assert_eq!(program.exec(), Exec::Interp);
        let why = program.exec_status().fallback.unwrap_or_default();
        assert!(why.starts_with("stopped: program test, instruction 8"), "{why}");
        assert_eq!(run(&program.clone(), &[60, 20]).0, [2, 1]);
    }
}

#[test]
fn a_fault_in_a_callback_leaves_the_helper_too() {
    let load_map = [Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), Insn::default()];
    let insns = [
        load_map[0],
        load_map[1],
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 6),
        Insn::default(),
        Insn::new(BPF_ALU64 | BPF_MOV, 3, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV, 4, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::FOR_EACH_MAP_ELEM as i32),
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 2),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        // The callback: ++*value; return 0.
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 1, 3, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 1, 0, 0, 1),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 3, 1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    for &exec in tiers() {
        let program = program(&insns, &[map_def(MapType::Array, 4, 8, 3)], &[VALUES], exec);
        let (returned, burst) = run(&program, &[60, 60]);
        assert_eq!(returned, [0, 2], "{exec:?}: {:?}", burst.faults());
        // The load, or the store: one machine instruction does both.
        let insn = program.stopped().map_or(0, |fault| fault.insn);
        assert!((9..=11).contains(&insn), "{exec:?}: {insn}");
        let values: Vec<_> = program.maps().maps()[0].user().entries().collect();
        assert_eq!(values.len(), 3, "the second frame's callbacks ran");
    }
}

#[test]
fn records_are_given_back() {
    let insns = with_packet(&[
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 7, 2, 0, 0),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        Insn::new(BPF_ALU64 | BPF_MOV, 2, 0, 0, 8),
        Insn::new(BPF_ALU64 | BPF_MOV, 3, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::RINGBUF_RESERVE as i32),
        Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 5, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_W, 7, 0, 8, 7),
        Insn::new(BPF_ST | BPF_MEM | BPF_DW, 0, 0, 0, 5),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV, 2, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::RINGBUF_SUBMIT as i32),
    ]);
    for &exec in tiers() {
        let program = program(&insns, &[map_def(MapType::Ringbuf, 0, 0, 4096)], &[PACKET], exec);
        let (returned, _) = run(&program, &[60, 60]);
        assert_eq!(returned, [0, 2]);
        // A record that is never released would hide the second one.
        let ring = program.maps().maps()[0].ringbuf().expect("a ring");
        assert_eq!(ring.consume(|_| ControlFlow::Continue(())), 1, "{exec:?}");
    }
}

/// A program array whose slot 0 leads to [`store`], compiled with the wrong packet address.
struct World {
    shared: Shared,
    array: Arc<Map>,
    exec: Exec,
    called: Program,
}

impl World {
    fn new(exec: Exec) -> World {
        let mut options = LoadOptions { exec, ..LoadOptions::default() };
        options.jit.passes.more.push(PACKET);
        options.jit.cache = CodeCache::Off;
        let shared = Shared::new(&options);
        let def = map_def(MapType::ProgArray, 4, 4, 1);
        let array = shared.create_map(&def, &Btf::default(), Arc::new(AnyEnvironment));
        let array = array.expect("a program array");
        let called = load(&shared, &array, exec, &store());
        array.set_program(0, called.id()).expect("slot 0");
        World { shared, array, exec, called }
    }

    /// A program that tail-calls slot 0.
    fn caller(&self) -> Program {
        load(&self.shared, &self.array, self.exec, &tail_call())
    }

    /// A program whose function tail-calls slot 0, and which adds 4 to the result.
    fn caller_of_function(&self) -> Program {
        let mut insns = vec![
            Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 2),
            Insn::new(BPF_ALU64 | BPF_ADD, 0, 0, 0, 4),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ];
        insns.extend(tail_call());
        load(&self.shared, &self.array, self.exec, &insns)
    }
}

fn load(shared: &Shared, array: &Arc<Map>, exec: Exec, insns: &[Insn]) -> Program {
    let linked = linked(insns, &[array.def().clone()]);
    let verified = verify(linked, &Options::default()).expect("a correct one");
    let program = load_over(shared, verified, vec![Arc::clone(array)], exec);
    program.wait_for_tier2(Duration::from_secs(60));
    program
}

fn tail_call() -> [Insn; 6] {
    [
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        Insn::new(BPF_ALU64 | BPF_MOV, 3, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::TAIL_CALL as i32),
        Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 9),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]
}

#[test]
fn the_program_that_did_it_is_stopped_and_not_its_caller() {
    for &exec in tiers() {
        for (by_function, added) in [(false, 0), (true, 4)] {
            let world = World::new(exec);
            let caller = if by_function { world.caller_of_function() } else { world.caller() };
            let (returned, burst) = run(&caller, &[20, 60, 60, 20]);
            assert_eq!(returned, [1 + added, 0, 2 + added, 1 + added], "{exec:?}");
            let [(1, fault)] = burst.faults() else { panic!("{:?}", burst.faults()) };
            assert_eq!(fault.insn, 8);
            assert_eq!(world.called.stopped(), Some(fault));
            // The caller remains machine code, and enters the interpreter for its target.
            assert_eq!((caller.stopped(), caller.exec()), (None, exec));
            let (returned, burst) = run(&caller, &[60, 20]);
            assert_eq!(returned, [2 + added, 1 + added], "{exec:?}: {:?}", burst.faults());
        }
    }
}

#[test]
fn tail_calls_lead_to_the_interpreted_form_of_a_stopped_program() {
    for &exec in tiers() {
        let world = World::new(exec);
        assert_eq!(run(&world.called, &[60]).0, [0]);
        assert!(world.called.stopped().is_some());
        for caller in [world.caller(), world.caller_of_function()] {
            let (returned, burst) = run(&caller, &[60, 20]);
            assert_eq!(returned[0] - returned[1], 1, "{exec:?}: {:?}", burst.faults());
            assert!(burst.faults().is_empty() && caller.stopped().is_none());
        }
    }
}

#[test]
fn threads_fault_each_for_itself() {
    for &exec in tiers() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        let program = program(&store(), &[], &[PACKET], exec);
                        assert_eq!(run(&program, &[60, 20, 60]).0, [0, 1, 2]);
                    }
                });
            }
        });
    }
}

#[test]
fn what_others_do_wrong_is_not_hidden() {
    const CHILD: &str = "TOWPATH_TEST_FAULT";
    let name = "compiled::fault_tests::what_others_do_wrong_is_not_hidden";
    if std::env::var_os(CHILD).is_some() {
        // The fault handler is installed; Rust's guard must still detect a stack overflow.
        let program = program(&store(), &[], &[PACKET], Exec::Jit);
        assert_eq!(run(&program, &[60]).0, [0]);
        assert_ne!(endless(1), 0);
    }
    let exe = std::env::current_exe().expect("this test");
    let output = Command::new(exe).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
    let output = output.expect("a child");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("overflowed its stack"), "{told}");
    assert!(!output.status.success());
}

/// Recurses without end.
fn endless(depth: u64) -> u64 {
    let space = std::hint::black_box([depth; 512]);
    if space[3] == 0 { 0 } else { endless(depth + 1) + space[7] }
}
