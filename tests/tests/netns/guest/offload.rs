//! A guest whose host runs its firewall: `towpath-guest` in a real kernel, over virtio-serial.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value as Json;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_tests::sources;

use super::scene::{self, GUEST, HOST};
use super::vm::{Card, Vm};
use crate::lab;
use crate::namespace::Namespace;
use crate::traffic::ping;

/// A guest, a host with a stack, and the daemon's ports between them.
struct Offloading {
    // Its ports go before their interfaces.
    live: Live,
    vm: Vm,
    host: Namespace,
    _wires: Namespace,
    folder: PathBuf,
}

impl Offloading {
    fn new(files: &[PathBuf]) -> Offloading {
        let folder = std::env::temp_dir().join(format!("towpath-offload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let wires = Namespace::enter_new();
        let host = lab::new_host();
        // What nobody asked for would move the guest's counters.
        host.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        host.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        let (at, netns) = (folder.display(), host.path());
        let text = format!(
            "[[port]]\nname = \"up\"\nkind = \"tap\"\ninterface = \"h1\"\nnetns = \"{netns}\"\n\
             upper = \"vm\"\n[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\npath = \"{at}/vm\"\n\
             upper = \"up\"\n[port.offload]\npath = \"{at}/offload\"\ntargets = [\"up\"]\n"
        );
        let objects = Arc::new(ObjectFiles::default());
        let loaded = parse(&text, Path::new("t.toml"), &folder, &objects).unwrap();
        let mut live = Live::start(&loaded.state, objects, Arc::default()).unwrap();
        let report = live.reconcile(&loaded.state);
        assert_eq!(report.failures, [], "{report:?}");
        host.run("ip link set h1 up");
        host.run(&format!("ip address add {HOST}/24 dev h1"));
        // Nobody asks who has it.
        host.run(&format!("ip neigh replace {GUEST} lladdr 02:00:00:00:09:00 dev h1"));
        let path = folder.join("vm");
        let channel = Some(folder.join("offload"));
        let card = Card::VhostUser { path, listens: false, queues: 1, packed: false, channel };
        let vm = Vm::boot_with(&wires, &[card], files);
        let mut it = Offloading { live, vm, host, _wires: wires, folder };
        it.configure();
        it
    }

    fn configure(&mut self) {
        self.vm.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1; true");
        self.vm.run(&format!("ip address add {GUEST}/24 dev eth0 && ip link set eth0 up"));
        scene::until("the guest answers", || ping(&self.host, GUEST, 1, 56) == 1);
    }

    /// Runs the agent; gives what it says.
    #[track_caller]
    fn agent(&mut self, words: &str) -> Json {
        let text = self.vm.run(&format!("towpath-guest -j {words}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {text}: {error}"))
    }

    /// Frames that the guest's interface received.
    fn received(&mut self) -> u64 {
        self.vm.run("cat /sys/class/net/eth0/statistics/rx_packets").trim().parse().unwrap()
    }
}

impl Drop for Offloading {
    fn drop(&mut self) {
        self.vm.kill();
        self.live.stop();
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// What the guest runs: the agent, and the object file that it would load natively.
fn files() -> Result<Vec<PathBuf>, String> {
    let objects = sources::own_objects().map_err(|error| error.to_string())?;
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guest-agent");
    let script = sources::repository().join("scripts/build-guest-agent.sh");
    let built = Command::new(script).arg(&out).output().map_err(|error| error.to_string())?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(vec![out.join("towpath-guest"), objects.join("clang-19/firewall.o")])
}

const LOAD: &str = "load eth0 /bin/firewall.o";
/// 10.0.0.1/32 -> rule 5, drop.
const BLOCKED: &str = "sources_v4 hex:200000000a000001";
const RULE: &str = "hex:0500000000000000";

#[test]
fn the_host_runs_the_firewall_of_a_real_guest() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let files = match files() {
        Ok(files) => files,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut it = Offloading::new(&files);
    let features = it.agent("features");
    assert_eq!(features["targets"][0]["name"], "up", "{features}");
    let loaded = it.agent(LOAD);
    assert_eq!(loaded["program"], "firewall", "{loaded}");
    assert_eq!(ping(&it.host, GUEST, 5, 56), 5, "it passes what is not blocked");

    it.agent(&format!("map update {BLOCKED} {RULE}"));
    let before = it.received();
    assert_eq!(ping(&it.host, GUEST, 20, 56), 0, "the host stops them");
    assert_eq!(it.received(), before, "nothing got to the guest");
    let stats = it.agent("map lookup rule_stats 5");
    // 20 packets, of the only worker.
    assert!(stats["value"].as_str().unwrap().starts_with("hex:1400000000000000"), "{stats}");
    let status = it.agent("status");
    assert!(status["programs"][0]["drop"].as_u64().unwrap() >= 20, "{status}");

    it.agent(&format!("map delete {BLOCKED}"));
    assert_eq!(ping(&it.host, GUEST, 5, 56), 5, "the guest changed its map");
    let (failed, said) = it.vm.output(&format!("towpath-guest {LOAD}"));
    assert!(failed != 0 && said.contains("--replace"), "{said}");
    it.agent(&format!("{LOAD} --replace"));
    it.agent("unload eth0");
    let status = it.agent("status");
    let empty = |what: &str| status[what].as_array().is_some_and(Vec::is_empty);
    assert!(empty("programs") && empty("objects"), "{status}");
    assert_eq!(ping(&it.host, GUEST, 5, 56), 5);

    // A guest that boots again has nothing at the host.
    it.agent(LOAD);
    it.agent(&format!("map update {BLOCKED} {RULE}"));
    assert_eq!(ping(&it.host, GUEST, 3, 56), 0);
    it.vm.reboot();
    it.configure();
    let status = it.agent("status");
    assert_eq!(status["programs"].as_array().map(Vec::len), Some(0), "{status}");
}
