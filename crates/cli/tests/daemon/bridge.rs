//! Learnt addresses of bridges, and shadow interfaces of ports.

use serde_json::json;

use super::{CONFIG, Daemon};
use crate::support::Bench;

const BRIDGE: &str = r#"
[[bridge]]
name = "br0"
ageing = 60

[[port]]
name = "talker"
kind = "generator"
rate = 1000
frames = ["02000000000202000000000908000000000000000000000000000000"]
upper = "br0"

[[port]]
name = "listener"
kind = "sink"
upper = "br0"
"#;

#[test]
fn a_bridge_says_what_it_has_learnt() {
    let bench = Bench::new("daemon_bridge");
    let daemon = Daemon::start(&bench, BRIDGE);
    daemon.wait_for("traffic", || daemon.rx("talker") > 0);
    let bridges = daemon.json(&["bridge", "show"]);
    assert_eq!((&bridges[0]["name"], &bridges[0]["ageing"]), (&json!("br0"), &json!(60)));
    assert_eq!(bridges[0]["ports"], json!(["talker", "listener"]), "{bridges}");
    let fdb = daemon.json(&["bridge", "fdb", "br0"]);
    assert_eq!(fdb[0]["mac"], "02:00:00:00:00:09", "{fdb}");
    assert_eq!((&fdb[0]["port"], &fdb[0]["vlan"]), (&json!("talker"), &json!(0)), "{fdb}");
    assert!(fdb[0]["age"].as_f64().is_some_and(|age| age < 60.0), "{fdb}");
    let error = daemon.refusal(1, &["bridge", "fdb", "br1"]);
    assert!(error.contains("did you mean \"br0\"?"), "{error}");
    daemon.end();
}

#[test]
fn bridges_are_made_changed_and_taken_away() {
    let bench = Bench::new("daemon_bridge_verbs");
    let daemon = Daemon::start(&bench, CONFIG);
    let made = daemon.json(&["bridge", "add", "br1", "ageing=60"]);
    assert_eq!((&made["name"], &made["ageing"]), (&json!("br1"), &json!(60)), "{made}");
    assert!(daemon.refusal(1, &["bridge", "add", "br1"]).contains("EEXIST"));
    assert!(daemon.refusal(1, &["bridge", "add", "gen"]).contains("gen"), "the name is taken");
    assert!(daemon.refusal(2, &["bridge", "add", "br2", "aging=1"]).contains("ageing=SECONDS"));
    for port in ["gen", "p0"] {
        daemon.json(&["port", "set", port, "upper=br1"]);
    }
    let known = || daemon.json(&["bridge", "fdb", "br1"]);
    daemon.wait_for("an address", || known()[0]["port"] == "gen");
    // A bridge forgets an address that sends nothing for a second.
    assert_eq!(daemon.json(&["bridge", "set", "br1", "ageing=1"])["ageing"], 1);
    daemon.wait_for("an address", || known()[0]["port"] == "gen");
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.wait_for("its end", || known() == json!([]));
    let error = daemon.refusal(1, &["bridge", "del", "br1"]);
    assert!(error.contains("br1 is the upper of port gen"), "{error}");
    daemon.json(&["port", "set", "gen", "upper="]);
    daemon.json(&["port", "set", "p0", "upper="]);
    daemon.json(&["bridge", "del", "br1"]);
    assert_eq!(daemon.json(&["bridge", "show"]), json!([]));
    assert!(daemon.refusal(1, &["bridge", "set", "br1", "ageing=1"]).contains("ENODEV"));
    daemon.end();
}

/// The ifindex of an interface of the host's.
fn host_ifindex(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?;
    text.trim().parse().ok()
}

#[test]
fn a_port_has_a_shadow_as_long_as_it_is_wanted() {
    let bench = Bench::new("daemon_shadow");
    let daemon = Daemon::start(&bench, CONFIG);
    let name = format!("twp-sh{}", std::process::id() % 100_000);
    let named = format!("shadow={name}");
    if !std::path::Path::new("/dev/net/tun").exists() || !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: taps need root and /dev/net/tun");
    }
    let error =
        daemon.refusal(1, &["port", "add", "x0", "kind=pair", "peer=x1", &named, "upper=out"]);
    assert!(error.contains("a port with a shadow gets its upper from that"), "{error}");
    daemon.json(&["port", "add", "x0", "kind=pair", "peer=x1", &named, "mtu=1400"]);
    let shown = daemon.json(&["port", "show", "x0"])[0].clone();
    assert_eq!(shown["index"].as_u64(), host_ifindex(&name), "the same number: {shown}");
    let mtu = || std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok();
    assert_eq!(mtu().as_deref().map(str::trim), Some("1400"));
    daemon.json(&["port", "set", "x0", "mtu=1300"]);
    assert_eq!(mtu().as_deref().map(str::trim), Some("1300"), "it follows");
    daemon.json(&["load", "x0", "every_verdict.o", "-n", "every_verdict"]);
    let link = daemon.json(&["status", "x0"])["links"][0].clone();
    assert_eq!(link["ifindex"].as_u64(), host_ifindex(&name), "{link}");
    daemon.json(&["port", "set", "x0", "shadow=", "upper=out"]);
    assert_eq!(host_ifindex(&name), None, "it went");
    assert_eq!(daemon.json(&["port", "show", "x0"])[0]["upper"], "out");
    daemon.json(&["port", "set", "x0", "upper=", &named]);
    assert!(host_ifindex(&name).is_some());
    daemon.json(&["port", "del", "x0"]);
    assert_eq!(host_ifindex(&name), None, "it goes with its port");
    daemon.end();
}
