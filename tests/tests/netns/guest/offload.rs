//! A guest whose host runs its firewall: `towpath-guest` in a real kernel, over virtio-serial.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value as Json;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_tests::sources;

use super::scene::{self, GUEST, HOST};
use super::vhost::{self, BackEnd};
use super::vm::{Card, Socket, Vm};
use crate::lab;
use crate::namespace::Namespace;
use crate::traffic::ping;

/// A guest, a host with a stack, and the daemon's ports between them.
struct Offloading {
    // Its ports go before their interfaces.
    daemon: BackEnd,
    vm: Vm,
    host: Namespace,
    wires: Namespace,
    folder: PathBuf,
    kind: Kind,
}

/// Kind of guest.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// Pairs of queues, and processors.
    queues: u32,
    packed: bool,
    /// The monitor listens at the channel's socket.
    listens: bool,
}

impl Offloading {
    fn new(files: &[PathBuf], kind: Kind) -> Offloading {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-offload-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let wires = Namespace::enter_new();
        let host = lab::new_host();
        // Unrequested IPv6 packets would change the guest's counters.
        host.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        host.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1");
        let daemon = start(&folder, &host, kind);
        let vm = boot(&folder, &wires, files, kind);
        let mut it = Offloading { daemon, vm, host, wires, folder, kind };
        it.configure();
        it
    }

    /// The daemon is killed, and another one begins.
    fn restart(&mut self) {
        self.daemon.kill();
        self.daemon = start(&self.folder, &self.host, self.kind);
    }

    /// QEMU is killed, and another one begins.
    fn boot_again(&mut self, files: &[PathBuf]) {
        self.vm.kill();
        self.vm = boot(&self.folder, &self.wires, files, self.kind);
        self.configure();
    }

    fn configure(&mut self) {
        self.vm.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1; true");
        self.vm.run(&format!("ip address add {GUEST}/24 dev eth0 && ip link set eth0 up"));
        scene::until_answered(&self.host);
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
        self.daemon.kill();
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts a daemon: the guest's port, and the host's stack behind the other one.
fn start(folder: &Path, host: &Namespace, kind: Kind) -> BackEnd {
    let (at, netns, queues) = (folder.display(), host.path(), kind.queues);
    let mode = if kind.listens { "client" } else { "server" };
    let text = format!(
        "[[port]]\nname = \"up\"\nkind = \"tap\"\ninterface = \"h1\"\nnetns = \"{netns}\"\n\
         upper = \"vm\"\n[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\npath = \"{at}/vm\"\n\
         queues = {queues}\nupper = \"up\"\n[port.offload]\npath = \"{at}/offload\"\n\
         mode = \"{mode}\"\ntargets = [\"up\"]\n"
    );
    let file = folder.join("t.toml");
    std::fs::write(&file, text).unwrap();
    let daemon = BackEnd::run("guest::offload::daemon", &[(FILE, file.as_os_str())]);
    host.run("ip link set h1 up");
    host.run(&format!("ip address add {HOST}/24 dev h1"));
    // The neighbour is known, so there are no ARP requests.
    host.run(&format!("ip neigh replace {GUEST} lladdr 02:00:00:00:09:00 dev h1"));
    daemon
}

/// The process that [`start`] runs; does nothing when it runs as a test.
#[test]
fn daemon() {
    let Ok(file) = std::env::var(FILE) else { return };
    let (file, objects) = (Path::new(&file), Arc::new(ObjectFiles::default()));
    let text = std::fs::read_to_string(file).unwrap();
    let loaded = parse(&text, file, file.parent().unwrap(), &objects).unwrap();
    let mut live = Live::start(&loaded.state, objects, Arc::default()).unwrap();
    let report = live.reconcile(&loaded.state);
    assert_eq!(report.failures, [], "{report:?}");
    vhost::serve_until_told();
    live.stop();
}

const FILE: &str = "TOWPATH_TEST_OFFLOAD_FILE";

fn boot(folder: &Path, wires: &Namespace, files: &[PathBuf], kind: Kind) -> Vm {
    let Kind { queues, packed, listens } = kind;
    let channel = Some(Socket { path: folder.join("offload"), listens });
    let socket = Socket { path: folder.join("vm"), listens: false };
    let card = Card::VhostUser { socket, queues, packed, channel };
    Vm::boot_with(wires, &[card], files)
}

/// Files of the guest: the agent, and the object file that it would load natively.
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
    let mut it = Offloading::new(&files, Kind { queues: 1, packed: false, listens: false });
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

/// Two queues and packed rings, and a monitor that listens at the channel. Either side ends and
/// comes back while a program is in place.
#[test]
fn what_a_real_guest_has_ends_with_it_or_with_the_daemon() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let files = match files() {
        Ok(files) => files,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut it = Offloading::new(&files, Kind { queues: 2, packed: true, listens: true });
    it.block();

    // The frames get to the guest again: it has to hand its program over again.
    it.restart();
    eprintln!("  {:?} until traffic after kill -9 of the daemon", scene::until_answered(&it.host));
    assert_eq!(it.programs(), 0, "another daemon knows nothing");
    it.block();

    it.boot_again(&files);
    assert_eq!(it.programs(), 0, "another guest has nothing");
    it.block();
}

impl Offloading {
    /// Has the host stop what comes from the host's stack.
    #[track_caller]
    fn block(&mut self) {
        self.agent(LOAD);
        // It passes what is not blocked.
        scene::until_answered(&self.host);
        self.agent(&format!("map update {BLOCKED} {RULE}"));
        let before = self.received();
        assert_eq!(ping(&self.host, GUEST, 10, 56), 0, "the host stops them");
        assert_eq!(self.received(), before, "nothing got to the guest");
    }

    /// Programs that run for it.
    #[track_caller]
    fn programs(&mut self) -> usize {
        let status = self.agent("status");
        status["programs"].as_array().map(Vec::len).unwrap_or_else(|| panic!("{status}"))
    }
}
