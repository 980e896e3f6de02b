//! Programs that are bound to a port.

use serde_json::json;

use super::{CONFIG, Daemon};
use crate::support::{Bench, frame};

#[test]
fn a_bound_program_asks_for_hints_and_stays_where_it_is() {
    let bench = Bench::new("dev_bound");
    let daemon = Daemon::start(&bench, CONFIG);
    let unbound = daemon.refusal(1, &["load", "p0", "bound.o"]);
    assert!(unbound.contains("bpf_xdp_metadata_rx_timestamp"), "{unbound}");
    let loaded = daemon.json(&["load", "p0", "bound.o", "--dev-bound"]);
    let id = loaded["links"][0]["prog_id"].to_string();
    assert_eq!(daemon.json(&["prog", "show", "id", &id])["towpath"]["bound_to"], json!("p0"));

    // A frame that the other end sends is judged by it: there is no hint.
    bench.file("tx", frame(3));
    let run = ["prog", "run", "name", "every_verdict", "--data-in", "tx", "--live", "--port", "p1"];
    daemon.json(&run);
    let drops = || daemon.json(&["stats"])["ports"]["p0"]["verdicts"]["XDP_DROP"].clone();
    daemon.wait_for("its verdict", || drops() == json!(1));

    let run = daemon.refusal(1, &["prog", "run", "id", &id, "--data-in", "tx"]);
    assert!(run.contains("EINVAL"), "{run}");
    let slot = ["map", "update", "jumps", "key", "0", "value", "id", &id];
    let slot = daemon.refusal(1, &slot);
    assert!(slot.contains("EINVAL"), "it may run nowhere else: {slot}");
    bench.file(
        "maps",
        r#"{"tx_ports": [{"key": 0, "value": {"ifindex": 65538, "prog": "egress"}}]}"#,
    );
    let words = ["load", "p1", "redirector.o", "-n", "redirector", "--map-init", "maps"];
    let filled = daemon.refusal(1, &[&words[..], &["--dev-bound"]].concat());
    assert!(filled.contains("EINVAL"), "{filled}");

    daemon.json(&["prog", "pin", "id", &id, "bound"]);
    daemon.json(&["port", "del", "p0"]);
    let pinned = daemon.json(&["prog", "show", "pinned", "bound"]);
    assert_eq!(pinned["towpath"]["bound_to"], json!(""), "its port is gone");
    daemon.end();
}

#[test]
fn a_bound_program_is_on_one_port() {
    let bench = Bench::new("dev_bound_config");
    let attach = "[[attach]]\nobject = \"bound.o\"\ndev_bound = true\n";
    bench.file("one.toml", format!("{CONFIG}{attach}port = \"p0\"\n"));
    assert_eq!(bench.run(&["check", "-c", "one.toml"]).status, 0);
    bench.file("two.toml", format!("{CONFIG}{attach}port = [\"p0\", \"p1\"]\n"));
    let refused = bench.refusal(2, &["check", "-c", "two.toml"]);
    assert!(refused.contains("it is bound to port p0 (EINVAL)"), "{refused}");
    let daemon = Daemon::start(&bench, &format!("{CONFIG}{attach}port = \"p0\"\n"));
    assert_eq!(daemon.json(&["prog", "show", "bound"])["towpath"]["bound_to"], json!("p0"));
    // The port is created again, and the program is loaded again with it.
    bench.file("t.toml", format!("{}{attach}port = \"p0\"\n", CONFIG.replace("p1", "p2")));
    daemon.json(&["reload"]);
    assert_eq!(daemon.json(&["prog", "show", "bound"])["towpath"]["bound_to"], json!("p0"));
    assert_eq!(daemon.json(&["status", "p0"])["links"][0]["name"], json!("bound"));
    daemon.end();
}
