//! AF_XDP sockets of a daemon: opened, shown, killed.

use std::process::{Child, Stdio};

use serde_json::Value;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

impl Daemon<'_> {
    fn sockets(&self) -> Vec<Value> {
        self.json(&["xsk", "show"])["sockets"].as_array().expect("a list").clone()
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.bench.command(&[arguments, &["--socket", SOCKET]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().expect("it was built")
    }

    fn passed(&self, port: &str) -> u64 {
        self.json(&["stats"])["ports"][port]["verdicts"]["XDP_PASS"].as_u64().expect("a number")
    }
}

#[test]
fn frames_of_a_queue_go_to_its_socket_as_long_as_it_lives() {
    let bench = Bench::new("xsk_life");
    let daemon = Daemon::start(&bench, CONFIG);
    let ended = daemon.json(&["xsk", "count", "gen", "-n", "500"]);
    assert_eq!((&ended["packets"], &ended["bytes"]), (&500.into(), &(500 * 28).into()));
    daemon.wait_for("end of the socket", || daemon.sockets().is_empty());

    let mut child = daemon.spawn(&["xsk", "drop", "gen"]);
    let is_fed = || {
        let sockets = daemon.sockets();
        sockets.iter().any(|it| it["statistics"]["rx_packets"].as_u64() > Some(100))
    };
    daemon.wait_for("packets in the socket", is_fed);
    let sockets = daemon.sockets();
    let [socket] = sockets.as_slice() else { panic!("one socket: {sockets:?}") };
    assert_eq!((&socket["port"], &socket["queue"]), (&"gen".into(), &0.into()));
    assert_eq!(socket["maps"], serde_json::json!(["xsks_map[0]"]));
    assert_eq!(socket["rx"]["entries"], 2048);
    let refusal = daemon.refusal(2, &["xsk", "drop", "gen"]);
    assert!(refusal.contains("another socket has the queue (EBUSY)"), "{refusal}");

    // Killed, it leaves no trace, and frames go where they went before.
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    daemon.wait_for("end of the socket", || daemon.sockets().is_empty());
    let before = daemon.passed("gen");
    daemon.wait_for("frames that pass", || daemon.passed("gen") > before + 100);
    daemon.end();
}

#[test]
fn what_is_sent_comes_back_from_an_echo() {
    let bench = Bench::new("xsk_echo");
    let daemon = Daemon::start(&bench, CONFIG);
    let mut echo = daemon.spawn(&["xsk", "echo", "p0", "-n", "3000"]);
    daemon.wait_for("a socket", || {
        daemon.sockets().iter().any(|socket| socket["maps"][0] == "xsks_map[0]")
    });
    let before = daemon.rx("p1");
    let sent = daemon.json(&["xsk", "send", "p1", "-n", "3000", "--size", "100"]);
    assert_eq!((&sent["packets"], &sent["bytes"]), (&3000.into(), &300_000.into()));
    assert!(echo.wait().expect("it is ours").success());
    daemon.wait_for("its echo", || daemon.rx("p1") == before + 3000);
    daemon.end();
}

#[test]
fn sockets_say_what_is_wrong() {
    let bench = Bench::new("xsk_wrong");
    let daemon = Daemon::start(&bench, CONFIG);
    let refusal = daemon.refusal(2, &["xsk", "drop", "nobody"]);
    assert!(refusal.contains("there is no such port (ENODEV)"), "{refusal}");
    let refusal = daemon.refusal(2, &["xsk", "drop", "gen", "--queue", "9"]);
    assert!(refusal.contains("no such queue (EINVAL)"), "{refusal}");
    let refusal = daemon.refusal(2, &["xsk", "drop", "gen", "--map", "nothing", "--key", "3"]);
    assert!(refusal.contains("nothing[3]"), "{refusal}");
    // The daemon sees the ends of their connections a little later.
    daemon.wait_for("no socket", || daemon.sockets().is_empty());
    daemon.end();
}
