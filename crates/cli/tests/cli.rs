//! The binary from outside: what it prints, what it writes, how it ends.

mod bond;
mod called;
mod cases;
mod daemon;
mod demo;
mod docs;
mod messages;
mod new;
mod qualify;
mod support;

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};
use support::{Bench, frame};
use towpath_capture::Reader;

const PROGRAM: [&str; 3] = ["every_verdict.o", "-n", "every_verdict"];

fn run_args<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [&["run"], &PROGRAM[..], &["--in", "in.pcap"], rest].concat()
}

#[test]
fn run_counts_verdicts_and_shows_maps() {
    let bench = Bench::new("run_counts");
    bench.capture("in.pcap", &[0, 1, 1, 2, 2, 2, 3, 200]);
    let result = bench.json(&run_args(&["--dump-maps"]));
    assert_eq!(result["frames"], 8);
    assert_eq!(result["bytes"], 480);
    let verdicts = json!({
        "XDP_ABORTED": 2, "XDP_DROP": 2, "XDP_PASS": 3, "XDP_TX": 1, "XDP_REDIRECT": 0
    });
    assert_eq!(result["verdicts"], verdicts);
    assert!(result["ns_per_frame"].as_f64().unwrap() > 0.0);
    let counts = &result["maps"]["counts"];
    let expected = json!({"key": 2, "values": [{"cpu": 0, "value": {"frames": 3, "bytes": 180}}]});
    assert_eq!(counts[2], expected);
    assert_eq!(result["maps"][".bss"], json!([{"key": 0, "value": {"seen": 8}}]));

    let ended = bench.run(&run_args(&["--dump-maps=counts"]));
    assert_eq!(ended.status, 0);
    for line in ["XDP_PASS            3   37.5 %", "ns/frame, compiled", "256 entries, 5 not zero"]
    {
        assert!(ended.stdout.contains(line), "{line} in {}", ended.stdout);
    }
}

#[test]
fn a_run_ends_with_its_speed_beside_the_kernel_or_why_not() {
    let bench = Bench::new("run_beside");
    bench.capture("few.pcap", &[2; 8]);
    bench.capture("in.pcap", &[2; 1000]);
    let asked = bench.json(&run_args(&["--against", "kernel"]));
    let beside = &asked["beside_kernel"];
    assert_eq!((&beside["frame"], &beside["verdict"]), (&json!(501), &json!("XDP_PASS")));
    let printed = bench.run(&run_args(&[]));
    assert_eq!(printed.status, 0, "{printed:?}");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match beside["why_not"].as_str() {
        Some(why) => {
            let said = format!("beside the kernel: not measured: {why}");
            assert!(printed.stdout.contains(&said), "{printed:?}");
            eprintln!("skipped: {why}");
        }
        None => {
            let times = &beside["times"];
            let ns = |key: &str| times[key].as_f64().expect("a number");
            assert!(ns("ns") > 0.0 && ns("kernel_ns") > 0.0, "{times}");
            assert_eq!(times["kernel"], kernel.trim());
            let said = format!(" ns in Linux {}, ", kernel.trim());
            assert!(printed.stdout.contains(&said), "{printed:?}");
            assert!(printed.stdout.contains("(frame 501, XDP_PASS, 60 bytes"), "{printed:?}");
        }
    }
    assert!(printed.stdout.contains("next: --dump-maps shows"), "{printed:?}");

    // It would print in the kernel, too.
    bench.capture("printing.pcap", &[6; 8]);
    let printing = ["run", "every_verdict.o", "-n", "every_verdict", "--in", "printing.pcap"];
    let asked = bench.json(&[&printing[..], &["--against", "kernel"]].concat());
    let why = &asked["beside_kernel"]["why_not"];
    assert_eq!(why, "its output would fill the kernel's trace", "{asked}");

    // There is no measurement for few frames, with --json, or with --against none.
    assert_eq!(bench.json(&run_args(&[])).get("beside_kernel"), None);
    let few = ["run", "every_verdict.o", "-n", "every_verdict", "--in", "few.pcap"];
    for words in [&few[..], &run_args(&["--against", "none"])] {
        let ended = bench.run(words);
        assert!(ended.stdout.contains("ns/frame, compiled"), "{ended:?}");
        assert!(!ended.stdout.contains("beside the kernel"), "{ended:?}");
    }
}

#[test]
fn surviving_frames_are_written_with_verdict_and_target() {
    let bench = Bench::new("run_out");
    bench.capture("in.pcap", &[1, 2, 3, 4]);
    bench.file("maps.json", r#"{"tx_ports": [{"key": 1, "value": {"ifindex": 7}}]}"#);
    let result = bench.json(&run_args(&["--map-init", "maps.json", "--out", "out.pcapng"]));
    assert_eq!(result["targets"], json!({"tx_ports[1] (ifindex 7)": 1}));

    let mut reader = Reader::open(&bench.path("out.pcapng")).unwrap();
    let mut found = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let comment = packet.options.comment.map(str::to_owned);
        assert_eq!(packet.data, frame(packet.data[5]));
        found.push((packet.options.xdp_verdict, packet.options.packet_id, comment));
    }
    let redirected = Some("XDP_REDIRECT to tx_ports[1] (ifindex 7)".to_owned());
    let expected =
        [(Some(2), Some(2), None), (Some(3), Some(3), None), (Some(4), Some(4), redirected)];
    assert_eq!(found, expected);
    let names: Vec<&str> = reader.interfaces().iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["in0", "tx_ports[1] (ifindex 7)"]);

    // On standard output there is nothing else then.
    let arguments = run_args(&["--map-init", "maps.json", "--out", "-"]);
    let done = bench.command(&arguments).output().unwrap();
    let mut reader = Reader::new(&*done.stdout).unwrap();
    let mut count = 0;
    while reader.next_packet().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, found.len());
    let report = String::from_utf8(done.stderr).unwrap();
    assert!(report.contains("XDP_REDIRECT"), "{report}");
}

#[test]
fn a_hash_map_is_dumped_in_the_order_of_its_keys() {
    let bench = Bench::new("dump_order");
    bench.capture("in.pcap", &[7]);
    let entries = r#"{"1000": 1, "9": 1, "70000": 1, "256": 1, "10": 1, "65536": 1}"#;
    bench.file("maps.json", format!(r#"{{"overrides": {entries}}}"#));
    let result = bench.json(&run_args(&["--map-init", "maps.json", "--dump-maps"]));
    let entries = result["maps"]["overrides"].as_array().expect("a list");
    let keys: Vec<_> = entries.iter().filter_map(|entry| entry["key"].as_u64()).collect();
    assert_eq!(keys, [9, 10, 256, 1000, 65536, 70000]);
}

#[test]
fn map_files_fill_every_kind_and_a_dump_is_a_map_file() {
    let bench = Bench::new("map_init");
    bench.capture("in.pcap", &[2, 7, 5]);
    bench.file(
        "maps.json",
        r#"{
            "counts": [{"key": 9, "value": {"frames": 4, "bytes": 5}}],
            "overrides": {"2": 3, "0x33": 1},
            "jumps": [{"key": 1, "value": "tail"}],
            "tx_ports": [{"key": 0, "value": {"ifindex": 3}}],
            "tenants": [{"key": 1, "value": [{"key": 10, "value": "hex:0100000000000000"}]}],
            ".bss": {"seen": 100}
        }"#,
    );
    let arguments = run_args(&["--map-init", "maps.json", "--dump-maps"]);
    let first = bench.json(&arguments);
    assert_eq!(first["verdicts"]["XDP_TX"], 2, "by override and by tail call: {first}");
    assert_eq!(first["events"]["events"]["records"], 1);
    bench.capture("printing.pcap", &[6, 6]);
    let printing = ["run", "every_verdict.o", "-n", "every_verdict", "--in", "printing.pcap", "-v"];
    assert_eq!(bench.json(&printing)["trace"], json!(["frame of 60 bytes", "frame of 60 bytes"]));
    let maps = &first["maps"];
    assert_eq!(maps["tenants"], json!([{"key": 1, "value": [{"key": 10, "value": 1}]}]));
    assert_eq!(maps["jumps"], json!([{"key": 1, "value": "tail"}]));
    assert_eq!(maps["tx_ports"], json!([{"key": 0, "value": {"ifindex": 3}}]));
    assert_eq!(maps[".bss"][0]["value"]["seen"], 103);

    bench.file("maps.json", serde_json::to_string(maps).unwrap());
    let second = bench.json(&arguments);
    assert_eq!(second["maps"][".bss"][0]["value"]["seen"], 106);
    assert_eq!(second["maps"]["tenants"], maps["tenants"]);
}

#[test]
fn mistakes_in_map_files_are_named_by_path() {
    let bench = Bench::new("map_mistakes");
    bench.capture("in.pcap", &[2]);
    let cases = [
        (r#"{"override": {}}"#, r#"no map "override"; did you mean "overrides"?"#),
        (r#"{"overrides": [{"key": 1, "vale": 2}]}"#, r#"did you mean "value"?"#),
        (r#"{"overrides": [{"key": 1, "value": "hex:00"}]}"#, "overrides[0].value"),
        (r#"{"overrides": [{"key": 4294967296, "value": 0}]}"#, "overrides[0].key"),
        (r#"{"counts": [{"key": 1, "value": {"frame": 2}}]}"#, "counts[0].value"),
        (r#"{"counts": [{"key": 999, "value": {}}]}"#, "-E2BIG"),
        (r#"{"jumps": [{"key": 1, "value": "tali"}]}"#, "tail (xdp/tail)"),
        (r#"{".rodata": {"shift": 2}}"#, "--set"),
        (r#"{"overrides": {"1": 2"#, "line 1 column"),
        ("[]", "expected an object of maps by name"),
    ];
    for (text, expected) in cases {
        bench.file("maps.json", text);
        let message = bench.refusal(2, &run_args(&["--map-init", "maps.json"]));
        assert!(message.starts_with("error: maps.json: "), "{message}");
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn globals_are_set_before_linking() {
    let bench = Bench::new("globals");
    bench.capture("in.pcap", &[1]);
    let result = bench.json(&run_args(&["--set", "shift=2"]));
    assert_eq!(result["verdicts"]["XDP_TX"], 1);
    let message = bench.refusal(2, &run_args(&["--set", "shft=2"]));
    assert!(message.contains("shift"), "{message}");
    let message = bench.refusal(2, &run_args(&["--set", "shift=two"]));
    assert!(message.contains("expected an integer"), "{message}");
}

#[test]
fn maps_get_the_size_that_the_object_leaves_open() {
    let bench = Bench::new("map_sizes");
    bench.capture("in.pcap", &[1]);
    let message = bench.refusal(1, &run_args(&["--map-size", "counts=0"]));
    assert!(message.contains("--map-size counts=N"), "{message}");
    let ended = bench.run(&run_args(&["--map-size", "counts=300", "--dump-maps=counts"]));
    assert!(ended.stdout.contains("300 entries"), "{}", ended.stdout);
    let message = bench.refusal(2, &run_args(&["--map-size", "count=300"]));
    assert!(message.contains("no map count; the object has: "), "{message}");
    let message = bench.refusal(2, &run_args(&["--map-size", "counts=many"]));
    assert!(message.contains("expected NAME=N"), "{message}");
}

#[test]
fn a_truncated_capture_is_run_as_far_as_it_goes() {
    let bench = Bench::new("truncated");
    bench.capture("in.pcap", &[2, 2, 2]);
    let whole = std::fs::read(bench.path("in.pcap")).unwrap();
    bench.file("in.pcap", &whole[..whole.len() - 10]);
    let ended = bench.run(&run_args(&["--json"]));
    assert_eq!(ended.status, 2);
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(result["verdicts"]["XDP_PASS"], 2);
    let expected = "in.pcap: ends at offset 242, inside a packet record that starts at offset 176";
    assert!(result["error"].as_str().unwrap().starts_with(expected), "{result}");

    let ended = bench.run(&run_args(&[]));
    assert_eq!(ended.status, 2);
    assert!(ended.stdout.contains("2 frames"), "{}", ended.stdout);
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn verify_prints_a_line_for_each_program() {
    let bench = Bench::new("verify");
    let ended = bench.run(&["verify", "--json", "every_verdict.o", "refused.o"]);
    assert_eq!(ended.status, 1);
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accepted: Vec<(&str, bool)> = lines
        .iter()
        .map(|line| (line["program"].as_str().unwrap(), line["accepted"].as_bool().unwrap()))
        .collect();
    let expected =
        [("every_verdict", true), ("tail", true), ("reads_too_far", false), ("passes", true)];
    assert_eq!(accepted, expected);
    let reason = &lines[2]["reason"];
    assert_eq!(reason["insn"], 1);
    assert!(reason["source"].as_str().unwrap().contains("refused.c:9: return data[5];"));
    assert!(reason["message"].as_str().unwrap().contains("invalid access to packet"));

    assert_eq!(bench.run(&["verify", "refused.o", "-n", "passes"]).status, 0);
    assert_eq!(bench.run(&["verify", "every_verdict.o", "missing.o"]).status, 2);
}

#[test]
fn selection_errors_list_the_candidates() {
    let bench = Bench::new("selection");
    bench.capture("in.pcap", &[2]);
    let message = bench.refusal(2, &["run", "refused.o", "--in", "in.pcap"]);
    assert!(message.contains("reads_too_far (xdp), passes (xdp)"), "{message}");
    let message = bench.refusal(2, &["run", "refused.o", "-n", "pass", "--in", "in.pcap"]);
    assert!(message.contains("reads_too_far (xdp), passes (xdp)"), "{message}");
    let refused = ["run", "refused.o", "-n", "reads_too_far", "--in", "in.pcap"];
    let message = bench.refusal(1, &refused);
    assert!(message.contains("refused.c:9"), "{message}");
}

#[test]
fn prog_run_gives_packet_and_context_back() {
    let bench = Bench::new("prog_run");
    bench.file("data", frame(3));
    let words = [0_u32, 60, 0, 9, 0, 0];
    bench.file("ctx", words.map(u32::to_le_bytes).concat());
    let files = ["--data-in", "data", "--data-out", "data_out", "--ctx-in", "ctx"];
    let arguments = [&["prog", "run"], &PROGRAM[..], &files, &["--ctx-out", "ctx_out"]].concat();
    let result = bench.json(&arguments);
    assert_eq!((&result["retval"], &result["data_size_out"]), (&json!(3), &json!(60)));
    assert!(result["duration_ns"].is_u64());
    assert_eq!(std::fs::read(bench.path("data_out")).unwrap(), frame(3));
    assert_eq!(
        std::fs::read(bench.path("ctx_out")).unwrap(),
        std::fs::read(bench.path("ctx")).unwrap()
    );

    bench.file("ctx", [0; 23]);
    let message = bench.refusal(2, &arguments);
    assert!(message.contains("ctx: 23 bytes, expected 24"), "{message}");
}

#[test]
fn the_running_kernel_gives_the_same_answers() {
    let bench = Bench::new("kernel");
    bench.file(
        "maps.json",
        r#"{"overrides": {"9": 3}, "jumps": [{"key": 1, "value": "tail"}],
            "tx_ports": [{"key": 1, "value": 1}], "tenants": [{"key": 0, "value": {"1": 2}}]}"#,
    );
    for byte in [0, 1, 2, 3, 4, 5, 7, 9, 77] {
        bench.file("data", frame(byte));
        let files = ["--data-in", "data", "--map-init", "maps.json", "--dump-maps=overrides"];
        let arguments = [&["prog", "run"], &PROGRAM[..], &files].concat();
        let ours = bench.json(&arguments);
        let ended = bench.run(&[&["--json"], &arguments[..], &["--exec", "kernel"]].concat());
        if ended.stdout.contains("not permitted") || ended.stdout.contains("has no bpf(2)") {
            eprintln!("skipped: {}", ended.stdout);
            return;
        }
        let kernels: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(ours["retval"], kernels["retval"], "{ended:?}");
        assert_eq!(ours["data_size_out"], kernels["data_size_out"]);
        assert_eq!(ours["maps"], kernels["maps"]);
    }
}

#[test]
fn dump_and_inspect_show_the_object() {
    let bench = Bench::new("dump");
    let dump = [&["prog", "dump"], &PROGRAM[..], &["source"]].concat();
    let ended = bench.run(&dump);
    assert_eq!(ended.status, 0);
    for text in ["every_verdict:\n", "; if (data + 14 > end)", "call bpf_map_lookup_elem#1"] {
        assert!(ended.stdout.contains(text), "{text} in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains('\x1b'), "colours are for terminals");
    let inspected = bench.json(&["inspect", "every_verdict.o"]);
    assert_eq!(inspected["license"], "GPL");
    assert_eq!(inspected["programs"][1]["section"], "xdp/tail");
    let tenants =
        inspected["maps"].as_array().unwrap().iter().find(|map| map["name"] == "tenants").unwrap();
    assert_eq!(tenants["inner"]["kind"], "hash");
}

#[test]
fn dump_shows_every_form_of_a_compiled_program() {
    let bench = Bench::new("dump_compiled");
    let dump = |rest: &[&str]| bench.run(&[&["prog", "dump"], &PROGRAM[..], rest].concat());
    for (form, expected) in
        [("xir", "every_verdict"), ("clif", "function"), ("jited", "every_verdict:\n")]
    {
        let ended = dump(&[form]);
        assert_eq!(ended.status, 0, "{ended:?}");
        assert!(ended.stdout.contains(expected), "{expected} in {}", ended.stdout);
    }
    for form in ["jited", "xlated"] {
        let ended = dump(&[form, "linum"]);
        assert!(ended.stdout.contains("; if (data + 14 > end)"), "{ended:?}");
    }
    assert!(!dump(&["jited"]).stdout.contains("; if (data"), "unless it is asked for");
    assert_eq!(dump(&["clif", "linum"]).status, 2);
    let jited = bench.json(&[&["prog", "dump"], &PROGRAM[..], &["jited"]].concat());
    assert!(jited["bytes"].as_u64().unwrap() > 100);
    assert_eq!(jited["instructions"][0]["function"], "every_verdict");
    assert_eq!(dump(&["xir", "--without", "fold"]).status, 0);
    let ended = dump(&["xir", "--without", "flod"]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("did you mean \"fold\"?"), "{ended:?}");
}

#[test]
fn bench_gives_a_ratio_for_each_program_and_engine() {
    let bench = Bench::new("bench");
    bench.capture("in.pcap", &[2, 3]);
    let quick = ["--rounds", "1", "--window", "1", "--in", "in.pcap"];
    let arguments = [&["bench"], &PROGRAM[..], &quick, &["--exec", "jit,interp"]].concat();
    let result = bench.json(&arguments);
    let entries_of = |result: &Value| {
        let measured = |list: &str| result[list].as_array().unwrap().clone();
        ["programs", "short", "trivial"].map(measured).concat()
    };
    let entries = entries_of(&result);
    let again = entries_of(&bench.json(&arguments));
    let execs: Vec<&str> = entries.iter().map(|entry| entry["exec"].as_str().unwrap()).collect();
    assert_eq!(execs, ["jit", "interp", "jit", "interp"], "{result}");
    let flows: Vec<u64> = entries.iter().filter_map(|entry| entry["flows"].as_u64()).collect();
    assert_eq!(flows, [1, 1, 4096, 4096], "{result}");
    if let Some(means) = result["geomean_by_flows"]["jit"].as_object() {
        let means = means.values().filter_map(Value::as_f64);
        assert_eq!(result["geomean_ratio"].as_f64(), means.reduce(f64::min), "{result}");
    }
    let asked = entries_of(&bench.json(&[&arguments[..], &["--flows", "2,1"]].concat()));
    let flows: Vec<u64> = asked.iter().filter_map(|entry| entry["flows"].as_u64()).collect();
    assert_eq!(flows, [2, 2, 1, 1]);
    for entry in &entries {
        assert_eq!(entry["name"], "every_verdict");
        for figure in ["ns", "peer_ns", "ratio", "verify_us", "compile_us"] {
            assert!(entry[figure].as_f64().unwrap() >= 0.0, "{figure} in {entry}");
        }
        assert!(entry["difference_ns"].is_f64() && entry["executed"].as_u64().unwrap() > 0);
        assert_eq!(entry["frame"], again[0]["frame"], "whatever the times were: {entry}");
    }
    assert!(result.get("geomean_ratio").is_some());
    assert_eq!(result["against"], "interp");

    let other = [&arguments[..], &["--frame", "1"]].concat();
    assert_eq!(entries_of(&bench.json(&other))[0]["frame"], 1);
    let result = bench.json(&[&arguments[..], &["--frame", "2"]].concat());
    assert_eq!(result["skipped"][0]["reason"], "no frame 2: there are 2");

    let message = bench.refusal(2, &["bench", "every_verdict.o", "--without", "flod"]);
    assert!(message.contains("did you mean \"fold\"?"), "{message}");
    let message = bench.refusal(2, &["bench"]);
    assert!(message.contains("make programs"), "{message}");
    let message = bench.refusal(2, &["bench", "every_verdict.o", "--against", "iron"]);
    assert!(message.contains("[possible values: kernel, interp]"), "{message}");
}

#[test]
fn prog_run_says_which_tier_ran_and_why() {
    let bench = Bench::new("tiers");
    bench.file("data", frame(2));
    let arguments = [&["--json", "prog", "run"], &PROGRAM[..], &["--data-in", "data"]].concat();
    let run = |exec: &str, library: Option<&str>| -> Value {
        let mut command = bench.command(&[&arguments[..], &["--exec", exec]].concat());
        command.env("XDG_CACHE_HOME", bench.path("cache"));
        if let Some(library) = library {
            command.env("TOWPATH_LIBLLVM", library);
        }
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    };
    assert_eq!([&run("interp", None)["tier"], &run("jit", None)["tier"]], ["interp", "jit"]);
    let without = run("llvm", Some("/nowhere/libLLVM.so"));
    assert_eq!(without["tier"], "jit", "{without}");
    let why = without["fallback"].as_str().unwrap();
    assert!(why.contains("/nowhere/libLLVM.so"), "{why}");
    let with = run("llvm", None);
    assert_eq!(with["retval"], without["retval"]);
    assert!(with["tier"] == "llvm" || with["fallback"].is_string(), "{with}");
    let again = run("llvm", None);
    assert_eq!([&again["tier"], &again["retval"]], [&with["tier"], &with["retval"]]);
}

#[test]
fn bench_profile_says_which_lines_take_the_time() {
    let bench = Bench::new("profile");
    bench.capture("in.pcap", &[2, 3]);
    let quick = ["--rounds", "1", "--window", "1", "--in", "in.pcap", "--profile"];
    let result = bench.json(&[&["bench"], &PROGRAM[..], &quick].concat());
    let entries = ["programs", "trivial"].map(|list| result[list].as_array().cloned());
    let entry = entries.into_iter().flatten().flatten().next().expect("a measured program");
    let lines = entry["profile"].as_array().expect("lines");
    let percent: f64 = lines.iter().filter_map(|line| line["percent"].as_f64()).sum();
    assert!((99.0..101.0).contains(&percent), "{lines:?}");
    let of_program =
        |line: &&Value| line["place"].as_str().unwrap().starts_with("every_verdict.c:");
    assert!(lines.iter().filter(of_program).count() > 1, "{lines:?}");
}

#[test]
fn errors_are_json_when_json_was_asked_for() {
    let bench = Bench::new("json_errors");
    let ended = bench.run(&["inspect", "missing.o", "--json"]);
    assert_eq!(ended.status, 2);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().starts_with("missing.o: "));
    assert_eq!(ended.stderr, "");
}

#[test]
fn usage_errors_say_what_there_is() {
    let bench = Bench::new("usage");
    let message = bench.refusal(2, &run_args(&["--exec", "turbo"]));
    assert!(message.contains("[possible values: interp, jit, llvm]"), "{message}");
    let message = bench.refusal(2, &run_args(&["--dump-maps=count"]));
    assert!(message.contains("did you mean \"counts\"?"), "{message}");
    bench.file("in.pcap", "no capture");
    let message = bench.refusal(2, &run_args(&[]));
    assert!(message.contains("in.pcap: not a capture file"), "{message}");
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let bench = Bench::new("broken_pipe");
    let mut child = bench.command(&["completions", "bash"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn version_completions_and_manual_are_there() {
    let bench = Bench::new("generated");
    for flag in ["-V", "--version"] {
        let version = bench.run(&[flag]);
        assert_eq!(version.status, 0);
        assert!(version.stdout.starts_with("towpath 0."), "{}", version.stdout);
        let tier2 = match towpath_jit::llvm_library() {
            Ok(library) => format!("LLVM {}, {}", library.version, library.path),
            Err(why) => format!("none: {why}"),
        };
        assert!(version.stdout.contains(&tier2), "{}", version.stdout);
    }
    for shell in ["bash", "fish", "zsh"] {
        assert!(bench.run(&["completions", shell]).stdout.contains("towpath"));
    }
    assert!(bench.run(&["man"]).stdout.contains(".TH towpath 1"));
    assert_eq!(bench.run(&["man", "--dir", "pages"]).status, 0);
    let page = std::fs::read_to_string(bench.path("pages").join("towpath-prog-run.1")).unwrap();
    for section in ["EXAMPLES", "ENVIRONMENT", "EXIT STATUS"] {
        assert!(
            page.contains(&format!(".SH {section}"))
                || page.contains(&format!(".SH \"{section}\""))
        );
    }
    let whole = std::fs::read_to_string(bench.path("pages").join("towpath.1")).unwrap();
    assert!(whole.contains("towpath run filter.o"), "{whole}");
}
