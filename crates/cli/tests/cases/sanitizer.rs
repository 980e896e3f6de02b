//! What the sanitizer finds fails a case, and is told.

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
}

/// A folder with the program and the cases; `None` where nothing compiles it.
fn bench(name: &str) -> Option<Bench> {
    let bench = Bench::new(name);
    bench.file("padding.c", PADDING);
    bench.file("cases.toml", CASES);
    let mut clang = Command::new("clang-19");
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", "padding.c", "-o", "padding.o"]);
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    let status = clang.current_dir(bench.path("")).status().ok()?;
    assert!(status.success());
    Some(bench)
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
