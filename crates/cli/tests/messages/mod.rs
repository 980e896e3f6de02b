//! Messages about programs beside the verdict, and about objects that other loaders accept.

use serde_json::Value;

use crate::support::{Bench, frame};

fn verified(bench: &Bench, program: &str) -> Value {
    let ended = bench.run(&["verify", "--json", "messages.o", "-n", program]);
    serde_json::from_str(&ended.stdout).expect("one line")
}

#[test]
fn a_section_that_means_nothing_and_a_key_that_is_not_set_are_noted() {
    let bench = Bench::new("messages_notes");
    let note = |program: &str| {
        let line = verified(&bench, program);
        assert_eq!(line["accepted"], true, "{line}");
        line["notes"][0].as_str().expect("a note").to_owned()
    };
    let told = note("wrong_section");
    assert!(told.contains("section \"xpd\"") && told.contains("did you mean \"xdp\"?"), "{told}");
    let told = note("unset_padding");
    assert!(told.contains("messages.c:43: "), "{told}");
    assert!(told.contains("bytes 1 to 3 (padding behind proto) of the key of map sizes"), "{told}");
    let ended = bench.run(&["verify", "messages.o", "-n", "unset_padding"]);
    assert!(ended.stdout.contains("note: ./messages.c:43"), "{ended:?}");
}

/// A pcapng file of blocks: a section, then what is given.
fn blocks(parts: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
    let all = [&[(0x0a0d_0d0a, section)], parts].concat();
    let block = |(kind, body): &(u32, Vec<u8>)| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    all.iter().flat_map(block).collect()
}

#[test]
fn frames_of_other_links_are_counted_and_the_rest_is_run() {
    let bench = Bench::new("messages_links");
    let interface = |link: u16| (1, [&link.to_le_bytes()[..], &[0; 6]].concat());
    let packet = |interface: u32, frame: &[u8]| {
        let words = [interface, 0, 9, frame.len() as u32, frame.len() as u32];
        (6, [&words.map(u32::to_le_bytes).concat()[..], frame].concat())
    };
    let links = [interface(1), interface(113)];
    let frames = [packet(0, &frame(2)), packet(1, &[0; 44]), packet(0, &frame(3))];
    bench.file("mixed.pcapng", blocks(&[&links[..], &frames].concat()));
    let program = ["run", "every_verdict.o", "-n", "every_verdict", "--in", "mixed.pcapng"];
    let result = bench.json(&program);
    assert_eq!((&result["frames"], &result["skipped"]), (&3.into(), &1.into()), "{result}");
    assert_eq!(result["verdicts"]["XDP_PASS"], 1);
    assert_eq!(result["verdicts"]["XDP_TX"], 1);
    let ended = bench.run(&program);
    assert!(ended.stdout.contains("1 frame not run: link type 113, not Ethernet"), "{ended:?}");

    bench.file("mixed.pcapng", blocks(&[&links[..], &frames[1..2]].concat()));
    let message = bench.refusal(2, &program);
    assert!(message.contains("no Ethernet frame") && message.contains("113"), "{message}");
}

#[test]
fn a_field_that_the_kernel_has_not_is_named() {
    let bench = Bench::new("messages_core");
    let relocation = "unresolved CO-RE relocation FieldByteOffset of struct \
                      net_device___old.no_such_field (access 0:1)";
    let line = verified(&bench, "gone");
    assert_eq!(line["reason"]["message"], relocation, "{line}");
    let source = line["reason"]["source"].as_str().expect("its line");
    assert!(source.contains("return buff->rxq->dev->no_such_field;"), "{source}");
    assert!(line["reason"]["hint"].as_str().expect("one").contains("bpf_core_field_exists"));

    bench.file("data", frame(1));
    let run = ["prog", "run", "messages.o", "-n", "gone", "--data-in", "data", "--exec", "kernel"];
    let ended = bench.run(&run);
    if is_without_kernel(&ended.stderr) {
        return eprintln!("skipped: {}", ended.stderr);
    }
    assert!(ended.stderr.contains(relocation), "{ended:?}");
}

#[test]
fn types_that_the_kernel_refuses_keep_no_program_from_it_that_needs_none() {
    let bench = Bench::new("messages_types");
    bench.file("data", frame(1));
    let program = ["messages.o", "-n", "unset_padding", "--data-in", "data", "--exec", "kernel"];
    let ended = bench.run(&[&["--json", "prog", "run"], &program[..]].concat());
    if is_without_kernel(&ended.stdout) {
        return eprintln!("skipped: {}", ended.stdout);
    }
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.contains("\"retval\":2"), "{ended:?}");
}

fn is_without_kernel(text: &str) -> bool {
    text.contains("not permitted") || text.contains("has no bpf(2)")
}
