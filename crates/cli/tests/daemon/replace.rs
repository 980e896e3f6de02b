//! Programs that take the place of others, by verbs: what was learnt stays.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use towpath_daemon::client::Client;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// The program's packet counter of its only flow.
fn packets(daemon: &Daemon<'_>) -> u64 {
    let found = daemon.formatted(&["map", "lookup", "flows", "key", "7"]);
    found["value"]["packets"].as_u64().expect("a number")
}

#[test]
fn a_replacement_keeps_maps_and_says_what_it_cannot_keep() {
    let bench = Bench::new("replace");
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let daemon = Daemon::start(&bench, ports);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let before = packets(&daemon);
    daemon.json(&["load", "gen", "keeper_2.o", "-n", "keeper", "--replace"]);
    assert!(packets(&daemon) >= before);

    let wide = ["load", "gen", "keeper_3.o", "-n", "keeper", "--replace"];
    let refused = daemon.refusal(1, &wide);
    assert!(refused.contains("map flows has changed: value_size was 16 and is 24"), "{refused}");
    let before = packets(&daemon);
    daemon.json(&[&wide[..], &["--map-migrate", "flows=copy"]].concat());
    assert!(packets(&daemon) >= before);
    let usage =
        bench.run(&[&wide[..], &["--map-migrate", "flows=move"], &["--socket", SOCKET]].concat());
    assert!(usage.stderr.contains("expected NAME=copy or NAME=drop"), "{usage:?}");

    // From here on nothing but this test writes to the map.
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&[&wide[..], &["--fresh-maps"]].concat());
    let entries = daemon.formatted(&["map", "dump", "flows"]);
    assert_eq!(entries, serde_json::json!([]));
    let shown = daemon.json(&["map", "show", "name", "pinned_totals"]);
    assert_eq!(shown["pinned"], serde_json::json!(["/sys/fs/bpf/pinned_totals"]), "{shown}");
    daemon.end();
}

#[test]
fn entries_that_would_be_lost_are_counted_and_kept_unless_they_may_go() {
    let bench = Bench::new("replace_lossy");
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let daemon = Daemon::start(&bench, ports);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    for key in 10..20 {
        let key = key.to_string();
        daemon.json(&["map", "update", "flows", "key", &key, "value", "{\"packets\": 1}"]);
    }
    let held =
        |map: &str| daemon.formatted(&["map", "dump", map]).as_array().expect("a list").len();
    let replace = |version: u32, more: &[&str]| -> Vec<String> {
        let object = format!("keeper_{version}.o");
        let words = ["load", "gen", &object, "-n", "keeper", "--replace"];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let refused =
        |words: &[String]| daemon.refusal(1, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let done =
        |words: &[String]| daemon.json(&words.iter().map(String::as_str).collect::<Vec<_>>());
    // A smaller map.
    let error = refused(&replace(5, &["--map-migrate", "flows=copy"]));
    assert!(error.contains("flows has no room for 6 of 10 entries"), "{error}");
    assert!(error.contains("--lossy"), "{error}");
    assert_eq!(held("flows"), 10, "the old one goes on");
    // The new program names the map otherwise.
    let error = refused(&replace(6, &[]));
    assert!(error.contains("flows, which holds 10 entries, is no longer in the object"), "{error}");
    assert!(error.contains("--map-rename flows=NEW"), "{error}");
    let error = refused(&replace(6, &["--map-rename", "flow=streams"]));
    assert!(error.contains("no map \"flow\"; did you mean \"flows\""), "{error}");
    assert_eq!(held("flows"), 10);
    done(&replace(6, &["--map-rename", "flows=streams"]));
    assert_eq!(held("streams"), 10);
    assert!(daemon.log().contains("map streams: 10 entries copied"), "{}", daemon.log());
    done(&replace(1, &["--map-rename", "streams=flows"]));
    assert_eq!(held("flows"), 10);
    done(&replace(5, &["--map-migrate", "flows=copy", "--lossy"]));
    assert_eq!(held("flows"), 4);
    assert!(daemon.log().contains("4 entries copied, 6 lost"), "{}", daemon.log());
    done(&replace(6, &["--map-migrate", "flows=drop"]));
    assert_eq!(held("streams"), 0);

    // A file says the same in its own words.
    daemon.json(&["map", "update", "streams", "key", "1", "value", "{\"packets\": 1}"]);
    daemon.json(&["unload", "gen", "-a"]);
    let file = |version: u32, more: &str| {
        let ports = ports.replacen("name = \"gen\"", "name = \"gen\"\nup = false", 1);
        let attach = "[[attach]]\nport = \"gen\"\nprogram = \"keeper\"\n";
        bench.file("t.toml", format!("{ports}{attach}object = \"keeper_{version}.o\"\n{more}"));
        let words = ["--json", "reload", "--accept-failures", "--socket", SOCKET];
        let report: Value = serde_json::from_str(&bench.run(&words).stdout).expect("a report");
        report["failures"].to_string()
    };
    assert_eq!(file(1, ""), "[]");
    for key in ["1", "2", "3", "4", "5"] {
        daemon.json(&["map", "update", "flows", "key", key, "value", "{\"packets\": 1}"]);
    }
    let failures = file(5, "map_migrate = { flows = \"copy\" }\n");
    assert!(failures.contains("no room for 1 of 5 entries"), "{failures}");
    assert_eq!(held("flows"), 5);
    let renamed = "map_rename = { flows = \"streams\" }\n";
    for _again in 0..2 {
        assert_eq!(file(6, renamed), "[]");
        assert_eq!(held("streams"), 5);
        daemon.json(&["reload"]);
    }
    daemon.end();
}

/// Number of replacements and of connections; the environment can ask for 1000 and a million.
fn extent() -> (u32, u64) {
    let replacements = std::env::var("TOWPATH_REPLACEMENTS").ok().and_then(|it| it.parse().ok());
    match replacements {
        Some(many) => (many, 1_000_000),
        None => (20, 20_000),
    }
}

/// A CPU for a worker, and those for everything else, where there is more than one.
fn cpus() -> Option<(usize, CpuSet)> {
    let mut rest = sched_getaffinity(None).expect("one's own thread");
    let mine = (0..CpuSet::MAX_CPU).rev().find(|&cpu| rest.is_set(cpu))?;
    rest.unset(mine);
    (rest.count() > 0).then_some((mine, rest))
}

/// Names of the daemon's threads, and where they may run, as /proc has it.
fn threads(daemon: &Daemon<'_>) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("it runs");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        // Threads come and go.
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let of = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        Some((of("Name:")?.to_owned(), of("Cpus_allowed_list:")?.to_owned()))
    };
    tasks.filter_map(status).collect()
}

/// Time for which the first worker's thread waited for a busy CPU, in nanoseconds.
fn waited_ns(daemon: &Daemon<'_>) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).expect("it runs");
    let is_worker = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
    };
    let path = tasks.filter_map(|task| Some(task.ok()?.path())).find(is_worker);
    let path = path.expect("it has one").join("schedstat");
    let times = std::fs::read_to_string(path).expect("the kernel counts it");
    times.split_whitespace().nth(1).and_then(|time| time.parse().ok()).expect("a number")
}

#[test]
fn a_worker_with_a_cpu_has_it_to_itself() {
    let Some((cpu, _)) = cpus() else { return println!("skipped: there is one CPU") };
    let bench = Bench::new("worker_cpu");
    let config = format!("{CONFIG}\n[[worker]]\ncpu = {cpu}\n\n[[worker]]\n");
    let daemon = Daemon::start(&bench, &config);
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let threads = threads(&daemon);
    assert!(threads.len() > 3, "{threads:?}");
    for (name, allowed) in threads {
        let is_there = allowed.split(',').any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (first.parse().unwrap()..=last.parse().unwrap()).contains(&cpu)
        });
        assert_eq!(is_there, name == "worker-0", "{name} may run on {allowed}");
    }
    daemon.end();

    let config = format!("{CONFIG}\n[[worker]]\ncpu = {}\n", CpuSet::MAX_CPU - 1);
    let daemon = Daemon::start(&bench, &config);
    let said = format!("cpu = {}: there is no such CPU", CpuSet::MAX_CPU - 1);
    assert!(daemon.log().contains(&said), "{}", daemon.log());
    daemon.end();
}

#[test]
fn under_load_no_entry_is_lost_and_no_frame_is_without_a_program() {
    let (replacements, connections) = extent();
    let bench = Bench::new("replace_under_load");
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    // It begins when it has its program.
    let ports = ports.replace("rate = 20000\n", "up = false\n");
    let cpus = cpus();
    let own = cpus.as_ref().map_or(String::new(), |(cpu, _)| format!("cpu = {cpu}\n"));
    let daemon = Daemon::start(&bench, &format!("{ports}\n[[worker]]\n{own}"));
    if let Some((_, rest)) = &cpus {
        // The test itself runs on other CPUs than the worker.
        sched_setaffinity(None, rest).expect("it has them");
    }
    let client = Client::new(&bench.path(SOCKET)).expect("there are descriptors");
    let uploaded = ["connections_1.o", "connections_2.o"].map(|name| {
        let bytes = std::fs::read(bench.path(name)).expect("a fixture");
        let path = format!("/v1/objects?name={name}");
        let uploaded: Value = client.send("PUT", &path, bytes.into()).expect("it is one");
        uploaded["sha256"].clone()
    });
    let replace = |version: usize| -> Value {
        let program = json!({
            "sha256": uploaded[version], "object": "connections.o", "program": "track",
            "set": {"count": connections.to_string()}, "map_sizes": {"connections": connections},
        });
        let request = json!({"port": "gen", "mode": "replace", "programs": [program]});
        client.json("POST", "/v1/links", &request).expect("it replaces the one before")
    };
    let value = |map: &str| daemon.json(&["map", "lookup", map, "key", "0"])["formatted"].clone();
    replace(0);
    daemon.json(&["port", "set", "gen", "up=true"]);
    let frames = || value("progress")["value"]["frames"].as_u64().expect("a number");
    daemon.wait_for("a full table", || frames() >= connections);

    let pause = daemon.json(&["map", "show", "name", "pause"])["id"].as_u64().expect("a number");
    let (mut pauses, mut own_pauses) = (Vec::new(), Vec::new());
    for turn in 1..=replacements as usize {
        let zero = json!({"key": 0, "value": 0});
        let _: Value = client.json("POST", &format!("/v1/maps/{pause}/update"), &zero).unwrap();
        let waited = waited_ns(&daemon);
        replace(turn % 2);
        let key = json!({"key": 0});
        let path = format!("/v1/maps/{pause}/lookup");
        let longest: Value = client.json("POST", &path, &key).expect("it is there");
        let longest = longest["value"].as_u64().expect("a number");
        pauses.push(longest);
        own_pauses.push(longest.saturating_sub(waited_ns(&daemon) - waited));
    }
    daemon.json(&["port", "set", "gen", "up=false"]);
    println!("{replacements} replacements, {connections} connections, {} frames", frames());
    for (what, mut pauses) in
        [("longest pause of each", pauses), ("without waits for a CPU", own_pauses)]
    {
        pauses.sort_unstable();
        let at = |share: f64| pauses[((pauses.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
        println!("{what}: p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms");
    }
    let progress = value("progress")["value"].clone();
    assert_eq!((&progress["lost"], &progress["wrong"]), (&json!(0), &json!(0)), "{progress}");
    let shown = daemon.json(&["map", "show", "name", "connections"]);
    assert_eq!(shown["towpath"]["entries"], json!(connections), "{shown}");
    let stats = daemon.json(&["stats"]);
    assert_eq!(stats["ports"]["out"]["tx_packets"], 0, "a frame passed without a program");
    assert_eq!(progress["frames"], stats["ports"]["gen"]["rx_packets"], "{stats}");
    daemon.end();
}
