//! `towpath test` from outside: what passes, what fails and how it is told, and mistakes in files.

mod programs;
mod sanitizer;
mod sockets;

use serde_json::Value;

use crate::support::Bench;

/// A case with every key of a file, for the fixture whose verdict depends on the address.
const CASES: &str = r#"
object = "every_verdict.o"
program = "every_verdict"
set = { shift = 1 }

[[case]]
name = "a verdict, the packet and maps"
packet = { eth = { dst = "02:00:00:00:00:02" }, payload = "hello", pad_to = 60 }
expect.verdict = "XDP_TX"
expect.packet = "unchanged"
expect.maps.counts = [{ key = 3, value = { frames = 1 } }]
expect.maps.".bss" = { seen = 1 }

[[case]]
name = "a redirect"
maps.tx_ports = [{ key = 1, value = { ifindex = 1 } }]
packet = "02 00 00 00 00 03  02 00 00 00 00 01  08 00  00 00"
expect = { verdict = 4, target = "tx_ports[1]", packet = "0200.. 000003 ............ 0800 0000" }

[[case]]
name = "printed, and then something else"

[[case.step]]
packet = { eth = { dst = "02:00:00:00:00:05" } }
expect = { verdict = "pass", printed = ["frame of 14 bytes"] }

[[case.step]]
advance = "10s"
packet = { file = "in.pcap", frame = 2 }
expect.verdict = "drop"
expect.maps.overrides = []
"#;

fn bench(name: &str) -> Bench {
    let bench = Bench::new(name);
    bench.capture("in.pcap", &[9, 0]);
    bench.file("good.toml", CASES.replace("set = { shift = 1 }", "set = { shift = 1 }\ncpus = 1"));
    bench
}

#[test]
fn cases_pass_on_all_that_execute_programs() {
    let bench = bench("cases_pass");
    let result = bench.json(&["test", "good.toml", "--exec", "interp,jit"]);
    assert_eq!((&result["passed"], &result["failed"]), (&6.into(), &0.into()), "{result:#}");
    let ended = bench.run(&["test", "good.toml", "--exec", "kernel"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.contains("the kernel's clock can't be set"), "{ended:?}");
}

#[test]
fn what_differs_is_told_by_field() {
    let bench = bench("cases_fail");
    let wrong = CASES
        .replace("XDP_TX", "XDP_DROP")
        .replace("frames = 1", "frames = 2")
        .replace("tx_ports[1]", "tx_ports[2]")
        .replace("frame of 14", "frame of 15")
        .replace("000003 ....", "000004 ....");
    bench.file("wrong.toml", wrong);
    let ended = bench.run(&["test", "wrong.toml", "--exec", "interp", "--junit", "junit.xml"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    for line in [
        "FAIL  a verdict, the packet and maps",
        "interp: verdict: expected XDP_DROP, got XDP_TX",
        "interp: counts[3]: expected {\"frames\":2}, got {\"frames\":1,\"bytes\":60}",
        "interp: target: expected tx_ports[2], got tx_ports[1] (ifindex 1)",
        "interp: eth.dst: expected 02:00:00:00:00:04, got 02:00:00:00:00:03",
        "interp: packet 1: printed: expected \"frame of 15 bytes\", got frame of 14 bytes",
        "0 passed, 3 failed, 0 skipped",
    ] {
        assert!(ended.stdout.contains(line), "{line:?} in {}", ended.stdout);
    }
    let junit = std::fs::read_to_string(bench.path("junit.xml")).expect("it was written");
    assert!(junit.contains("failures=\"3\""), "{junit}");
    let ended = bench.run(&["test", "wrong.toml", "--exec", "interp", "--tap"]);
    assert!(ended.stdout.starts_with("TAP version 14\n1..3\nnot ok 1 - a verdict"), "{ended:?}");
}

#[test]
fn coverage_names_what_no_case_reached() {
    let bench = bench("cases_coverage");
    let arguments = [
        "test",
        "good.toml",
        "--exec",
        "interp",
        "--coverage",
        "--lcov",
        "l.info",
        "--html",
        "c.html",
    ];
    let ended = bench.run(&arguments);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.contains("every_verdict.c"), "{ended:?}");
    assert!(ended.stdout.contains("bpf_tail_call(ctx, &jumps, 1);"), "{ended:?}");
    let lcov = std::fs::read_to_string(bench.path("l.info")).expect("it was written");
    let numbers = |prefix: &str| {
        let line = lcov.lines().find_map(|line| line.strip_prefix(prefix));
        line.and_then(|number| number.parse::<u32>().ok()).expect("a number")
    };
    assert!(numbers("LH:") > 10 && numbers("LH:") < numbers("LF:"), "{lcov}");
    assert!(numbers("BRH:") > 5 && lcov.ends_with("end_of_record\n"), "{lcov}");
    let page = std::fs::read_to_string(bench.path("c.html")).expect("it was written");
    assert!(page.contains("class=\"no\"") && page.contains("class=\"half\""), "{page}");
}

#[test]
fn a_recording_passes() {
    let bench = bench("cases_record");
    bench.capture("in.pcap", &[9, 0, 3, 0, 9, 0]);
    let object = ["--object", "every_verdict.o", "-n", "every_verdict"];
    let record = [&["test", "new.toml", "--record", "in.pcap"], &object[..]].concat();
    let told = "new.toml: 3 cases, one for each path and verdict of 6 frames\n";
    assert_eq!(bench.run(&record).stdout, told);
    let result = bench.json(&["test", "new.toml"]);
    assert_eq!((&result["passed"], &result["failed"]), (&6.into(), &0.into()), "{result:#}");
}

#[test]
fn a_capture_with_verdicts_is_a_case() {
    let bench = bench("cases_capture");
    let object = ["every_verdict.o", "-n", "every_verdict"];
    let run = [&["run"], &object[..], &["--in", "in.pcap", "--out", "out.pcapng"]].concat();
    assert_eq!(bench.run(&run).status, 0);
    // Only one program of an object can be meant where no file says which.
    let error = bench.refusal(2, &["test", "out.pcapng", "--object", "every_verdict.o"]);
    assert!(error.contains("choose with"), "{error}");
    let other = ["test", "out.pcapng", "--object", "router.o", "--exec", "interp"];
    assert_eq!(bench.json(&other)["cases"][0]["name"], "out");
}

#[test]
fn mistakes_in_files_are_named() {
    let bench = bench("cases_mistakes");
    let refused = |cases: &str, expected: &str| {
        bench.file("bad.toml", cases);
        let error = bench.refusal(2, &["test", "bad.toml"]);
        assert!(error.contains("bad.toml") && error.contains(expected), "{expected:?} in {error}");
    };
    refused(
        "object = \"a.o\"\n[[case]]\nnam = \"x\"",
        "line 3, column 1: case[0].nam: unknown key \"nam\"; did you mean \"name\"?",
    );
    refused("[[case]]\nname = \"x\"\npacket = \"00\"", "no object file");
    let head =
        "object = \"every_verdict.o\"\nprogram = \"every_verdict\"\n[[case]]\nname = \"x\"\n";
    let refused = |rest: &str, expected: &str| refused(&format!("{head}{rest}"), expected);
    refused("", "expected a packet, or steps");
    refused("packet = \"0\"", "two make a byte");
    refused("packet = { udp = {} }", "a transport header needs an IP header");
    refused("packet = { ipv4 = {}, upd = {} }", "upd: unknown key \"upd\"; did you mean \"udp\"?");
    refused("packet = { file = \"in.pcap\", frame = 3 }", "frame 3: it has 2");
    refused("packet = \"00\"\nexpect.verdict = \"XDP_FLY\"", "expected XDP_ABORTED");
    refused(
        "packet = \"00\"\nexpect.verdikt = 1",
        "verdikt: unknown key \"verdikt\"; did you mean \"verdict\"?",
    );

    let failed = |rest: &str, expected: &str| {
        bench.file("bad.toml", format!("{head}{rest}"));
        let ended = bench.run(&["test", "bad.toml", "--exec", "interp", "--json"]);
        assert_eq!(ended.status, 1, "{ended:?}");
        let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let difference = result["cases"][0]["differences"][0].to_string();
        assert!(difference.contains(expected), "{expected:?} in {difference}");
    };
    failed("packet = \"0011\"", "at least 14 bytes");
    let twice = r#"connections = [
        { protocol = "udp", source = "192.0.2.1:1", destination = "192.0.2.2:2" },
        { protocol = "udp", source = "192.0.2.2:2", destination = "192.0.2.1:1" },
    ]"#;
    failed(
        &format!("packet = \"{}\"\n{twice}", "00".repeat(20)),
        "connection 2: one before it has these ends",
    );
    let packet = format!("packet = \"{}\"\n", "00".repeat(20));
    failed(&format!("{packet}maps.count = []"), "no map");
    failed(&format!("{packet}expect.maps.count = []"), "no map");
    failed(&format!("{packet}expect.maps.counts = [{{ key = \"x\", value = 1 }}]"), "counts");
    let long = format!("packet = \"{}\"\n", "00".repeat(80_000));
    failed(&long, "at most");
}
