//! A daemon that was killed, and the next one: what was acknowledged is there again.
//!
//! `TOWPATH_KILLS=100 cargo test -p towpath-cli --test cli restart` kills so often.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use towpath_daemon::client::Client;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// With a place for what is changed; nothing is attached.
pub(super) fn kept() -> String {
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    format!("[state]\ndir = \"saved\"\ninterval = 1\n{ports}")
}

impl<'a> Daemon<'a> {
    /// Kills it, and starts the next one.
    pub(super) fn killed(mut self, config: &str) -> Daemon<'a> {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
        Daemon::start(self.bench, config)
    }
}

#[test]
fn dumps_of_two_daemons_can_be_compared() {
    let bench = Bench::new("dumps");
    let value = r#"{"packets": 5, "bytes": 6}"#;
    for keys in [["300", "5", "77", "70000"], ["70000", "77", "300", "5"]] {
        let daemon = Daemon::start(&bench, &kept());
        daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper", "--replace"]);
        for key in keys {
            daemon.json(&["map", "update", "flows", "key", key, "value", value]);
        }
        let dump = daemon.json(&["map", "dump", "name", "flows"]);
        let bytes = |entry: &Value| entry["key"].clone();
        let dumped: Vec<_> = dump.as_array().expect("a list").iter().map(bytes).collect();
        // The program counts frames under 7.
        let key = |number: u32| json!(number.to_le_bytes().map(|byte| format!("0x{byte:02x}")));
        assert_eq!(dumped, [5, 7, 77, 300, 70000].map(key), "{dump}");
    }
}

#[test]
fn what_was_changed_is_there_after_a_kill() {
    let bench = Bench::new("restart");
    let config = kept();
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    let loaded = daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    let program = loaded["links"][0]["prog_id"].to_string();
    let shared = format!("flows={}", daemon.json(&["map", "show", "name", "flows"])["id"]);
    daemon.json(&["load", "out", "keeper_1.o", "-n", "keeper", "--map", &shared]);
    let flows = daemon.json(&["map", "show", "name", "flows"]);
    let users = |flows: &Value| flows["towpath"]["prog_ids"].as_array().map(Vec::len);
    assert_eq!(users(&flows), Some(4), "two objects of two programs: {flows}");
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.json(&["port", "del", "p1"]);
    let value = r#"{"packets": 5, "bytes": 6}"#;
    daemon.json(&["map", "update", "flows", "key", "3", "value", value]);
    daemon.json(&["map", "update", "flows", "key", "4", "value", value]);
    daemon.json(&["map", "delete", "flows", "key", "4"]);
    daemon.json(&["prog", "pin", "id", &program, "fw/keeper"]);
    let status = daemon.json(&["status"]);
    assert_eq!(status["not_saved"], json!(null));

    // The object file is not needed any more.
    std::fs::remove_file(bench.path("keeper_1.o")).expect("it was copied");
    let daemon = daemon.killed(&config);
    let again = daemon.json(&["status"]);
    let names = |status: &Value, what: &str, key: &str| -> Vec<Value> {
        let all = status[what].as_array().cloned().unwrap_or_default();
        all.iter().map(|it| it[key].clone()).collect()
    };
    assert_eq!(again["failures"], json!([]), "{again}");
    for (what, key) in [("ports", "name"), ("links", "name"), ("links", "port")] {
        assert_eq!(names(&again, what, key), names(&status, what, key), "{again}");
    }
    let flows = daemon.json(&["map", "show", "name", "flows"]);
    assert_eq!(users(&flows), Some(4), "it is one map again: {flows}");
    let entries = daemon.formatted(&["map", "dump", "flows"]);
    assert_eq!(entries, json!([{"key": 3, "value": {"packets": 5, "bytes": 6}}]));
    let shown = daemon.json(&["prog", "show", "pinned", "fw/keeper"]);
    assert_eq!(shown["name"], json!("keeper"), "{shown}");

    // Changes of the file are applied, and nothing else changes.
    let more = format!("{config}\n[[port]]\nname = \"late\"\nkind = \"sink\"\n");
    let daemon = daemon.killed(&more);
    let ports = names(&daemon.json(&["status"]), "ports", "name");
    assert!(ports.contains(&json!("late")) && ports.contains(&json!("more")), "{ports:?}");
    assert!(!ports.contains(&json!("p1")), "{ports:?}");
    daemon.end();
}

/// Keys and values, in the order of keys.
fn sorted(mut entries: Value) -> Value {
    let list = entries.as_array_mut().expect("a list");
    list.sort_by_key(|entry| entry["key"].as_u64());
    entries
}

#[test]
fn pinned_maps_keep_what_programs_learnt() {
    let bench = Bench::new("restart_pins");
    let config = kept();
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["map", "pin", "flows", "fw/flows"]);
    daemon.json(&["map", "pin", "totals", "fw/totals"]);
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    daemon.json(&["unload", "gen", "-a"]);
    let before = sorted(daemon.formatted(&["map", "dump", "pinned", "fw/flows"]));
    daemon.end();

    // Nothing has them but their pins.
    let daemon = Daemon::start(&bench, &config);
    assert_eq!(sorted(daemon.formatted(&["map", "dump", "pinned", "fw/flows"])), before);
    let shown = daemon.json(&["map", "show", "pinned", "fw/totals"]);
    assert_eq!(shown["type"], json!("percpu_array"), "{shown}");
    // Once saved, they outlive a kill, too.
    daemon.json(&["map", "update", "pinned", "fw/flows", "key", "8", "value", "{}"]);
    std::thread::sleep(Duration::from_millis(1500));
    let before = sorted(daemon.formatted(&["map", "dump", "pinned", "fw/flows"]));
    let daemon = daemon.killed(&config);
    assert_eq!(sorted(daemon.formatted(&["map", "dump", "pinned", "fw/flows"])), before);
    // A program that shares one finds it.
    daemon.json(&["load", "gen", "keeper_2.o", "-n", "keeper", "--map", "flows=fw/flows"]);
    let daemon = daemon.killed(&config);
    let shown = daemon.json(&["map", "show", "pinned", "fw/flows"]);
    assert_eq!(shown["towpath"]["prog_ids"].as_array().map(Vec::len), Some(2), "{shown}");
    daemon.end();
}

/// A pinned map is saved as a whole, which says nothing of what isn't in it.
#[test]
fn what_a_user_deleted_of_the_configuration_stays_deleted() {
    let bench = Bench::new("restart_deleted");
    let config = kept();
    let rules = json!({"flows": [
        {"key": 3, "value": {"packets": 1, "bytes": 2}},
        {"key": 4, "value": {"packets": 3, "bytes": 4}},
        {"key": 5, "value": {"packets": 5, "bytes": 6}},
    ]});
    std::fs::write(bench.path("rules.json"), rules.to_string()).expect("there is room");
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    let load = ["load", "gen", "keeper_1.o", "-n", "keeper", "--map-init", "rules.json"];
    daemon.json(&load);
    daemon.json(&["map", "pin", "flows", "fw/flows"]);
    daemon.json(&["map", "delete", "flows", "key", "4"]);
    daemon.json(&["map", "delete", "flows", "key", "5"]);
    daemon.json(&["map", "update", "flows", "key", "5", "value", r#"{"packets": 7}"#]);
    let keys = |daemon: &Daemon<'_>| -> Vec<Value> {
        let entries = sorted(daemon.formatted(&["map", "dump", "pinned", "fw/flows"]));
        entries.as_array().expect("a list").iter().map(|entry| entry["key"].clone()).collect()
    };
    assert_eq!(keys(&daemon), [json!(3), json!(5)]);
    daemon.end();
    // Each start and end saves the map once more.
    for _ in 0..2 {
        let daemon = Daemon::start(&bench, &config);
        assert_eq!(keys(&daemon), [json!(3), json!(5)]);
        daemon.end();
    }
    // An element that a user stores again after it was deleted stays, too.
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["map", "update", "flows", "key", "4", "value", r#"{"packets": 9}"#]);
    daemon.end();
    let daemon = Daemon::start(&bench, &config);
    assert_eq!(keys(&daemon), [json!(3), json!(4), json!(5)]);
    daemon.end();
}

#[test]
fn a_saved_state_that_makes_no_sense_is_kept_aside() {
    let bench = Bench::new("restart_bad");
    let config = kept();
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.end();
    let good = std::fs::read(bench.path("saved/state")).expect("it was saved");
    let before = std::fs::read(bench.path("saved/state.before")).expect("and the one before");
    let cases = [
        (b"towpath-state 9\n\nsomething".to_vec(), before, "it has version 9"),
        (Vec::new(), Vec::new(), "it does not begin as a saved state does"),
        (vec![b'x'; 4096], vec![0; 4096], "it does not begin as a saved state does"),
    ];
    for (number, (bytes, before, says)) in cases.into_iter().enumerate() {
        bench.file("saved/state", &bytes);
        bench.file("saved/state.before", &before);
        let daemon = Daemon::start(&bench, &config);
        let status = daemon.json(&["status"]);
        assert_eq!(status["ports"].as_array().map(Vec::len), Some(4), "as configured: {status}");
        let log = daemon.log();
        assert!(log.contains(says) && log.contains("are kept in "), "{log}");
        let aside = bench.path(&format!("saved/aside-{}", number + 1));
        assert_eq!(std::fs::read(aside.join("state")).expect("nothing is lost"), bytes);
        daemon.end();
    }
    cut_or_changed(&bench, &config, &good);
    // An object that was changed is another one: its program says so, and stays wanted.
    let daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["map", "update", "flows", "key", "3", "value", "{}"]);
    daemon.end();
    let objects = std::fs::read_dir(bench.path("saved/objects")).expect("it is there");
    let object = objects.map(|it| it.expect("it is readable").path()).next().expect("there is one");
    let bytes = std::fs::read(&object).expect("it is readable");
    std::fs::copy(bench.path("router.o"), &object).expect("there is room");
    let daemon = Daemon::start(&bench, &config);
    let failures = daemon.json(&["status"])["failures"].to_string();
    assert!(failures.contains("is not there"), "{failures}");
    daemon.end();
    std::fs::write(&object, bytes).expect("there is room");
    let daemon = Daemon::start(&bench, &config);
    assert_eq!(daemon.formatted(&["map", "dump", "flows"])[0]["key"], json!(3));
    // Without a place for it, it is told what would be lost.
    let (_, without) = config.split_once("interval = 1\n").expect("it has one");
    let daemon = daemon.killed(without);
    assert_eq!(daemon.json(&["status"])["not_saved"], json!(null), "nothing was changed");
    daemon.json(&["port", "add", "more", "kind=sink"]);
    let status = bench.run(&["status", "--socket", SOCKET]);
    assert!(status.stdout.contains("  not saved: changes since "), "{status:?}");
    daemon.end();
}

/// A state that was cut or changed gives what is whole of it, and the one before gives the rest.
fn cut_or_changed(bench: &Bench, config: &str, good: &[u8]) {
    let mut flipped = good.to_vec();
    flipped[good.len() / 2] ^= 4;
    for bytes in [good[..good.len() / 2].to_vec(), flipped, Vec::new()] {
        bench.file("saved/state", good);
        let daemon = Daemon::start(bench, config);
        daemon.json(&["port", "set", "more", "mtu=1400"]);
        daemon.json(&["port", "set", "more", "mtu=1500"]);
        daemon.end();
        bench.file("saved/state", &bytes);
        let daemon = Daemon::start(bench, config);
        let status = daemon.json(&["status"]);
        assert_eq!(status["ports"].as_array().map(Vec::len), Some(5), "all: {status}");
        let failures = status["failures"].as_array().expect("a list");
        assert!(!failures.is_empty(), "{status}");
        for failure in failures {
            assert_eq!(failure["code"], json!("saved"), "{failure}");
            let why = failure["why"].as_str().expect("a reason");
            let kept = why.rsplit(' ').next().expect("where it is kept");
            assert_eq!(std::fs::read(bench.path(kept)).expect("nothing is lost"), bytes, "{why}");
        }
        daemon.json(&["reload"]);
        assert_eq!(daemon.json(&["status"])["failures"], json!([]), "looked at");
        daemon.json(&["port", "del", "more"]);
        daemon.end();
    }
}

#[test]
fn a_state_goes_to_another_daemon_with_its_objects() {
    let bench = Bench::new("state_document");
    let daemon = Daemon::start(&bench, CONFIG);
    let client = Client::new(&bench.path(SOCKET)).expect("there are descriptors");
    let state: Value = client.get("/v1/state").expect("it is there");
    daemon.end();
    std::fs::remove_file(bench.path("every_verdict.o")).expect("it was copied");

    let daemon = Daemon::start(&bench, "");
    let client = Client::new(&bench.path(SOCKET)).expect("there are descriptors");
    let mut bare = state.clone();
    bare.as_object_mut().expect("it is one").remove("objects");
    let refused = client.json::<Value>("PUT", "/v1/state", &bare).expect_err("there is no object");
    assert!(refused.to_string().contains("is neither in `objects` nor at its path"), "{refused}");
    assert_eq!(daemon.json(&["status"])["ports"], json!([]), "nothing changed");
    let report: Value = client.json("PUT", "/v1/state", &state).expect("it has all");
    assert_eq!(report["failures"], json!([]), "{report}");
    daemon.wait_for("traffic", || daemon.rx("gen") > 100);
    let again: Value = client.get("/v1/state").expect("it is there");
    assert_eq!(again, state);
    daemon.end();
}

/// The changes that the daemon acknowledged.
#[derive(Debug, Default)]
struct Told {
    ports: BTreeMap<String, bool>,
    flows: BTreeMap<u32, Option<u64>>,
    /// The last requested change, which may be done or not.
    asked: Option<Asked>,
}

#[derive(Debug, Clone, PartialEq)]
enum Asked {
    Port(String),
    Flow(u32),
}

#[test]
fn what_was_acknowledged_outlives_kills_at_any_moment() {
    let bench = Bench::new("restart_kills");
    let config = kept();
    let mut daemon = Daemon::start(&bench, &config);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["map", "pin", "flows", "fw/flows"]);
    let kills = std::env::var("TOWPATH_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(5);
    let told = Mutex::new(Told::default());
    let mut number = 0;
    for round in 0_u64..kills {
        let id = daemon.json(&["map", "show", "pinned", "fw/flows"])["id"].to_string();
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| change_on(&bench, &id, &mut number, &told));
            // Anywhere between two changes and some hundred of them.
            std::thread::sleep(Duration::from_micros(3_000 + round * 7_919 % 200_000));
            daemon.child.kill().expect("it runs");
            changes.join().expect("no panic");
        });
        daemon = daemon.killed(&config);
        compare(&daemon, &mut told.lock());
    }
    let told = told.lock();
    assert!(!told.ports.is_empty() && !told.flows.is_empty(), "{told:?}");
    println!("{number} changes of {kills} daemons");
    daemon.end();
}

/// Makes one change after the other until the daemon no longer answers.
fn change_on(bench: &Bench, map: &str, number: &mut u32, told: &Mutex<Told>) {
    let client = Client::new(&bench.path(SOCKET)).expect("there are descriptors");
    loop {
        *number += 1;
        let (name, key) = (format!("x{}", *number % 7), *number % 50);
        let is_there = told.lock().ports.get(&name) == Some(&true);
        let (asked, done) = if (*number).is_multiple_of(4) {
            let asked = Asked::Port(name.clone());
            told.lock().asked = Some(asked.clone());
            let done = match is_there {
                true => client.json::<Value>("DELETE", &format!("/v1/ports/{name}"), &json!({})),
                false => client.json("POST", "/v1/ports", &json!({"name": name, "kind": "sink"})),
            };
            (asked, done)
        } else {
            let asked = Asked::Flow(key);
            told.lock().asked = Some(asked.clone());
            let is_delete = (*number).is_multiple_of(5);
            let known = told.lock().flows.get(&key).is_some_and(Option::is_some);
            if is_delete && !known {
                continue;
            }
            let what = if is_delete { "delete" } else { "update" };
            let body = match is_delete {
                true => json!({"key": key}),
                false => json!({"key": key, "value": {"packets": *number, "bytes": 0}}),
            };
            (asked, client.json("POST", &format!("/v1/maps/{map}/{what}"), &body))
        };
        if done.is_err() {
            return;
        }
        let mut told = told.lock();
        match asked {
            Asked::Port(name) => drop(told.ports.insert(name, !is_there)),
            Asked::Flow(key) => {
                let value = (!(*number).is_multiple_of(5)).then_some(u64::from(*number));
                told.flows.insert(key, value);
            }
        }
        told.asked = None;
    }
}

/// All that was acknowledged is so; what was not is taken as it is.
fn compare(daemon: &Daemon<'_>, told: &mut Told) {
    let status = daemon.json(&["status"]);
    let names: Vec<&str> = status["ports"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let asked = told.asked.take();
    for (name, is_there) in &mut told.ports {
        let is_now = names.contains(&name.as_str());
        assert!(
            is_now == *is_there || asked == Some(Asked::Port(name.clone())),
            "{name}: {names:?}"
        );
        *is_there = is_now;
    }
    if let Some(Asked::Port(name)) = &asked {
        told.ports.insert(name.clone(), names.contains(&name.as_str()));
    }
    let entries = daemon.formatted(&["map", "dump", "pinned", "fw/flows"]);
    let entries = entries.as_array().expect("a list").iter();
    let entries: BTreeMap<u32, u64> = entries
        .map(|it| {
            let key = it["key"].as_u64().expect("a number") as u32;
            (key, it["value"]["packets"].as_u64().expect("a number"))
        })
        .collect();
    for (key, value) in &mut told.flows {
        let now = entries.get(key).copied();
        assert!(now == *value || asked == Some(Asked::Flow(*key)), "{key}: {now:?}, not {value:?}");
        *value = now;
    }
    if let Some(Asked::Flow(key)) = asked {
        told.flows.insert(key, entries.get(&key).copied());
    }
}
