//! Programs and maps as values of maps, while traffic flows.

use serde_json::{Value, json};

use super::{CONFIG, Daemon};
use crate::support::Bench;

/// The id of the map of that name that the program of that id uses.
fn map_of(daemon: &Daemon<'_>, program: &Value, name: &str) -> String {
    let maps = daemon.json(&["map", "show"]);
    let is_used = |map: &&Value| {
        let programs = map["towpath"]["prog_ids"].as_array();
        map["name"] == name && programs.is_some_and(|programs| programs.contains(program))
    };
    let found = maps.as_array().expect("a list").iter().find(is_used);
    found.expect("it has one")["id"].to_string()
}

#[test]
fn program_arrays_hold_programs_of_other_objects() {
    let bench = Bench::new("refer_programs");
    // Frames to address 7 go where `jumps[1]` leads, or are aborted.
    let config = CONFIG.replace("0200000000020200", "0200000000070200");
    let daemon = Daemon::start(&bench, &config);
    let count = |verdict: &str| {
        daemon.json(&["stats"])["ports"]["gen"]["verdicts"][verdict].as_u64().expect("a number")
    };
    daemon.wait_for("an aborted frame", || count("XDP_ABORTED") > 0);
    let main = daemon.json(&["prog", "show", "name", "every_verdict"])["id"].clone();
    let jumps = map_of(&daemon, &main, "jumps");
    let loaded = daemon.json(&["load", "p0", "every_verdict.o", "-n", "tail"]);
    let tail = loaded["links"][0]["prog_id"].clone();
    let slot = ["map", "update", "id", &jumps, "key", "1", "value"];
    daemon.json(&[&slot[..], &["name", "tail"]].concat());
    daemon.wait_for("a frame behind the tail call", || count("XDP_TX") > 0);
    let id = tail.as_u64().expect("a number") as u32;
    let bytes = |number: u32| -> Value {
        number.to_le_bytes().iter().map(|byte| format!("{byte:#04x}")).collect()
    };
    let element = json!({"key": bytes(1), "value": bytes(id)});
    assert_eq!(daemon.json(&["map", "dump", "id", &jumps]), json!([element]));
    assert_eq!(daemon.json(&["map", "lookup", "id", &jumps, "key", "1"]), element);

    // The slot keeps what nothing else has any more.
    daemon.json(&["unload", "p0", "-a"]);
    let before = count("XDP_TX");
    daemon.wait_for("more of them", || count("XDP_TX") > before);
    daemon.json(&["map", "delete", "id", &jumps, "key", "1"]);
    assert_eq!(daemon.json(&["prog", "show"]).as_array().map(Vec::len), Some(1));

    let refused = |more: &[&str]| daemon.refusal(1, &[&slot[..], more].concat());
    assert!(refused(&["id", "4000"]).contains("ENOENT"));
    assert!(refused(&["name", "every_verdict", "noexist"]).contains("EINVAL"));
    let past = ["map", "update", "id", &jumps, "key", "9", "value", "name", "every_verdict"];
    assert!(daemon.refusal(1, &past).contains("E2BIG"));
    daemon.json(&[&slot[..], &["id", &main.to_string()]].concat());
    daemon.end();
}

#[test]
fn entries_of_device_maps_get_programs_of_their_kind() {
    let bench = Bench::new("refer_targets");
    let daemon = Daemon::start(&bench, CONFIG);
    let port = daemon.json(&["port", "show", "out"])[0]["index"].clone();
    let maps = json!({"tx_ports": [{"key": 0, "value": {"ifindex": port, "prog": "egress"}}]});
    bench.file("maps.json", maps.to_string());
    let words = ["load", "p0", "redirector.o", "-n", "redirector", "--map-init", "maps.json"];
    let program = daemon.json(&words)["links"][0]["prog_id"].clone();
    let tx_ports = map_of(&daemon, &program, "tx_ports");
    let egress = daemon.json(&["prog", "show", "egress"])["id"].clone();

    let out = port.to_string();
    let entry = ["map", "update", "id", &tx_ports, "key", "1", "value", &out];
    daemon.json(&[&entry[..], &["prog", "id", &egress.to_string()]].concat());
    let lookup =
        || daemon.formatted(&["map", "lookup", "id", &tx_ports, "key", "1"])["value"].clone();
    assert_eq!(lookup(), json!({"ifindex": port, "prog_id": egress}));
    daemon.json(&["prog", "pin", "name", "egress", "fw/egress"]);
    daemon.json(&[&entry[..], &["prog", "pinned", "fw/egress", "exist"]].concat());
    daemon.json(&entry);
    assert_eq!(lookup(), json!({"ifindex": port}));

    let refused = |more: &[&str]| daemon.refusal(1, &[&entry[..], more].concat());
    let why = refused(&["prog", "id", &program.to_string()]);
    assert!(why.contains("EINVAL"), "it is none for device maps: {why}");
    assert!(refused(&["prog", "name", "nobody"]).contains("ENOENT"));
    let error = daemon.refusal(1, &["map", "update", "id", &tx_ports, "key", "1", "value", "9999"]);
    assert!(error.contains("EINVAL"), "{error}");
    daemon.end();
}

#[test]
fn maps_of_maps_get_maps() {
    let bench = Bench::new("refer_maps");
    let daemon = Daemon::start(&bench, CONFIG);
    let program = daemon.json(&["prog", "show", "every_verdict"])["id"].clone();
    let tenants = map_of(&daemon, &program, "tenants");
    let slot = ["map", "update", "id", &tenants, "key", "0", "value"];
    // Its inner maps have values of 8 bytes.
    let error = daemon.refusal(1, &[&slot[..], &["name", "overrides"]].concat());
    assert!(error.contains("EINVAL"), "{error}");
    daemon.end();
}
