//! Programs that users call, before another program of the object runs.

use crate::support::{Bench, frame};

/// FIPS-197's key.
const SETUP: &str = "setup=000102030405060708090a0b0c0d0e0fffffffff";

#[test]
fn a_program_is_called_before_the_first_packet() {
    let bench = Bench::new("called");
    bench.capture("in.pcap", &[0, 1, 2]);
    let arguments = ["run", "sealed.o", "-n", "seal", "--in", "in.pcap"];
    let without = bench.json(&arguments);
    assert_eq!(without["verdicts"]["XDP_DROP"], 3, "{without}");
    let with = bench.json(&[&arguments[..], &["--call", SETUP]].concat());
    assert_eq!(with["verdicts"]["XDP_TX"], 3, "{with}");

    // The bytes of a known answer behind the Ethernet header.
    let mut packet = frame(3);
    for (index, byte) in packet[14..46].iter_mut().enumerate() {
        *byte = (index % 16) as u8 * 0x11;
    }
    bench.file("data", packet);
    let files = ["--data-in", "data", "--data-out", "out", "--call", SETUP];
    let arguments = [&["prog", "run", "sealed.o", "-n", "seal"], &files[..]].concat();
    let answer = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.to_be_bytes();
    for exec in ["interp", "jit", "kernel"] {
        let ended = bench.run(&[&["--json"], &arguments[..], &["--exec", exec]].concat());
        if exec == "kernel" && ended.status != 0 {
            eprintln!("skipped: {}", ended.stdout);
            return;
        }
        assert_eq!(ended.status, 0, "{ended:?}");
        let sealed = std::fs::read(bench.path("out")).expect("it was written");
        assert_eq!(sealed[14..30], answer, "{exec}");
        assert_eq!(sealed[30..46], answer, "{exec}");
        assert_eq!(sealed[46..], packet[46..], "{exec}");
    }
}

#[test]
fn what_cannot_be_called_is_named() {
    let bench = Bench::new("not_called");
    bench.capture("in.pcap", &[0]);
    let run = |program, call| ["run", "sealed.o", "-n", program, "--in", "in.pcap", "--call", call];
    for (program, call, status, words) in [
        ("seal", "setup=00", 2, "setup takes a context of 20 to 65535 bytes, not of 1"),
        ("seal", "seal", 2, "its section has to be \"syscall\""),
        ("seal", "nothing", 1, "no program named nothing"),
        ("seal", "setup=0", 2, "expected PROG, or PROG=HEX"),
        ("setup", SETUP, 2, "a syscall program is given no frames"),
    ] {
        let message = bench.refusal(status, &run(program, call));
        assert!(message.contains(words), "{message}");
    }
    bench.file("context", [0; 20]);
    let arguments = ["prog", "run", "sealed.o", "-n", "setup", "--ctx-in", "context"];
    let called = bench.json(&[&arguments[..], &["--ctx-out", "left"]].concat());
    assert_eq!(called["retval"], 0, "{called}");
    assert_eq!(std::fs::read(bench.path("left")).expect("it was written"), [0; 20]);
    let message = bench.refusal(2, &["prog", "run", "sealed.o", "-n", "seal"]);
    assert!(message.contains("--data-in: the program needs a packet"), "{message}");

    let inspected = bench.run(&["inspect", "sealed.o"]).stdout;
    assert!(inspected.contains("syscall"), "{inspected}");
    let verified = bench.run(&["verify", "sealed.o", "--prog-name", "setup"]);
    assert_eq!(verified.status, 0, "{verified:?}");
}
