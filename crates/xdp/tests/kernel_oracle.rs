//! Every recorded case of the kernel's XDP helpers gives the same answer here.
//!
//! `tests/data/kernel-oracle` holds a program that calls one helper as a map tells it, and what
//! Linux 6.18 answered to 94 combinations of arguments and frames.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::{Env, Object};
use towpath_maps::Value;
use towpath_xdp::host::{Host, Live};
use towpath_xdp::{Exec, Frame, LoadOptions, Program, Select};

const OBJECT: &[u8] = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
const EXPECTED: &str = include_str!("../../../tests/data/kernel-oracle/expected-6.18.txt");
/// The recording's output buffer: a longer packet made the kernel return -ENOSPC.
const OUT_BYTES: usize = 70_000;

#[test]
fn recorded_answers_are_reproduced() {
    reproduce(Exec::Interp);
}

#[test]
fn recorded_answers_are_reproduced_by_tier_1() {
    reproduce(Exec::Jit);
}

#[test]
fn recorded_answers_are_reproduced_by_tier_2() {
    if let Err(why) = towpath_jit::llvm_library() {
        eprintln!("skipped: {why}");
        return;
    }
    reproduce(Exec::Llvm);
}

fn reproduce(exec: Exec) {
    let object = Object::open(OBJECT, "xdp_helpers.bpf.o").unwrap();
    let host = Arc::new(Live::new(Host::with_loopback()));
    let options = LoadOptions { host, exec, ..LoadOptions::default() };
    let program = Program::load(&object, Select::Name("prog"), &Env::builtin(), &options).unwrap();
    program.wait_for_tier2(Duration::from_secs(120));
    assert_eq!(program.exec(), exec, "{:?}", program.exec_status());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for line in EXPECTED.lines().filter(|line| !line.starts_with('#')) {
        let (case, expected) = line.split_once("-> ").unwrap();
        let numbers: Vec<i32> =
            case.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let got = answer(&program, &numbers);
        count += 1;
        if got != expected {
            wrong.push(format!("{case}\n  kernel {expected}\n  here   {got}"));
        }
    }
    assert_eq!(count, 94, "cases");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs one case and prints what the recording printed.
fn answer(program: &Program, case: &[i32]) -> String {
    let &[op, a, b, flags, len, metadata] = case else { panic!("six numbers") };
    let maps = program.maps();
    let config: Vec<u8> = [op, a, b, flags].iter().flat_map(|n| n.to_le_bytes()).collect();
    let zero = 0u32.to_le_bytes();
    let results = maps.by_name("resm").unwrap();
    maps.by_name("cfgm").unwrap().user().update(&zero, &Value::One(config), 0).unwrap();
    results.user().update(&zero, &Value::One(vec![0; 48]), 0).unwrap();

    let packet: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
    let Ok(mut frame) = Frame::with_metadata(&packet, metadata as usize) else {
        return "run=-22 ret=0 r=0 lin=0 total=0 meta=0 out=70000 pad=0 if=0".to_owned();
    };
    let verdict = program.run(&mut program.worker(0), &mut frame).unwrap();

    let out = frame.metadata_len() + frame.len();
    let status = if out > OUT_BYTES { -28 } else { 0 };
    let value = results.user().lookup(&zero, 0).unwrap();
    let word = |at: usize| {
        let bytes = value.bytes()[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(bytes)
    };
    let r = i64::from(word(0)) | i64::from(word(4)) << 32;
    let [linear, total, meta, mtu, ifindex] = [8, 12, 16, 20, 24].map(word);
    let returned = verdict.returned;
    format!(
        "run={status} ret={returned} r={r} lin={linear} total={total} meta={meta} out={out} \
         pad={mtu} if={ifindex}"
    )
}
