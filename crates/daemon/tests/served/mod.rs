//! A whole daemon that runs in the test, as `towpath up` does, and the host's interfaces it is on.

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use towpath_daemon::client::Client;
use towpath_daemon::{Options, up};

/// A daemon with a directory of its own. There is one at a time in a process.
pub(crate) struct Served {
    pub(crate) dir: PathBuf,
    pub(crate) client: Client,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Served {
    pub(crate) fn start(test: &str, config: &str) -> Served {
        let name = format!("towpath-{test}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("there is room");
        let file = dir.join("t.toml");
        std::fs::write(&file, config).expect("there is room");
        let socket = dir.join("api.sock");
        let options = Options {
            config: Some(file),
            socket: Some(socket.clone()),
            verbose: 0,
            quiet: true,
            ..Options::default()
        };
        let thread = std::thread::spawn(move || up(&options));
        let client = Client::new(&socket).expect("there are descriptors");
        let served = Served { dir, client, thread: Some(thread) };
        served.wait("the daemon", Duration::from_secs(20), || {
            served.client.get::<Value>("/v1/status").is_ok()
        });
        served
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.client.get(path).expect("an answer")
    }

    /// Waits until it is so; gives how long that took.
    pub(crate) fn wait(&self, what: &str, limit: Duration, is_so: impl Fn() -> bool) -> Duration {
        let start = Instant::now();
        while !is_so() {
            let status = || self.client.get::<Value>("/v1/status");
            assert!(start.elapsed() < limit, "no {what} in {limit:?}: {:?}", status());
            std::thread::sleep(Duration::from_millis(5));
        }
        start.elapsed()
    }

    /// Ends it as systemd does, and says what became of the frames.
    pub(crate) fn end(mut self) {
        let ours = rustix::process::getpid();
        rustix::process::kill_process(ours, rustix::process::Signal::TERM).expect("it is us");
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("no panic").expect("no error");
        std::fs::remove_dir_all(&self.dir).expect("it is ours");
    }
}

/// Two network namespaces of the host's, which go with this.
pub(crate) struct Namespaces {
    pub(crate) near: String,
    pub(crate) far: String,
}

impl Namespaces {
    /// None where that cannot be.
    pub(crate) fn new(test: &str) -> Option<Namespaces> {
        if !rustix::process::geteuid().is_root() || !std::fs::exists("/dev/net/tun").ok()? {
            return None;
        }
        let name = |end: &str| format!("towpath-{test}-{end}-{}", std::process::id());
        let namespaces = Namespaces { near: name("near"), far: name("far") };
        for name in [&namespaces.near, &namespaces.far] {
            ip(&["netns", "add", name]);
        }
        Some(namespaces)
    }

    /// `ip` in the near one.
    pub(crate) fn ip(&self, arguments: &str) {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        ip(&[&["-n", &self.near], &words[..]].concat());
    }

    /// A wire from here to the other namespace.
    pub(crate) fn wire(&self, near: &str, far: &str) {
        let to = &self.far;
        self.ip(&format!("link add {near} type veth peer name {far} netns {to}"));
        ip(&["-n", to, "link", "set", far, "up"]);
        self.ip(&format!("link set {near} up"));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            ip(&["netns", "del", name]);
        }
    }
}

pub(crate) fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {arguments:?}: {done:?}");
}
