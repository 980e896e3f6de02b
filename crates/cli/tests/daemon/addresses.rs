//! Keys and values are taken as they are shown: addresses and prefixes, where types say `__u32` and
//! tags say what it is.

use serde_json::{Value, json};

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// The text after `word` in a line of `map dump`, up to the next word.
fn shown<'a>(line: &'a str, word: &str, next: &str) -> &'a str {
    let (_, rest) = line.split_once(word).expect("it is in the line");
    rest.split_once(next).map_or(rest, |(it, _)| it).trim()
}

#[test]
fn tagged_numbers_are_addresses_on_the_command_line() {
    let bench = Bench::new("addresses");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.json(&["load", "p0", "addresses.o"]);
    let host = r#"{"gateway": "10.0.0.1", "servers": ["10.0.0.2", "10.0.0.3"], "port": 53,
        "bits": "02:00:00:00:00:09", "number": 7, "inner": "10.0.0.4"}"#;
    for (map, key, value) in [
        ("routes", "10.0.0.0/8", "192.0.2.1"),
        ("hosts", "198.51.100.7", host),
        ("seen", "203.0.113.9", "5"),
    ] {
        daemon.json(&["map", "update", map, "key", key, "value", value]);
        let dumped = bench.run(&["map", "dump", map, "--socket", SOCKET]);
        let line = dumped.stdout.lines().next().expect("an element");
        let found = shown(line, "key ", "  value");
        assert_eq!(found.trim_matches('"'), key, "{dumped:?}");
        // As it is shown, quotes and all.
        let looked_up = bench.run(&["map", "lookup", map, "key", found, "--socket", SOCKET]);
        assert_eq!(looked_up.stdout.trim(), line, "{looked_up:?}");
        let value = shown(line, "  value ", "\n");
        daemon.json(&["map", "delete", map, "key", found]);
        daemon.json(&["map", "update", map, "key", found, "value", value, "noexist"]);
        assert_eq!(bench.run(&["map", "dump", map, "--socket", SOCKET]).stdout, dumped.stdout);
    }
    let formatted = daemon.formatted(&["map", "dump", "hosts"]);
    let wanted: Value = serde_json::from_str(host).expect("it is JSON");
    assert_eq!(formatted[0], json!({ "key": "198.51.100.7", "value": wanted }));
    // Through its members a prefix is taken, too, as the JSON shows it.
    let formatted = daemon.formatted(&["map", "dump", "routes"]);
    assert_eq!(formatted[0]["key"], json!({ "prefix_bits": 8, "network": "10.0.0.0" }));
    let key = formatted[0]["key"].to_string();
    daemon.json(&["map", "lookup", "routes", "key", &key]);
    daemon.end();
}

#[test]
fn tagged_numbers_are_addresses_in_map_files() {
    let bench = Bench::new("addresses_file");
    bench.capture("in.pcap", &[1]);
    let contents = r#"{
        "routes": [{ "key": "10.0.0.0/8", "value": "192.0.2.1" }],
        "hosts": { "198.51.100.7": { "gateway": "10.0.0.1", "servers": ["10.0.0.2"] } },
        "seen": { "203.0.113.9": 5 },
        ".bss": { "own": "203.0.113.9" }
    }"#;
    bench.file("maps.json", contents);
    let run = ["run", "addresses.o", "--in", "in.pcap", "--dump-maps", "--map-init"];
    let first = bench.json(&[&run[..], &["maps.json"]].concat());
    let maps = &first["maps"];
    assert_eq!(maps["hosts"][0]["key"], "198.51.100.7", "{maps}");
    assert_eq!(maps["hosts"][0]["value"]["servers"], json!(["10.0.0.2", "0.0.0.0"]));
    assert_eq!(maps["routes"][0]["value"], "192.0.2.1");
    assert_eq!(maps["seen"], json!([{ "key": "203.0.113.9", "value": 5 }]));
    // The maps that one run shows are the initial contents of another run.
    bench.file("again.json", maps.to_string());
    let again = bench.json(&[&run[..], &["again.json"]].concat());
    assert_eq!(&again["maps"], maps);
    let told = bench.run(&[&run[..], &["maps.json"]].concat());
    assert!(told.stdout.contains("10.0.0.0/8"), "{told:?}");
    bench.file("wrong.json", r#"{ "routes": [{ "key": "10.0.0.0/33", "value": 1 }] }"#);
    let refused = bench.refusal(2, &[&run[..], &["wrong.json"]].concat());
    assert!(refused.contains("routes[0].key") && refused.contains("10.0.0.0/33"), "{refused}");
}
