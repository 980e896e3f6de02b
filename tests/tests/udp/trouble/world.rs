//! Two hosts, and a daemon that is a process of its own at the near one.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use towpath_daemon::client::Client;
use towpath_daemon::{Options, up};
use towpath_kernel::Namespace;

use super::owners::Owner;
use crate::kernel::Kernel;
use crate::lab::{FAR, NEAR, socket_in, unavailable, wait_for};

/// Both hosts, and the state of what tests change.
pub(crate) struct World {
    pub(crate) owner: Owner,
    pub(crate) config: Config,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) dir: PathBuf,
    pub(crate) far: Namespace,
    pub(crate) near: Namespace,
}

/// The parts of the configuration that tests change.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) has_port: bool,
    pub(crate) has_shadow: bool,
    /// Further keys of the port.
    pub(crate) keys: String,
    /// Further text.
    pub(crate) more: String,
}

impl World {
    /// Two joined hosts, whose daemon runs; `None`, after a message, if this machine cannot have
    /// them.
    pub(crate) fn new(owner: Owner) -> Option<World> {
        if let Some(why) = unavailable() {
            eprintln!("skipped: {why}");
            return None;
        }
        let (far, near) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        near.enter().unwrap();
        owner.plug(&near, &far);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("trouble-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join(SMALL)).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=4m", "none"];
        let mounted = Command::new("mount").args(mount).arg(dir.join(SMALL)).status();
        assert!(mounted.unwrap().success());
        let config =
            Config { has_port: true, has_shadow: true, keys: String::new(), more: String::new() };
        let mut world = World { owner, config, daemon: None, dir, far, near };
        world.write();
        world.start();
        world.settle();
        Some(world)
    }

    /// Writes the configuration.
    pub(crate) fn write(&self) {
        fs::write(self.dir.join(CONFIG), self.text()).unwrap();
    }

    fn text(&self) -> String {
        let Config { has_port, has_shadow, keys, more } = &self.config;
        let shadow = if *has_shadow { "shadow = \"stack0\"\n" } else { "" };
        let port = match has_port {
            true => self.owner.ports(&format!("{shadow}{keys}"), &self.far.path()),
            false => String::new(),
        };
        format!(
            "[state]\ndir = \"small/state\"\n[[port]]\nname = \"spare\"\nkind = \"sink\"\n{port}{more}"
        )
    }

    /// Starts a daemon.
    pub(crate) fn start(&mut self) {
        self.daemon = Some(Daemon::start(&self.dir));
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Reads the configuration; gives its failures.
    pub(crate) fn reload(&self) -> Result<Value, String> {
        self.write();
        let done = self.daemon().client.json::<Value>("POST", "/v1/reload", &json!({}));
        done.map(|report| report["failures"].clone()).map_err(|error| error.to_string())
    }

    /// Reads the configuration, which is without failures.
    pub(crate) fn reload_well(&self) {
        let failures = self.reload().unwrap();
        assert_eq!(failures, json!([]), "{}", self.text());
    }

    /// Both hosts have their addresses, where their interfaces are there.
    pub(crate) fn settle(&self) {
        for (host, device, addresses) in [(&self.far, "far", FAR), (&self.near, "stack0", NEAR)] {
            if device == "stack0" && !(self.config.has_shadow && self.config.has_port) {
                continue;
            }
            wait_for(device, || host.run(&format!("ip link set {device} up")).is_ok());
            for address in addresses {
                let length = if address.contains(':') { "64 nodad" } else { "24" };
                host.run(&format!("ip addr replace {address}/{length} dev {device}")).unwrap();
            }
        }
    }

    /// Fills the disk of the state and the log, or makes room again.
    pub(crate) fn fill(&self, is_full: bool) {
        let path = self.dir.join(FILLER);
        if !is_full {
            return fs::remove_file(path).unwrap();
        }
        let mut file = File::create(path).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write(&vec![b' '; size]).is_ok_and(|len| len == size) {}
        }
    }

    pub(crate) fn near(&self, line: &str) {
        self.near.run(line).unwrap();
    }

    pub(crate) fn far(&self, line: &str) {
        self.far.run(line).unwrap();
    }

    /// The path of the socket for applications.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(XSK)
    }

    pub(crate) fn options(&self) -> towpath_udp::Options {
        let options = towpath_udp::Options::new("p0");
        towpath_udp::Options { path: self.path(), chunks: 1024, entries: 512, ..options }
    }

    /// A socket of the kernel at the far end.
    pub(crate) fn kernel(&self, address: &str) -> Kernel {
        Kernel::new(self.far_socket(address))
    }

    /// A plain socket of the kernel at the far end.
    pub(crate) fn far_socket(&self, address: &str) -> UdpSocket {
        socket_in(&self.far, address)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join(LOG)).unwrap_or_default();
            eprintln!("{:?}: the daemon's log:\n{log}", self.owner);
            let lines = ["addr", "route", "-6 route show table all", "neigh", "-s link"];
            for line in lines {
                for host in [&self.near, &self.far] {
                    eprintln!("{}", host.run(&format!("ip {line}")).unwrap_or_default());
                }
            }
        }
        self.daemon = None;
        let _unmounted = Command::new("umount").arg("-l").arg(self.dir.join(SMALL)).status();
        let _gone = fs::remove_dir_all(&self.dir);
    }
}

/// A daemon that runs.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) client: Client,
    log: PathBuf,
}

impl Daemon {
    /// Starts one in a folder, and waits until it answers.
    pub(crate) fn start(dir: &Path) -> Daemon {
        let mut daemon = Daemon::spawn(dir);
        wait_for("daemon", || {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "{}", daemon.said());
            daemon.client.get::<Value>("/v1/status").is_ok()
        });
        let path = dir.join(XSK);
        wait_for("socket for applications", || path.exists());
        daemon
    }

    /// Starts one, which may end at once.
    pub(crate) fn spawn(dir: &Path) -> Daemon {
        let log = dir.join(LOG);
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().unwrap());
        command.args(["trouble::world::a_daemon", "--exact", "--nocapture"]);
        command.env(DAEMON, "1").current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().unwrap();
        Daemon { child, client: Client::new(&dir.join(SOCKET)).unwrap(), log }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.client.get(path).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.check();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; gives whether it succeeded.
    pub(crate) fn wait(mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// It runs, and no thread of it has panicked.
    pub(crate) fn check(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "it ended");
        assert!(!self.said().contains("panicked"), "a thread panicked");
    }

    /// Number of its descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// The open sockets of applications, each with its addresses.
    pub(crate) fn sockets(&self) -> Vec<Value> {
        self.get("/v1/xsk")["sockets"].as_array().unwrap().clone()
    }

    /// Processor time that it has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = fields.split(' ').skip(11).take(2).map(|it| it.parse::<u64>().unwrap());
        // The kernel's clock ticks for programs (`USER_HZ`).
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// Frames that it lost track of.
    pub(crate) fn missing(&self) -> i64 {
        let stats = self.get("/v1/stats");
        let missing = stats["frames"]["missing"].as_i64();
        missing.unwrap_or_else(|| panic!("{stats}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// The daemon's process; no test otherwise.
#[test]
fn a_daemon() {
    if std::env::var_os(DAEMON).is_none() {
        return;
    }
    let options = Options {
        config: Some(CONFIG.into()),
        socket: Some(SOCKET.into()),
        verbose: 0,
        quiet: false,
        ..Options::default()
    };
    if let Err(error) = up(&options) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

const DAEMON: &str = "TOWPATH_UDP_DAEMON";
pub(crate) const CONFIG: &str = "t.toml";
const SOCKET: &str = "api.sock";
const XSK: &str = "api.sock.xsk";
const LOG: &str = "small/log";
const SMALL: &str = "small";
const FILLER: &str = "small/filler";
