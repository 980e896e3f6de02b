//! A daemon in a process of its own, as `towpath up` runs it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use towpath_xsk_client::Connection;

/// It ends with this value.
pub(crate) struct Daemon {
    child: Child,
    /// Folder of the daemon's sockets and configuration.
    pub(crate) directory: PathBuf,
}

impl Daemon {
    /// Starts one with that configuration and waits until its ports are there. It is in the network
    /// namespace of the calling thread.
    #[track_caller]
    pub(crate) fn start(config: &str) -> Daemon {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-sockets-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let sockets = directory.join("xsk.sock");
        let header = format!("[engine]\nframes = 4096\n[xsk]\nsocket = {sockets:?}\n");
        std::fs::write(directory.join("towpath.toml"), header + config).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon::is_a_daemon", "--ignored", "--nocapture"])
            .env(DIRECTORY, &directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut daemon = Daemon { child, directory };
        let until = Instant::now() + Duration::from_secs(20);
        while Connection::open(&sockets).is_err() {
            assert!(daemon.child.try_wait().unwrap().is_none(), "the daemon has ended");
            assert!(Instant::now() < until, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

/// Not a test of its own: the process that the others start.
#[test]
#[ignore = "started by other tests"]
fn is_a_daemon() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let options = towpath_daemon::Options {
        config: Some(directory.join("towpath.toml")),
        socket: Some(directory.join("api.sock")),
        // Ends the daemon if the test that started it is killed.
        runs_for: Some(Duration::from_secs(300)),
        quiet: true,
        ends_process: true,
        ..towpath_daemon::Options::default()
    };
    towpath_daemon::up(&options).unwrap();
}

const DIRECTORY: &str = "TOWPATH_TEST_DAEMON";
