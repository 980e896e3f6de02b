//! A whole daemon that runs in the test, as `towpath up` does.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use serde_json::Value;
use towpath_daemon::client::Client;
use towpath_daemon::{Options, up};

/// A daemon with a directory of its own. A process has one at a time, since the signal that ends a
/// daemon goes to its process: other tests wait.
pub(crate) struct Served {
    pub(crate) dir: PathBuf,
    pub(crate) client: Client,
    thread: Option<JoinHandle<Result<(), String>>>,
    _turn: ReentrantMutexGuard<'static, ()>,
}

static TURN: ReentrantMutex<()> = ReentrantMutex::new(());

impl Served {
    pub(crate) fn start(test: &str, config: &str) -> Served {
        let name = format!("towpath-{test}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _absent = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("there is room");
        Served::start_in(dir, config)
    }

    /// The same in a directory where one was before.
    pub(crate) fn start_in(dir: PathBuf, config: &str) -> Served {
        let turn = TURN.lock();
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
        let served = Served { dir, client, thread: Some(thread), _turn: turn };
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

    /// Ends it as systemd does.
    pub(crate) fn end(self) {
        let dir = self.stop();
        std::fs::remove_dir_all(dir).expect("it is ours");
    }

    /// The same; what it saved stays.
    pub(crate) fn stop(mut self) -> PathBuf {
        let ours = rustix::process::getpid();
        rustix::process::kill_process(ours, rustix::process::Signal::TERM).expect("it is us");
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("no panic").expect("no error");
        self.dir.clone()
    }
}
