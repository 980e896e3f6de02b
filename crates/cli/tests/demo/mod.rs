//! `demo live`, of which docs/cli.md tells: real stacks, joined.

mod ipsec;
mod quic;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::Bench;

/// A program that passes everything.
const LIVE: [&str; 7] = ["demo", "live", "run_config.o", "-n", "configured", "--for", "1s"];

fn bench(test: &str) -> Bench {
    let bench = Bench::new(test);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let object = std::fs::read(fixtures.join("run_config.o")).expect("it is in the repository");
    bench.file("run_config.o", object);
    bench
}

/// Says why it cannot run here.
fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("/dev/net/tun is missing".to_owned());
    }
    let tools = ["ip", "ping", "nsenter", "setpriv", "iperf3"];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_missing = |tool: &&str| !std::env::split_paths(&paths).any(|it| it.join(tool).exists());
    let missing = tools.into_iter().find(is_missing);
    missing.map(|tool| format!("{tool} is missing: scripts/install-deps.sh net"))
}

#[test]
fn two_hosts_talk_through_a_program_that_is_replaced() {
    let bench = bench("demo_live");
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return;
    }
    let seen = bench.json(&LIVE);
    for pings in [&seen["pings"][0], &seen["pings"][1]] {
        assert_eq!(pings["answered"], pings["sent"], "{seen}");
    }
    assert!(seen["load"]["bits_per_second"].as_f64() > Some(1e6), "{seen}");
    assert!(seen["replacements"].as_u64() > Some(0), "{seen}");
    assert_eq!(seen["frames"]["missing"], 0, "{seen}");
    assert_eq!(seen["status"]["links"][0]["name"], "configured", "{seen}");
}

#[test]
fn hosts_without_ping_and_iperf3_exchange_datagrams() {
    let bench = bench("demo_bare");
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return;
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::fs::create_dir(bench.path("tools")).expect("the directory is there");
    for tool in ["ip", "nsenter", "setpriv"] {
        let mut places = std::env::split_paths(&paths).map(|path| path.join(tool));
        let place = places.find(|place| place.exists()).expect("it was looked for");
        let link = bench.path(&format!("tools/{tool}"));
        std::os::unix::fs::symlink(place, link).expect("the directory is there");
    }
    let done = bench.command(&LIVE).env("PATH", bench.path("tools")).output();
    let done = done.expect("it was built");
    let (told, said) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{told}{said}");
    let exchanged = "UDP (there is no ping) 10.77.0.1 -> 10.77.0.2: 10 of 10 answered";
    assert_eq!(told.matches(exchanged).count(), 2, "{told}");
    assert!(told.contains("iperf3 is missing"), "{told}");
    assert!(told.contains("; 0 lost"), "{told}");
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let bench = bench("demo_interrupted");
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return;
    }
    let mut command = bench.command(&[&LIVE[..6], &["60s"]].concat());
    command.env("TMPDIR", bench.path(".")).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("it was built");
    let socket = bench.path(&format!("towpath-demo-{}.sock", child.id()));
    let start = Instant::now();
    // The namespaces have no names, but the daemon answers when they are connected.
    let name = socket.display().to_string();
    let has_link = || bench.run(&["link", "show", "--socket", &name]).stdout.contains("configured");
    while !has_link() {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    let done = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(done.expect("kill is there").success());
    let interrupted = Instant::now();
    let output = child.wait_with_output().expect("it is ours");
    assert!(interrupted.elapsed() < Duration::from_secs(10), "it goes on");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("interrupted"), "{said}");
    assert!(!socket.exists(), "the socket stays behind");
}

#[test]
fn an_object_that_is_not_there_is_said_to_be_missing() {
    let bench = bench("demo_missing");
    let said = bench.refusal(2, &["demo", "live", "absent.o"]);
    let is_root = rustix::process::geteuid().is_root();
    assert!(said.contains(if is_root { "make programs" } else { "root" }), "{said}");
}
