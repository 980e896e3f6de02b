//! First attempts of users: words of other tools, completion, interrupts, refused connections.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

#[test]
fn the_shell_completes_names_of_what_is_there() {
    let bench = Bench::new("complete");
    let daemon = Daemon::start(&bench, CONFIG);
    let complete = |words: &[&str]| {
        let mut command = bench.command(&[&["--", "towpath"], words].concat());
        command.env("COMPLETE", "bash").env("TOWPATH_SOCKET", SOCKET);
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
        let done = command.output().expect("it was built");
        String::from_utf8(done.stdout).expect("text")
    };
    // Completion gives up if the daemon answers too slowly for a typing user.
    daemon.wait_for("ports", || complete(&["load", "p"]).contains("p0\np1"));
    daemon.wait_for("maps", || complete(&["map", "dump", "cou"]).contains("counts"));
    let programs = || complete(&["prog", "show", "every"]);
    daemon.wait_for("programs", || programs().contains("every_verdict"));
    daemon.end();
    assert_eq!(complete(&["load", "p"]), "", "and of nothing where there is no daemon");
}

#[test]
fn words_of_other_tools_are_understood() {
    let bench = Bench::new("familiar");
    let daemon = Daemon::start(&bench, CONFIG);
    let load = ["load", "p0", "every_verdict.o", "-n", "every_verdict", "-m"];
    daemon.json(&[&load[..], &["native"]].concat());
    let refused = daemon.refusal(2, &[&load[..], &["skb"]].concat());
    assert!(refused.contains("use native"), "{refused}");
    let listed = bench.run(&["dump", "-D", "--socket", SOCKET]);
    assert!(listed.stdout.contains("every_verdict"), "{listed:?}");
    let seen = bench.run(&["dump", "-i", "gen", "-c", "1", "--socket", SOCKET]);
    assert!(seen.stdout.contains("gen@entry"), "{seen:?}");
    let refused = daemon.refusal(2, &["net", "attach", "xdp", "id", "7", "dev", "p0"]);
    assert!(refused.contains("towpath load p0 OBJ"), "{refused}");
    daemon.json(&["net", "detach", "xdp", "dev", "p0"]);
    // The object that was given is named, not the one it was to replace.
    let wrong = ["load", "gen", "refused.o", "-n", "reads_too_far", "--replace"];
    let refused = daemon.refusal(1, &wrong);
    assert!(refused.contains("program refused.o:reads_too_far"), "{refused}");
    // Addresses are taken and shown.
    daemon.json(&["map", "update", "overrides", "key", "10.0.0.1", "value", "1"]);
    let shown = daemon.formatted(&["map", "dump", "overrides", "--as", "ipv4"]);
    assert_eq!(shown, json!([{"key": "10.0.0.1", "value": 1}]));
    let shown = daemon.json(&["map", "lookup", "overrides", "key", "10", "0", "0", "1"]);
    assert_eq!(shown["key"], json!(["0x0a", "0x00", "0x00", "0x01"]));
    daemon.end();
}

#[test]
fn errors_of_the_command_line_are_json_where_that_was_asked_for() {
    let bench = Bench::new("usage_json");
    for words in [&["-j", "load", "p0"][..], &["verify", "--json"], &["-j", "nonsense"]] {
        let ended = bench.run(words);
        let told: Value = serde_json::from_str(&ended.stdout).expect("an object");
        assert_eq!((ended.status, told["error"].is_string()), (2, true), "{ended:?}");
    }
    assert_eq!(bench.run(&["load", "p0"]).stdout, "");
}

#[test]
fn an_interrupted_run_says_what_there_was() {
    let bench = Bench::new("interrupted");
    bench.capture("in.pcap", &[1, 2, 2]);
    let words = ["-j", "run", "every_verdict.o", "-n", "every_verdict", "--in", "-"];
    let mut command = bench.command(&words);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("it was built");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&std::fs::read(bench.path("in.pcap")).expect("it was made")).expect("it reads");
    // Until it has read that, and waits for more.
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let ended = child.wait_with_output().expect("it is ours");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("a report");
    assert_eq!((ended.status.code(), &report["frames"]), (Some(0), &json!(3)), "{report}");
}

#[test]
fn a_pair_has_a_carrier_while_both_ends_are_up() {
    let bench = Bench::new("carrier");
    let daemon = Daemon::start(&bench, CONFIG);
    let link = |port: &str| daemon.json(&["port", "show", port])[0]["link"].clone();
    assert_eq!((link("p0"), link("p1")), (json!(true), json!(true)));
    daemon.json(&["port", "set", "p1", "up=false"]);
    assert_eq!((link("p0"), link("p1")), (json!(false), json!(false)));
    daemon.json(&["port", "set", "p1", "up=true"]);
    assert_eq!((link("p0"), link("p1")), (json!(true), json!(true)));
    daemon.end();
}

#[test]
fn a_group_may_talk_to_the_daemon_and_others_are_told_why_not() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let bench = Bench::new("group");
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root gives a socket to any group");
    }
    let daemon = Daemon::start(&bench, &format!("{CONFIG}\n[api]\ngroup = \"65534\"\n"));
    let about = std::fs::metadata(bench.path(SOCKET)).expect("it listens");
    assert_eq!((about.gid(), about.permissions().mode() & 0o777), (65534, 0o660));
    let by = |group: &str| {
        let group = format!("--regid={group}");
        let setpriv = ["setpriv", "--reuid=65534", &group, "--clear-groups", "--"];
        let done = bench.command_by(&setpriv, &["status", "--socket", SOCKET]).output();
        done.expect("setpriv is there")
    };
    let allowed = by("65534");
    let refused = by("65533");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    if told.contains("execute") || told.contains("failed") {
        return println!("skipped: others may not run what lies here");
    }
    assert!(allowed.status.success(), "{allowed:?}");
    assert!(told.contains("`[api] group` and `mode`"), "{told}");
    daemon.end();
}
