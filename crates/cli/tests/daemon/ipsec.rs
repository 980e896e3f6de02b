//! Security associations and policies by commands.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::Daemon;
use crate::support::Bench;

const ESP: &str = r#"
[[port]]
name = "gen"
kind = "generator"
rate = 2000
upper = "enc"

[[port]]
name = "enc"
kind = "ipsec"
upper = "dec"

[[port]]
name = "dec"
kind = "ipsec"
upper = "out"

[[port]]
name = "out"
kind = "sink"
"#;

fn write_key(bench: &Bench, name: &str, mode: u32) {
    bench.file(name, "# ours\n0x5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2\n");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(bench.path(name), mode).expect("it is ours");
}

#[test]
fn sas_and_policies_are_added_shown_and_removed() {
    let bench = Bench::new("daemon_ipsec");
    let daemon = Daemon::start(&bench, ESP);
    write_key(&bench, "a.key", 0o600);
    write_key(&bench, "open.key", 0o644);
    let ends = ["source=192.0.2.1", "destination=192.0.2.2", "spi=0x1001"];
    let add = |name: &'static str, more: &[&'static str]| {
        [&["sa", "add", name, "suite=aes-gcm-128"], &ends[..], more].concat()
    };
    let made = daemon.json(&add("in1", &["port=dec", "direction=in", "key_file=a.key"]));
    assert_eq!((&made["spi"], &made["status"]), (&json!(0x1001), &json!("active")), "{made}");
    let out = ["port=enc", "direction=out", "key_file=a.key", "reqid=1"];
    let limits = ["hard.seconds=3600", "soft.packets=5"];
    let made = daemon.json(&add("out1", &[&out[..], &limits].concat()));
    assert_eq!(made["hard"], json!({ "seconds": 3600 }), "{made}");
    let networks = ["source=198.18.0.0/15", "destination=198.18.0.0/15"];
    let policy = ["policy", "add", "all", "port=enc", "action=protect", "reqid=1", "priority=5"];
    let made = daemon.json(&[&policy[..], &networks].concat());
    assert_eq!((&made["reqid"], &made["wanted_by"]), (&json!(1), &json!(["api"])), "{made}");
    let packets = || daemon.json(&["sa", "show", "in1"])[0]["packets"].as_u64().unwrap_or(0);
    daemon.wait_for("packets", || packets() > 0);
    daemon.wait_for("the soft limit", || {
        daemon.json(&["sa", "show", "out1"])[0]["status"] == "dying"
    });
    let told = "sa out1: it reached a soft limit, and needs new keys";
    daemon.wait_for("its event", || daemon.log().contains(told));
    let shown = |words: &[&str]| {
        let done = bench.run(&[words, &["--socket", super::SOCKET]].concat());
        assert_eq!(done.status, 0, "{words:?}");
        done.stdout
    };
    let table = shown(&["sa", "show"]);
    assert!(table.contains("0x1001") && table.contains("active"), "{table}");
    assert!(!shown(&["sa", "show", "out1"]).contains("5ec2e7"), "a key is shown");
    assert!(shown(&["policy", "show"]).contains("protect reqid 1"));
    // Mistakes.
    let refused = |words: &[&str]| daemon.refusal(1, words);
    let open = refused(&add("x", &["port=enc", "direction=in", "key_file=open.key"]));
    assert!(open.contains("others than its owner can read or change it: chmod 600"), "{open}");
    assert!(refused(&["sa", "del", "out"]).contains("did you mean \"out1\"?"));
    assert!(refused(&["sa", "flush", "en"]).contains("no port \"en\""));
    assert!(refused(&["policy", "del", "al"]).contains("did you mean \"all\"?"));
    daemon.json(&["port", "set", "gen", "upper=out"]);
    assert!(refused(&["port", "del", "enc"]).contains("port enc has the SA out1"));
    assert!(daemon.refusal(2, &["sa", "add", "x", "spi"]).contains("expected KEY=VALUE"));
    // Their end.
    daemon.json(&["policy", "del", "all"]);
    daemon.json(&["sa", "del", "in1"]);
    daemon.json(&["sa", "flush"]);
    assert_eq!(daemon.json(&["sa", "show"]), json!([]));
    assert_eq!(daemon.json(&["policy", "show"]), json!([]));
    daemon.json(&["port", "del", "enc"]);
    assert!(!daemon.log().contains("5ec2e7"), "a key is in the log");
    daemon.end();
}
