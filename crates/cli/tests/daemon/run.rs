//! `prog run` of a program that the daemon runs: a packet beside the traffic, and live frames.

use serde_json::json;

use super::{CONFIG, Daemon};
use crate::support::{Bench, frame};

#[test]
fn a_running_program_judges_a_packet_beside_the_traffic() {
    let bench = Bench::new("prog_run_packet");
    let daemon = Daemon::start(&bench, CONFIG);
    bench.file("drop", frame(1));
    let run = ["prog", "run", "name", "every_verdict", "--data-in", "drop"];
    let done = daemon.json(&[&run[..], &["--repeat", "3", "--data-out", "out"]].concat());
    assert_eq!((&done["retval"], &done["data_size_out"]), (&json!(1), &json!(60)), "{done}");
    assert_eq!(std::fs::read(bench.path("out")).expect("it was written"), frame(1));
    // The maps are those of the traffic.
    let counted = daemon.formatted(&["map", "lookup", "counts", "key", "1"]);
    let frames = counted["values"].as_array().expect("one a worker").iter();
    let frames: u64 = frames.filter_map(|it| it["value"]["frames"].as_u64()).sum();
    assert_eq!(frames, 3, "{counted}");

    let index = daemon.json(&["port", "show", "p0"])[0]["index"].as_u64().expect("a number") as u32;
    let context = |ifindex: u32, queue: u32| -> Vec<u8> {
        [4, 64, 0, ifindex, queue, 0].iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
    };
    bench.file("with_metadata", [&[7; 4][..], &frame(2)].concat());
    bench.file("ctx", context(index, 0));
    let run = ["prog", "run", "name", "every_verdict", "--data-in", "with_metadata"];
    let done = daemon.json(&[&run[..], &["--ctx-in", "ctx", "--ctx-out", "after"]].concat());
    assert_eq!((&done["retval"], &done["data_size_out"]), (&json!(2), &json!(64)), "{done}");
    let after = std::fs::read(bench.path("after")).expect("it was written");
    assert_eq!(after[..8], context(0, 0)[..8], "four bytes of metadata, then the packet");
    bench.file("ctx", context(index, 9));
    let refused = daemon.refusal(1, &[&run[..], &["--ctx-in", "ctx"]].concat());
    assert!(refused.contains("EINVAL"), "no such queue: {refused}");
    daemon.end();
}

#[test]
fn live_frames_go_where_a_running_program_says() {
    let bench = Bench::new("prog_run_live");
    let daemon = Daemon::start(&bench, CONFIG);
    bench.file("drop", frame(1));
    bench.file("tx", frame(3));
    fn words<'a>(data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let run = ["prog", "run", "name", "every_verdict", "--data-in", data, "--live"];
        [&run[..], more].concat()
    }
    let port = |name: &str| daemon.json(&["stats"])["ports"][name].clone();
    let more = ["--port", "p0", "--repeat", "1000", "--batch-size", "100"];
    daemon.json(&words("drop", &more));
    assert_eq!(port("p0")["drops"]["verdict"], json!(1000));
    daemon.json(&words("tx", &["--port", "p0", "--repeat", "500"]));
    assert_eq!(port("p0")["tx_packets"], json!(500));
    daemon.wait_for("the other end", || port("p1")["rx_packets"] == json!(500));

    let refused = |status: i32, more: &[&str]| daemon.refusal(status, &words("drop", more));
    assert!(refused(1, &["--batch-size", "257"]).contains("E2BIG"));
    assert!(refused(1, &["--port", "p9"]).contains("no port \"p9\""));
    assert!(refused(2, &["--data-out", "out"]).contains("--live"));
    let file = ["prog", "run", "every_verdict.o", "--data-in", "drop", "--live"];
    assert!(daemon.refusal(2, &file).contains("of the daemon"));
    daemon.end();
}
