//! Saved maps and pins beyond plain values, objects that are not saved, and a full disk.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::restart::kept;
use super::{Daemon, SOCKET};
use crate::support::Bench;

#[test]
fn queues_stacks_and_locked_values_come_back() {
    let bench = Bench::new("saved_kinds");
    let config = kept();
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["load", "out", "holder.o"]);
    for map in ["waiting", "piled"] {
        for number in ["1", "2", "3"] {
            daemon.json(&["map", "update", map, "value", number]);
        }
        daemon.json(&["map", "pin", map, &format!("fw/{map}")]);
    }
    for map in ["locks", "timers"] {
        daemon.json(&["map", "update", map, "key", "5", "value", r#"{"count": 7}"#]);
        daemon.json(&["map", "pin", map, &format!("fw/{map}")]);
    }
    let status = daemon.json(&["status"]);
    let lost = status["not_saved"].as_str().expect("timers are not saved");
    assert!(lost.contains("fw/timers (its values have timers"), "{lost}");
    assert!(!lost.contains("waiting") && !lost.contains("locks"), "{lost}");
    daemon.end();

    let daemon = Daemon::start(&bench, &config);
    let values = |map: &str| -> Vec<Value> {
        let entries = daemon.formatted(&["map", "dump", "pinned", &format!("fw/{map}")]);
        let entries = entries.as_array().expect("a list").clone();
        entries.iter().map(|entry| entry["value"].clone()).collect()
    };
    assert_eq!(values("waiting"), [json!(1), json!(2), json!(3)], "the next one first");
    assert_eq!(values("piled"), [json!(3), json!(2), json!(1)]);
    assert_eq!(values("locks")[0]["count"], json!(7));
    daemon.end();
}

#[test]
fn elements_that_name_programs_and_ports_come_back() {
    let bench = Bench::new("saved_references");
    let config = kept();
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    let loaded = daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["load", "p0", "redirector.o", "-n", "redirector"]);
    daemon.json(&["port", "add", "more", "kind=sink"]);
    let index = |daemon: &Daemon<'_>| daemon.json(&["port", "show", "more"])[0]["index"].clone();
    let before = index(&daemon);
    daemon.json(&["map", "update", "tx_ports", "key", "1", "value", &before.to_string()]);
    daemon.json(&["map", "update", "stages", "key", "2", "value", "name", "keeper"]);
    let link = loaded["links"][0]["id"].to_string();
    daemon.json(&["link", "pin", "id", &link, "fw/link"]);

    // Ports that come before it next time have its number then.
    let more = "[[port]]\nname = \"first\"\nkind = \"sink\"\n";
    let config = config.replacen("[[port]]", &format!("{more}[[port]]"), 1);
    let daemon = daemon.killed(&config);
    assert_eq!(daemon.json(&["status"])["failures"], json!([]));
    let entries = daemon.formatted(&["map", "dump", "tx_ports"]);
    assert_eq!(entries, json!([{"key": 1, "value": {"ifindex": index(&daemon)}}]));
    let program = daemon.json(&["prog", "show", "name", "keeper"])["id"].clone();
    // The map has no types.
    let bytes = |number: u32| -> Value {
        number.to_ne_bytes().into_iter().map(|byte| format!("{byte:#04x}")).collect()
    };
    let program = program.as_u64().and_then(|id| u32::try_from(id).ok()).expect("a number");
    let entries = daemon.json(&["map", "dump", "stages"]);
    let entries = entries.as_array().expect("a list");
    let stage = json!({"key": bytes(2), "value": bytes(program)});
    assert!(entries.contains(&stage), "{entries:?}");
    let pinned = daemon.json(&["link", "show", "pinned", "fw/link"]);
    assert_eq!(pinned["devname"], json!("gen"), "{pinned}");
    daemon.end();
}

#[test]
fn a_status_says_by_its_exit_whether_all_is_there() {
    let bench = Bench::new("exit_status");
    let config = "[[port]]\nname = \"x\"\nkind = \"sink\"\n";
    let daemon = Daemon::start(&bench, config);
    let status = |more: &[&str]| bench.run(&[&["status", "--socket", SOCKET], more].concat());
    assert_eq!(status(&["--exit-status"]).status, 0);
    let missing = format!(
        "{config}[[attach]]\nport = \"x\"\nobject = \"refused.o\"\nprogram = \"reads_too_far\"\n"
    );
    bench.file("t.toml", missing);
    bench.refusal(2, &["reload", "--socket", SOCKET]);
    assert_eq!(status(&[]).status, 0);
    let ended = status(&["--exit-status"]);
    assert_eq!(ended.status, 1);
    assert!(ended.stdout.contains("failed: "), "{ended:?}");
    bench.file("t.toml", config);
    daemon.json(&["reload"]);
    assert_eq!(status(&["--exit-status"]).status, 0);
    daemon.end();
}

/// A disk that is soon full.
pub(super) struct Disk(PathBuf);

impl Disk {
    pub(super) fn mount(bench: &Bench) -> Option<Disk> {
        let path = bench.path("disk");
        std::fs::create_dir(&path).expect("there is room");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(&path)
            .stderr(Stdio::null())
            .status();
        let is_root = rustix::process::geteuid().is_root();
        let is_mounted = is_root && mount.is_ok_and(|status| status.success());
        is_mounted.then_some(Disk(path))
    }

    pub(super) fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("fill")).expect("a name has room");
        while std::io::Write::write(&mut file, &[0; 4096]).is_ok_and(|written| written > 0) {}
    }

    pub(super) fn free(&self) {
        std::fs::remove_file(self.0.join("fill")).expect("it is there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _not_mounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_changes_and_loses_none() {
    let bench = Bench::new("saved_full");
    let Some(disk) = Disk::mount(&bench) else {
        return println!("skipped: a disk that is soon full needs root");
    };
    let config = kept().replacen("dir = \"saved\"", "dir = \"disk/saved\"", 1);
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["port", "add", "before", "kind=sink"]);
    disk.fill();
    let refused = daemon.refusal(1, &["port", "add", "late", "kind=sink"]);
    assert!(refused.contains("it can't be saved, and was undone"), "{refused}");
    assert!(refused.contains("No space left"), "{refused}");
    let names = |daemon: &Daemon<'_>| daemon.json(&["status"])["ports"].to_string();
    assert!(!names(&daemon).contains("\"late\""), "it was undone");
    disk.free();
    daemon.json(&["port", "add", "after", "kind=sink"]);
    daemon.json(&["map", "update", "flows", "key", "3", "value", "{}"]);
    let daemon = daemon.killed(&config);
    let ports = names(&daemon);
    assert!(ports.contains("\"before\"") && ports.contains("\"after\""), "{ports}");
    assert!(!ports.contains("\"late\""), "{ports}");
    assert_eq!(daemon.formatted(&["map", "dump", "flows"])[0]["key"], json!(3));
    daemon.end();
}
