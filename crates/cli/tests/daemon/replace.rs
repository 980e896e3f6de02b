//! Programs that take the place of others, by verbs: what was learnt stays.

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// What the program counted for its only flow.
fn packets(daemon: &Daemon<'_>) -> u64 {
    let found = daemon.json(&["map", "lookup", "flows", "key", "7"]);
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
    assert!(
        refused.contains("map flows is not as it was: value_size was 16 and is 24"),
        "{refused}"
    );
    let before = packets(&daemon);
    daemon.json(&[&wide[..], &["--map-migrate", "flows=copy"]].concat());
    assert!(packets(&daemon) >= before);
    let usage =
        bench.run(&[&wide[..], &["--map-migrate", "flows=move"], &["--socket", SOCKET]].concat());
    assert!(usage.stderr.contains("expected NAME=copy or NAME=drop"), "{usage:?}");

    // From here on nothing but this test writes to the map.
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&[&wide[..], &["--fresh-maps"]].concat());
    let entries = daemon.json(&["map", "dump", "flows"]);
    assert_eq!(entries, serde_json::json!([]));
    let shown = daemon.json(&["map", "show", "name", "pinned_totals"]);
    assert_eq!(shown[0]["pinned"], serde_json::json!(["/sys/fs/bpf/pinned_totals"]), "{shown}");
    daemon.end();
}
