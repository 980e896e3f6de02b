//! A guest's virtio-net driver at a `vhost-user` port, and a host's stack on the other side.
//!
//! The engine is in a process of its own, which is this program again ([`back_end`]), so that it
//! can be killed.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use towpath_engine::{Engine, Options, PortOptions, UpperName, WorkerOptions};
use towpath_ports::tap::{self, Tap};
use towpath_ports::vhost_user::{self, Mode, VhostUser};

use super::scene::{self, GUEST, HOST};
use super::vm::{Card, Socket, Tool, Vm};
use crate::lab;
use crate::namespace::Namespace;
use crate::traffic::stack_counter;

/// A guest, a host, and what joins them.
struct Joined {
    back_end: BackEnd,
    vm: Vm,
    host: Namespace,
    wires: Namespace,
    plan: Plan,
    socket: PathBuf,
}

/// Properties of the rings, and the side that listens at the socket.
#[derive(Debug, Clone, Copy)]
struct Plan {
    packed: bool,
    queues: u32,
    mode: Mode,
}

impl Joined {
    fn new(plan: Plan) -> Joined {
        Joined::with_files(plan, &[])
    }

    /// The same with these files in the guest's folder `/bin`.
    fn with_files(plan: Plan, files: &[PathBuf]) -> Joined {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-guest-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let wires = Namespace::enter_new();
        let host = lab::new_host();
        // The tap exists before the back end, and stays when the back end is killed.
        host.run("ip tuntap add h1 mode tap vnet_hdr multi_queue");
        host.run("ip link set h1 up");
        lab::add_addresses(&host, 1);
        // Without this entry, an ARP request without an answer would be repeated a second later.
        host.run(&format!("ip neigh replace {GUEST} lladdr 02:00:00:00:09:00 dev h1"));
        let back_end = BackEnd::start(&host, &socket, plan);
        let vm = boot(&wires, &socket, plan, files);
        let mut joined = Joined { back_end, vm, host, wires, plan, socket };
        joined.configure();
        joined
    }

    /// Gives the guest its address, and all of its queues.
    fn configure(&mut self) {
        self.vm.run(&format!("ip address add {GUEST}/24 dev eth0 && ip link set eth0 up"));
        self.vm.run("serve 7777");
    }

    #[track_caller]
    fn must_ping_both_ways(&mut self) {
        scene::must_ping_both_ways(&self.host, &mut self.vm);
    }

    /// Pings from the host to the guest, for about a second.
    fn ping_in_background(&self) -> Child {
        let mut ping = self.host.command("ping");
        ping.args(["-n", "-q", "-i", "0.01", "-c", "100", "-W", "1", GUEST]);
        ping.stdout(Stdio::null()).spawn().unwrap()
    }

    /// A connection of the host's and one of the guest's; what goes there comes back unchanged.
    #[track_caller]
    fn must_echo(&mut self, bytes: usize) {
        let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let address = format!("{GUEST}:7777");
        let got = self.host.within(|| {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut writer = stream.try_clone().unwrap();
            let sent = sent.clone();
            let writing = std::thread::spawn(move || {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            writing.join().unwrap();
            got
        });
        assert!(got == sent, "{} of {bytes} bytes come back", got.len());

        let listener = self.host.within(|| TcpListener::bind((HOST, 7778)).unwrap());
        let echoing = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut writer = stream.try_clone().unwrap();
            std::io::copy(&mut stream, &mut writer).unwrap();
        });
        self.vm.run(&format!(
            "dd if=/dev/urandom of=/tmp/sent bs=4096 count={} 2>/dev/null; \
             nc {HOST} 7778 </tmp/sent >/tmp/got; cmp /tmp/sent /tmp/got",
            bytes / 4096
        ));
        echoing.join().unwrap();
        let in_guest = self.vm.run("grep ^Tcp: /proc/net/snmp | tail -1 | awk '{print $15}'");
        assert_eq!(in_guest.trim(), "0", "wrong checksums in the guest");
        assert_eq!(stack_counter(&self.host, "Tcp.InCsumErrors"), 0, "in the host");
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.socket);
    }
}

fn boot(wires: &Namespace, socket: &Path, plan: Plan, files: &[PathBuf]) -> Vm {
    let Plan { packed, queues, mode } = plan;
    let listens = mode == Mode::Client;
    let socket = Socket { path: socket.to_owned(), listens };
    Vm::boot_with(wires, &[Card::VhostUser { socket, queues, packed, channel: None }], files)
}

#[test]
fn a_guest_talks_over_split_and_packed_rings() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    for (packed, queues) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let mut it = Joined::new(Plan { packed, queues, mode: Mode::Server });
        scene::until_answered(&it.host);
        it.must_ping_both_ways();
        it.must_echo(1 << 20);
        it.back_end.end();
    }
}

#[test]
fn a_guest_outlives_the_back_end_and_the_other_way_round() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    for (packed, queues, mode) in
        [(false, 1, Mode::Client), (true, 2, Mode::Client), (true, 1, Mode::Server)]
    {
        let mut it = Joined::new(Plan { packed, queues, mode });
        scene::until_answered(&it.host);
        for _ in 0..3 {
            it.back_end.kill();
            it.back_end = BackEnd::start(&it.host, &it.socket, it.plan);
            let took = scene::until_answered(&it.host);
            eprintln!("  packed {packed}, {mode:?}: {took:?} until traffic after kill -9");
        }
        it.must_ping_both_ways();
        it.must_echo(1 << 18);

        it.vm.reboot();
        it.configure();
        eprintln!("  {:?} until traffic after the guest's reboot", scene::until_answered(&it.host));
        it.must_ping_both_ways();

        // As `kill -9`: without a word.
        it.vm.kill();
        it.vm = boot(&it.wires, &it.socket, it.plan, &[]);
        it.configure();
        eprintln!("  {:?} until traffic after kill -9 of QEMU", scene::until_answered(&it.host));
        it.must_ping_both_ways();
        it.back_end.end();
    }
}

/// QEMU 7.2 tells its back end nothing of a queue that the guest's driver resets. So resets are not
/// offered, the driver refuses, and nothing is lost; pairs of queues come and go as ever.
#[test]
fn ethtool_in_a_guest_breaks_nothing() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let Some(ethtool) = Tool::find("ethtool") else {
        return eprintln!("skipped: no ethtool (scripts/install-deps.sh net)");
    };
    for packed in [false, true] {
        let plan = Plan { packed, queues: 2, mode: Mode::Server };
        let mut it = Joined::with_files(plan, &ethtool.files);
        scene::until_answered(&it.host);
        let sizes = it.vm.run(&ethtool.call("-g eth0"));
        for change in ["rx 128 tx 128", "rx 64", "tx 64"] {
            // While frames are on their way.
            let change = ethtool.call(&format!("-G eth0 {change}"));
            let mut pinging = it.ping_in_background();
            let (status, said) = it.vm.output(&change);
            assert_ne!(status, 0, "{change}: {said}");
            pinging.wait().unwrap();
            assert_eq!(it.vm.run(&ethtool.call("-g eth0")), sizes);
            it.must_ping_both_ways();
            it.must_echo(1 << 16);
        }
        for pairs in [1, 2, 1, 2] {
            let mut pinging = it.ping_in_background();
            it.vm.run(&ethtool.call(&format!("-L eth0 combined {pairs}")));
            pinging.wait().unwrap();
            it.must_ping_both_ways();
            it.must_echo(1 << 16);
        }
        it.back_end.end();
    }
}

/// A process with an engine: a tap of the host's, and the guest's port.
pub(crate) struct BackEnd(Child);

impl BackEnd {
    fn start(host: &Namespace, socket: &Path, plan: Plan) -> BackEnd {
        let mode = if plan.mode == Mode::Server { "server" } else { "client" };
        let (netns, queues) = (host.path(), plan.queues.to_string());
        let variables = [
            (NETNS, OsStr::new(&netns)),
            (SOCKET, socket.as_os_str()),
            (QUEUES, OsStr::new(&queues)),
            (MODE, OsStr::new(mode)),
        ];
        BackEnd::run("guest::vhost::back_end", &variables)
    }

    /// Runs a test of this program as a back end, until that serves.
    pub(crate) fn run(test: &str, variables: &[(&str, &OsStr)]) -> BackEnd {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = |line: std::io::Result<String>| line.unwrap().contains(READY);
        assert!(lines.any(is_ready), "the back end starts");
        // Reads the output until its end.
        std::thread::spawn(move || lines.for_each(drop));
        BackEnd(child)
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Ends it; it looks whether all frames are accounted for.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success(), "frames are missing");
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The process that [`BackEnd`] runs; does nothing when it runs as a test.
#[test]
fn back_end() {
    let Ok(socket) = std::env::var(SOCKET) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    let workers = vec![WorkerOptions::default()];
    let engine = Engine::start(&Options { workers, frames: 8192 }).unwrap();
    let options = tap::Options { netns: Some(variable(NETNS)), ..tap::Options::new("h1") };
    let options = tap::Options { persist: true, ..options };
    let up = engine.add_port(PortOptions::new("up"), Box::new(Tap::new(&options).unwrap()));
    let mut options = vhost_user::Options::new(socket);
    options.queues = variable(QUEUES).parse().unwrap();
    options.mode = if variable(MODE) == "server" { Mode::Server } else { Mode::Client };
    let device = Box::new(VhostUser::new(options).unwrap());
    let vm = engine.add_port(PortOptions::new("vm"), device).unwrap();
    for (from, to) in [(up.unwrap(), "vm"), (vm, "up")] {
        let upper = UpperName::Named(to.to_owned());
        engine.change(|config| config.set_upper(from, upper)).unwrap();
    }
    serve_until_told();
    engine.stop();
    assert_eq!(engine.conservation().missing(), 0, "{:?}", engine.conservation());
}

/// Says that it serves, until [`BackEnd::end`].
#[expect(clippy::print_stdout, reason = "who started it reads that")]
pub(crate) fn serve_until_told() {
    println!("{READY}");
    let mut nothing = Vec::new();
    std::io::stdin().read_to_end(&mut nothing).unwrap();
}

const READY: &str = "=back end is ready";
const SOCKET: &str = "TOWPATH_TEST_VHOST_SOCKET";
const NETNS: &str = "TOWPATH_TEST_VHOST_NETNS";
const QUEUES: &str = "TOWPATH_TEST_VHOST_QUEUES";
const MODE: &str = "TOWPATH_TEST_VHOST_MODE";
