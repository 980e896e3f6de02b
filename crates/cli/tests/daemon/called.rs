//! A program that users call, in a daemon: it makes the key of one that is on a port.

use super::Daemon;
use crate::support::{Bench, frame};

const CONFIG: &str = r#"
[[port]]
name = "p0"
kind = "sink"

[[attach]]
port = "p0"
object = "sealed.o"
program = "seal"
"#;

#[test]
fn a_call_prepares_what_runs_on_a_port() {
    let bench = Bench::new("daemon_called");
    let daemon = Daemon::start(&bench, CONFIG);
    bench.file("data", frame(3));
    let seal = || daemon.json(&["prog", "run", "name", "seal", "--data-in", "data"]);
    assert_eq!(seal()["retval"], 1, "there is no key");

    let maps = daemon.json(&["map", "show"]);
    let map = maps.as_array().expect("a list").iter().find(|map| map["name"] == "contexts");
    let id = map.expect("the program's map")["id"].to_string();
    let load = ["prog", "load", "sealed.o", "setup", "type", "syscall", "map", "name", "contexts"];
    daemon.json(&[&load[..], &["id", &id, "-n", "setup"]].concat());
    let shown = daemon.json(&["prog", "show", "name", "setup"]);
    let shown = shown.as_array().map_or(&shown, |all| &all[0]);
    assert_eq!(shown["type"], "syscall", "{shown}");

    let key: Vec<u8> = (0..16).collect();
    bench.file("context", [&key[..], &[0xff; 4]].concat());
    let call = ["prog", "run", "name", "setup", "--ctx-in", "context", "--ctx-out", "left"];
    assert_eq!(daemon.json(&call)["retval"], 0);
    let left = std::fs::read(bench.path("left")).expect("it was written");
    assert_eq!(left, [&key[..], &[0; 4]].concat());
    assert_eq!(seal()["retval"], 3, "it has a key now");
    daemon.end();
}
