//! Queues as people see them: configured, looked at in `status`, `stats` and metrics, and what a
//! dequeue program tells of the packets that it sent.

use serde_json::Value;

use super::{Daemon, SOCKET, scrape};
use crate::support::Bench;

/// The word that a queue's column has in the table of a command.
fn row(text: &str, first: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(first));
    let line = line.unwrap_or_else(|| panic!("no line of {first}: {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

/// A generator whose packets leave by way of a queue.
const CONFIG: &str = r#"
[[port]]
name = "gen"
kind = "generator"
rate = 5000
frames = ["02000000000202000000000108000000000000000000000000000000"]

[[port]]
name = "out"
kind = "sink"

[[attach]]
port = "gen"
object = "queued.o"

[[attach]]
port = "out"
object = "queued.o"
hook = "dequeue"
"#;

#[test]
fn a_queue_is_seen_from_all_sides() {
    let bench = Bench::new("daemon_queue");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let metrics = listener.expect("a port is free").port();
    let config = format!("[metrics]\nlisten = \"127.0.0.1:{metrics}\"\n{CONFIG}");
    let daemon = Daemon::start(&bench, &config);
    let queue = || daemon.json(&["status"])["queues"][0].clone();
    let number = |name: &str| queue()[name].as_u64().unwrap_or_else(|| panic!("{}", queue()));
    daemon.wait_for("packets to leave", || number("dequeued") > 100);
    assert!(number("wait_p99_ns") >= number("wait_p50_ns") && number("wait_p50_ns") > 0);
    assert_eq!((&queue()["name"], &queue()["ports"][0]), (&"queue".into(), &"out".into()));
    for command in ["status", "stats"] {
        let text = bench.run(&[command, "--socket", SOCKET]).stdout;
        assert!(row(&text, "queue").len() >= 9, "{text}");
        assert!(text.contains("wait p50") && text.contains("wait p99"), "{text}");
        assert_eq!(row(&text, "out")[0], "out", "{text}");
    }
    let text = bench.run(&["status", "out", "--socket", SOCKET]).stdout;
    assert_eq!(row(&text, "out").last().map(String::as_str), Some("runs"), "{text}");

    // The timestamps that the dequeue program requests for each packet.
    let words = ["map", "event_pipe", "sent", "--type", "xdp_tx_timestamp", "-c", "5"];
    let words = [&["--json"], &words[..], &["--socket", SOCKET]].concat();
    let heard = bench.run(&words).stdout;
    let records = heard.lines().map(|line| serde_json::from_str(line).expect("a record a line"));
    // There was no reader so far: some records found no room.
    let records: Vec<Value> = records.filter(|record: &Value| record["lost"].is_null()).collect();
    assert!(records.len() > 2, "{heard}");
    let out = daemon.json(&["port", "show", "out"])[0]["index"].clone();
    let value = |record: &Value, name: &str| record["value"][name].clone();
    for record in &records {
        let told = (value(record, "cookie"), value(record, "egress_ifindex"));
        assert_eq!(told, (3.into(), out.clone()));
    }
    let times = records.iter().map(|record| value(record, "tx_timestamp").as_u64());
    let times: Vec<u64> = times.collect::<Option<_>>().expect("numbers");
    assert!(times[0] > 0 && times.is_sorted(), "{times:?}");

    // No port sends any more: the queue fills, and each packet that it refuses is counted.
    let error = daemon.refusal(2, &["unload", "out", "--hook", "rx", "-a"]);
    assert!(error.contains("nothing is attached to its rx hook (ENOENT)"), "{error}");
    daemon.json(&["unload", "out", "--hook", "dequeue", "-a"]);
    daemon.wait_for("drops", || number("drops_full") > 10);
    assert_eq!((number("depth"), queue()["ports"].as_array().map(Vec::len)), (8, Some(0)));
    let text = scrape(metrics);
    for line in [
        "towpath_queue_depth{queue=\"queue\"",
        "towpath_queue_wait_seconds{queue=\"queue\"",
        "towpath_queue_dequeued_total{queue=\"queue\"",
        "towpath_queue_drops_total{queue=\"queue\"",
        "reason=\"queue_full\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let stats = daemon.json(&["stats"]);
    let dropped = stats["ports"]["gen"]["drops"]["queue_full"].as_u64().expect("a number");
    assert!(dropped > 0, "{stats}");
    daemon.end();
}
