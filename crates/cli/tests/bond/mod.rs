//! `towpath bond`: the kernel's hashes from the command line, and what is wrong with what isn't
//! hex.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Bench, frame};

const VECTORS: &str = include_str!("../../../engine/tests/data/bond-hash-vectors.txt");

/// Layer 3+4: 3d968c85.
const UDP: &str =
    "02000000000202000000000108004500001c00000000401100000a0000010a0000021234567800080000";

/// Runs the binary with a text on standard input; status, output, errors.
fn piped(bench: &Bench, arguments: &[&str], text: &str) -> (Option<i32>, String, String) {
    let mut command = bench.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    // A binary that has seen enough does not read the rest.
    let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
    let ended = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn every_vector_through_standard_input() {
    let bench = Bench::new("bond_hash_vectors");
    let names = ["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"];
    for (number, name) in names.iter().enumerate() {
        let mut frames = String::new();
        let mut expected = String::new();
        for line in VECTORS.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == number.to_string() {
                frames += &format!("{}\n", words[1]);
                let member = u32::from_str_radix(words[2], 16).unwrap() % 3;
                expected += &format!("{} {member}\n", words[2]);
            }
        }
        let (status, printed, errors) =
            piped(&bench, &["bond", "hash", name, "--members", "3", "-"], &frames);
        assert_eq!((status, errors.as_str()), (Some(0), ""));
        assert_eq!(printed, expected, "{name}");
    }
}

#[test]
fn frames_come_from_the_command_line_and_from_captures() {
    let bench = Bench::new("bond_hash");
    let ended = bench.run(&["bond", "hash", "layer3+4", UDP]);
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "3d968c85\n"));
    let found = bench.json(&["bond", "hash", "1", UDP, "--members", "2"]);
    assert_eq!(found, json!({"frame": 1, "hash": "3d968c85", "member": 1}));

    bench.capture("in.pcap", &[1, 2]);
    let ended = bench.run(&["bond", "hash", "layer2", "--members=2", "--in", "in.pcap"]);
    assert_eq!(ended.stdout, "00000800 0\n00000803 1\n");
    let hex: String = frame(2).iter().map(|byte| format!("{byte:02x}:")).collect();
    let ended = bench.run(&["bond", "hash", "layer2", hex.trim_end_matches(':')]);
    assert_eq!(ended.stdout, "00000803\n");
}

#[test]
fn bad_hex_says_line_and_column() {
    let bench = Bench::new("bond_hash_bad");
    let (status, printed, errors) =
        piped(&bench, &["bond", "hash", "layer2", "-"], &format!("{UDP}\n\n02zz\n"));
    assert_eq!((status, printed.as_str()), (Some(2), "00000803\n00000000\n"));
    assert!(errors.starts_with("error: standard input: line 3, column 3: 'z' is no"), "{errors}");
    let message = bench.refusal(2, &["bond", "hash", "layer2", "020"]);
    assert!(message.contains("line 1, column 4: half a byte"), "{message}");
    let (status, _, errors) = piped(&bench, &["bond", "hash", "0", "-"], &"0".repeat(800_000));
    assert_eq!(status, Some(2));
    assert!(errors.contains("line 1, longer than 786432 characters"), "{errors}");
}

#[test]
fn what_is_missing_or_unknown_is_told() {
    let bench = Bench::new("bond_hash_usage");
    let message = bench.refusal(2, &["bond", "hash", "layer4", UDP]);
    assert!(message.contains("expected layer2, layer3+4"), "{message}");
    for arguments in [
        &["bond", "hash", "layer2"][..],
        &["bond", "hash", "layer2", UDP, "--in", "in.pcap"],
        &["bond", "hash", "layer2", UDP, "--members", "0"],
        &["bond", "hash", "layer2", "--in", "missing.pcap"],
    ] {
        bench.refusal(2, arguments);
    }
}
