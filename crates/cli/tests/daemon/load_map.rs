//! Many elements at once: `map load`, and what `map dump --format` writes.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::restart::kept;
use super::saved::Disk;
use super::{Daemon, SOCKET};
use crate::support::Bench;

/// Rows of `flows`: the keys, each with this number of packets.
fn rows(keys: impl IntoIterator<Item = u32>, packets: u32) -> String {
    let row = |key| format!("{}\n", json!({"key": key, "value": {"packets": packets}}));
    keys.into_iter().map(row).collect()
}

/// Keys and packets of `flows`.
fn flows(daemon: &Daemon<'_>) -> Vec<(u64, u64)> {
    let entries = daemon.formatted(&["map", "dump", "flows"]);
    let entries = entries.as_array().expect("a list").iter();
    let number = |value: &Value| value.as_u64().expect("a number");
    entries.map(|it| (number(&it["key"]), number(&it["value"]["packets"]))).collect()
}

/// Nothing arrives: `flows` has what the test puts into it.
fn start<'a>(bench: &'a Bench, config: &str) -> Daemon<'a> {
    let daemon = Daemon::start(bench, config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["load", "out", "keeper_1.o", "-n", "keeper"]);
    daemon
}

#[test]
fn files_are_loaded_as_they_were_dumped() {
    let bench = Bench::new("load_formats");
    let daemon = start(&bench, &kept());
    daemon.json(&["load", "p0", "holder.o"]);
    bench.file("flows.json", rows(0..64, 3));
    let loaded = daemon.json(&["map", "load", "flows", "flows.json"]);
    let all = json!({"rows": 64, "duplicates": 0, "written": 64, "unchanged": 0, "deleted": 0});
    assert_eq!(loaded, all);
    bench.file("totals.csv", "key,cpu0\n1,5\n3,7\n");
    daemon.json(&["map", "load", "totals", "totals.csv"]);
    bench.file("waiting.json", "{\"value\": 1}{\"value\": 2}{\"value\": 3}");
    for map in ["waiting", "piled"] {
        daemon.json(&["map", "load", map, "waiting.json"]);
        let first = daemon.json(&["map", "peek", map]);
        assert_eq!(first["value"], json!(["0x01", "0x00", "0x00", "0x00"]), "{map}");
    }
    bench.file("locks.csv", "key,value.count\n5,9\n0x6,8\n");
    daemon.json(&["map", "load", "locks", "locks.csv", "--replace"]);
    daemon.json(&["map", "load", "timers", "locks.csv"]);
    for map in ["flows", "totals", "waiting", "piled", "locks", "timers"] {
        let before = daemon.json(&["map", "dump", map]);
        let text = serde_json::to_string(&before).expect("it is JSON");
        bench.file("all.json", text);
        let mut files = vec!["all.json".to_owned()];
        for format in ["json", "csv", "packed"] {
            let dump = ["map", "dump", map, "--format", format, "--socket", SOCKET];
            let file = format!("all.{format}");
            let ended = bench.command(&dump).output().expect("it was built");
            bench.file(&file, ended.stdout);
            files.push(file);
        }
        for file in files {
            let loaded = daemon.json(&["map", "load", map, &file, "--replace"]);
            assert_eq!(daemon.json(&["map", "dump", map]), before, "{map} {file}");
            if !["waiting", "piled"].contains(&map) {
                assert_eq!(loaded["unchanged"], loaded["rows"], "{map} {file}");
            }
        }
    }
    let said = bench.run(&["map", "load", "flows", "flows.json", "--replace", "--socket", SOCKET]);
    assert_eq!(said.stdout, "64 rows: 0 written, 64 there already, 0 others deleted\n");
    daemon.end();
}

#[test]
fn a_file_that_does_not_fit_changes_nothing() {
    let bench = Bench::new("load_refused");
    let daemon = start(&bench, &kept());
    daemon.json(&["map", "update", "flows", "key", "9", "value", "{}"]);
    bench.file("wrong.json", rows(0..40, 1) + "{\"key\": 1, \"value\": {\"packts\": 2}}\n");
    let refused = daemon.refusal(1, &["map", "load", "flows", "wrong.json", "--replace"]);
    assert!(refused.contains("map flows: line 41: value: unknown name \"packts\""), "{refused}");
    bench.file("many.json", rows(0..65, 1));
    let refused = daemon.refusal(1, &["map", "load", "flows", "many.json", "--replace"]);
    assert!(refused.contains("it has room for 64 entries, and is to have 65"), "{refused}");
    bench.file("stages.csv", "key,value\n0,keeper\n");
    let refused = daemon.refusal(1, &["map", "load", "stages", "stages.csv"]);
    assert!(refused.contains("its values stand for programs"), "{refused}");
    let refused = daemon.refusal(2, &["map", "load", "flows", "none.json"]);
    assert!(refused.contains("none.json: No such file"), "{refused}");
    assert_eq!(flows(&daemon), [(9, 0)]);
    daemon.end();
}

#[test]
fn what_was_loaded_is_there_after_a_kill() {
    let bench = Bench::new("load_restart");
    let maps = "maps = { flows = [{ key = 1, value = { packets = 1 } }, \
                { key = 2, value = { packets = 1 } }] }";
    let attach = format!(
        "\n[[attach]]\nport = \"out\"\nobject = \"keeper_1.o\"\nprogram = \"keeper\"\n{maps}\n"
    );
    let config = kept() + &attach;
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["map", "update", "flows", "key", "40", "value", r#"{"packets": 7}"#]);
    daemon.json(&["map", "update", "flows", "key", "41", "value", r#"{"packets": 7}"#]);
    // Beside what is there: key 40 is another one's now.
    bench.file("some.json", rows([2, 3, 40], 5));
    daemon.json(&["map", "load", "flows", "some.json"]);
    let merged = [(1, 1), (2, 5), (3, 5), (40, 5), (41, 7)];
    assert_eq!(flows(&daemon), merged);
    let daemon = daemon.killed(&config);
    assert_eq!(flows(&daemon), merged);
    daemon.json(&["map", "update", "flows", "key", "3", "value", r#"{"packets": 6}"#]);
    bench.file("more.json", rows([50], 5));
    daemon.json(&["map", "load", "flows", "more.json"]);
    let daemon = daemon.killed(&config);
    assert_eq!(flows(&daemon), [(1, 1), (2, 5), (3, 6), (40, 5), (41, 7), (50, 5)]);
    // In place of it, as many as there may be: what configuration has besides does not come back.
    bench.file("all.json", rows(2..66, 8));
    let loaded = daemon.json(&["map", "load", "flows", "all.json", "--replace"]);
    assert_eq!((&loaded["written"], &loaded["deleted"]), (&json!(64), &json!(1)));
    daemon.json(&["map", "delete", "flows", "key", "65"]);
    let daemon = daemon.killed(&config);
    let all: Vec<(u64, u64)> = (2..65).map(|key| (key, 8)).collect();
    assert_eq!(flows(&daemon), all);
    // A document is written, and another one: the file stays as long as one of them needs it.
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.json(&["port", "add", "another", "kind=sink"]);
    daemon.json(&["map", "pin", "flows", "fw/flows"]);
    let daemon = daemon.killed(&config);
    assert_eq!(flows(&daemon), all);
    assert_eq!(daemon.json(&["status"])["failures"], json!([]));
    daemon.end();
    let daemon = Daemon::start(&bench, &config);
    assert_eq!(flows(&daemon), all);
    daemon.end();
}

/// A program that takes the place of another one, with another map, gets what was loaded.
#[test]
fn what_was_loaded_goes_on_with_a_new_version() {
    let bench = Bench::new("load_migrate");
    let config = kept();
    let daemon = start(&bench, &config);
    bench.file("flows.json", rows(0..20, 3));
    daemon.json(&["map", "load", "flows", "flows.json"]);
    let migrated = ["load", "out", "keeper_3.o", "-n", "keeper", "--replace", "--map-migrate"];
    daemon.json(&[&migrated[..], &["flows=copy"]].concat());
    let before = flows(&daemon);
    assert_eq!(before.len(), 20);
    let daemon = daemon.killed(&config);
    assert_eq!(flows(&daemon), before);
    daemon.end();
}

/// Two at once are one after the other.
#[test]
fn two_files_at_once_are_two_in_a_row() {
    let bench = Bench::new("load_two");
    let daemon = start(&bench, &kept());
    bench.file("one.json", rows(0..64, 1));
    bench.file("two.json", rows(0..32, 2));
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for file in ["one.json", "two.json"] {
                let daemon = &daemon;
                scope.spawn(move || daemon.json(&["map", "load", "flows", file, "--replace"]));
            }
        });
        let found = flows(&daemon);
        let one: Vec<(u64, u64)> = (0..64).map(|key| (key, 1)).collect();
        let two: Vec<(u64, u64)> = (0..32).map(|key| (key, 2)).collect();
        assert!(found == one || found == two, "{found:?}");
    }
    daemon.end();
}

#[test]
fn a_full_disk_refuses_a_file_and_changes_nothing() {
    let bench = Bench::new("load_full");
    let Some(disk) = Disk::mount(&bench) else {
        return println!("skipped: a disk that is soon full needs root");
    };
    let config = kept().replacen("dir = \"saved\"", "dir = \"disk/saved\"", 1);
    let daemon = start(&bench, &config);
    bench.file("flows.json", rows(0..64, 3));
    daemon.json(&["map", "update", "flows", "key", "3", "value", "{}"]);
    disk.fill();
    let refused = daemon.refusal(1, &["map", "load", "flows", "flows.json"]);
    assert!(refused.contains("it can't be saved, and nothing changed"), "{refused}");
    assert_eq!(flows(&daemon), [(3, 0)]);
    let left: Vec<PathBuf> = std::fs::read_dir(bench.path("disk/saved/maps"))
        .expect("it is there")
        .map(|entry| entry.expect("it is there").path())
        // Another map is pinned, and saved from time to time, or can't be.
        .filter(|path| !path.to_string_lossy().contains("/new-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    disk.free();
    daemon.json(&["map", "load", "flows", "flows.json"]);
    let daemon = daemon.killed(&config);
    assert_eq!(flows(&daemon).len(), 64);
    daemon.end();
}
