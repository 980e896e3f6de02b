//! A finding of the sanitizer fails a case, and is reported.

use std::process::Command;

use serde_json::Value;

use crate::support::Bench;

#[test]
fn a_case_fails_where_a_key_has_padding_that_nobody_set() {
    let Some(bench) = bench("padding_fails") else { return eprintln!("{SKIPPED}") };
    let ended = bench.run(&["test", "cases.toml"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    for text in [
        "FAIL  a packet",
        "padding.c:23: the key of map flows (argument 2 of bpf_map_update_elem, `&k`)",
        "the padding behind `proto` was never set (bytes 1 to 3) [undefined-key]",
        "the rest was set in lines 21 and 22",
        "__builtin_memset(&k, 0, sizeof(k));",
    ] {
        assert!(ended.stdout.contains(text), "{text:?} in {}", ended.stdout);
    }
    let ended = bench.run(&["test", "cases.toml", "--exec", "jit", "--json"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(result["failed"], 1, "the interpreter runs, too: {result}");
    let finding = &result["cases"][1]["findings"][0];
    assert_eq!(finding["kind"], "undefined-key");
    assert_eq!((&finding["line"], &finding["severity"]), (&23.into(), &"error".into()));
}

#[test]
fn without_it_the_case_passes_and_poisoned_it_has_other_bytes() {
    let Some(bench) = bench("padding_passes") else { return eprintln!("{SKIPPED}") };
    let ended = bench.run(&["test", "cases.toml", "--sanitize", "off"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let ended = bench.run(&["test", "cases.toml", "--sanitize", "poison", "--json"]);
    assert_eq!(ended.status, 1, "the key is another one: {ended:?}");
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(result["failed"], 2, "in the interpreter and compiled: {result}");
    let how = result["cases"][0]["sanitize"].as_str().expect("a choice").to_owned();
    assert!(how.starts_with("poison:"), "{result}");
    let ended = bench.run(&["test", "cases.toml", "--sanitize", &how]);
    assert_eq!(ended.status, 1, "{ended:?}");
    let again = format!("the stack began with random bytes: --sanitize={how} repeats them");
    assert!(ended.stdout.contains(&again), "{}", ended.stdout);
    let ended = bench.run(&["test", "cases.toml", "--sanitize", "poison:x"]);
    assert_eq!(ended.status, 2, "{ended:?}");
    assert!(ended.stderr.contains("poison:SEED"), "{}", ended.stderr);
}

#[test]
fn the_kernels_stack_is_poisoned_as_well() {
    let Some(bench) = bench("padding_kernel") else { return eprintln!("{SKIPPED}") };
    let run = |how: &str| {
        let ended =
            bench.run(&["test", "cases.toml", "--exec", "kernel", "--sanitize", how, "--json"]);
        let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        result["cases"][0].clone()
    };
    let result = run("poison:1");
    if !result["skipped"].is_null() {
        return eprintln!("skipped: {}", result["skipped"]);
    }
    assert_eq!(result["passed"], false, "{result}");
    let told = result["differences"].to_string();
    assert!(told.contains("XDP_DROP") && told.contains("XDP_PASS"), "{told}");
}

#[test]
fn a_run_over_a_capture_or_one_packet_is_watched_where_that_is_asked_for() {
    let Some(bench) = bench("padding_runs") else { return eprintln!("{SKIPPED}") };
    std::fs::write(bench.path("packet.bin"), [0; 64]).expect("a folder of ours");
    let run = ["prog", "run", "padding.o", "--data-in", "packet.bin"];
    assert_eq!(bench.run(&run).status, 0, "off is the default");
    let ended = bench.run(&[&run[..], &["--sanitize=track"]].concat());
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stdout.contains("(bytes 1 to 3) [undefined-key]"), "{}", ended.stdout);
    let ended = bench.run(&[&run[..], &["--sanitize=poison:7", "--json"]].concat());
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((ended.status, &result["retval"]), (0, &1.into()), "nothing is found: {result}");
    assert_eq!(result["sanitize"], "poison:7");
    let ended = bench.run(&[&run[..], &["--sanitize=track", "--exec=kernel"]].concat());
    assert_eq!(ended.status, 2, "{ended:?}");

    let run = ["run", "padding.o", "--in", "one.pcap"];
    std::fs::write(bench.path("one.pcap"), capture_of(&[0; 64])).expect("a folder of ours");
    assert_eq!(bench.run(&run).status, 0, "off is the default");
    let ended = bench.run(&[&run[..], &["--sanitize=track", "--json"]].concat());
    assert_eq!(ended.status, 1, "{ended:?}");
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&result["tier"], &result["sanitize"]), (&"interp".into(), &"track".into()));
    assert_eq!(result["findings"][0]["line"], 23, "{result}");
    let ended = bench.run(&[&run[..], &["--sanitize=poison:7"]].concat());
    assert!(ended.stdout.contains("--sanitize=poison:7 repeats them"), "{}", ended.stdout);
}

#[test]
fn what_all_cases_show_together_is_a_note() {
    let Some(bench) = bench("padding_notes") else { return eprintln!("{SKIPPED}") };
    bench.file("padding.c", BYTE_ORDER);
    compile(&bench).expect("it was there a moment ago");
    bench.file("cases.toml", PORT_CASES);
    let ended = bench.run(&["test", "cases.toml"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.stdout.contains("a note of the sanitizer (-v shows it)"), "{}", ended.stdout);
    let ended = bench.run(&["test", "cases.toml", "-v"]);
    let note = "padding.c:11: no look-up at this call finds an element of map ports, which has \
                some; with the key in the other byte order it would [never-found]";
    assert!(ended.stdout.contains(note), "{}", ended.stdout);
    let ended = bench.run(&["test", "cases.toml", "--json"]);
    let result: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(result["notes"][0]["kind"], "never-found", "{result}");
}

/// A capture of one frame.
fn capture_of(frame: &[u8]) -> Vec<u8> {
    let mut bytes = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    for word in [4 << 16 | 2, 0, 0, 65535, 1, 1, 0, frame.len() as u32, frame.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(frame);
    bytes
}

/// A folder with the program and the cases; `None` where nothing compiles it.
fn bench(name: &str) -> Option<Bench> {
    let bench = Bench::new(name);
    bench.file("padding.c", PADDING);
    bench.file("cases.toml", CASES);
    compile(&bench)?;
    Some(bench)
}

/// `None` where there is no compiler.
fn compile(bench: &Bench) -> Option<()> {
    let mut clang = Command::new("clang-19");
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", "padding.c", "-o", "padding.o"]);
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    let status = clang.current_dir(bench.path("")).status().ok()?;
    assert!(status.success());
    Some(())
}

const SKIPPED: &str = "skipped: no clang-19 (scripts/install-deps.sh)";
const PADDING: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct key { __u8 proto; __u32 addr; };
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 16); __type(key, struct key);
         __type(value, __u64); } flows SEC(".maps");
static __noinline int is_there(void)
{
    struct key k;

    __builtin_memset(&k, 0, sizeof(k));
    k.proto = 17;
    k.addr = 0x0a000001;
    return bpf_map_lookup_elem(&flows, &k) != 0;
}

SEC("xdp") int padding(struct xdp_md *ctx)
{
    struct key k;
    __u64 one = 1;

    k.proto = 17;
    k.addr = 0x0a000001;
    bpf_map_update_elem(&flows, &k, &one, BPF_ANY);
    return is_there() ? XDP_PASS : XDP_DROP;
}
char _license[] SEC("license") = "GPL";
"#;

const CASES: &str = r#"object = "padding.o"
[[case]]
name = "a packet"
packet = "0200000000020200000000010800450000140000000040110000"
expect.verdict = "XDP_PASS"
"#;

const BYTE_ORDER: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 16); __type(key, __u16);
         __type(value, __u64); } ports SEC(".maps");

SEC("xdp") int port(struct xdp_md *ctx)
{
    __u16 port = 0;

    bpf_xdp_load_bytes(ctx, 36, &port, sizeof(port));
    return bpf_map_lookup_elem(&ports, &port) ? XDP_DROP : XDP_PASS;
}
char _license[] SEC("license") = "GPL";
"#;

const PORT_CASES: &str = r#"object = "padding.o"
[[case]]
name = "a packet to a port that is not blocked"
packet = { ipv4 = {}, udp = { dport = 54 } }
maps.ports = [{ key = 53, value = 1 }]
expect.verdict = "XDP_PASS"
[[case]]
name = "a packet to a port that is blocked, as somebody thought"
packet = { ipv4 = {}, udp = { dport = 53 } }
maps.ports = [{ key = 53, value = 1 }]
expect.verdict = "XDP_PASS"
"#;
