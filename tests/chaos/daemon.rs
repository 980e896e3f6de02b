//! The daemon under test: a process of its own, its log's reader, and its API.

use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use towpath_daemon::client::{Client, ClientError};

use crate::Outcome;
use crate::pipe_unsafe::make_small;

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    pub(crate) client: Client,
    log: Reader,
    /// Writes where its log goes.
    filler: File,
}

/// Where its standard error goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    /// A pipe that is read.
    Pipe,
    /// A disk without room.
    Full,
}

impl Daemon {
    /// Starts one in a folder; it may not answer yet.
    pub(crate) fn start(dir: &Path, sink: Sink, kept: &Arc<Mutex<Vec<u8>>>) -> Outcome<Daemon> {
        let said = |error: std::io::Error| format!("the daemon can't be started: {error}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(["up", "-c", CONFIG, "--socket", SOCKET]).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let (reader, writer) = std::io::pipe().map_err(said)?;
        make_small(writer.as_fd()).map_err(said)?;
        // Opened again: the daemon's end is not to be non-blocking.
        let mut filler = File::options();
        filler.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let filler = filler.open(format!("/proc/self/fd/{}", writer.as_raw_fd())).map_err(said)?;
        match sink {
            Sink::Pipe => command.stderr(writer),
            Sink::Full => {
                let full = File::options().write(true).open("/dev/full");
                command.stderr(full.map_err(said)?)
            }
        };
        let child = command.spawn().map_err(said)?;
        // The writer goes with the command: only the child has it then.
        drop(command);
        let client = Client::new(&dir.join(SOCKET)).map_err(said)?;
        Ok(Daemon { child, client, log: Reader::new(reader, Arc::clone(kept)), filler })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("the daemon ended: {status}"))
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.child.kill().map_err(|error| error.to_string())?;
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It is our child, and not waited for: the number is still its own.
        let _gone = kill_process(Pid::from_child(&self.child), signal);
    }

    /// What it says about itself.
    pub(crate) fn status(&self) -> Result<Value, ClientError> {
        self.client.get("/v1/status")
    }

    /// Reads its log, or doesn't, so that there is no room for the next line; or hangs up.
    pub(crate) fn listen(&mut self, how: Listening) {
        self.log.tell(how);
        if how == Listening::Waits {
            std::thread::sleep(2 * LOOK);
            for size in [4096, 1] {
                while self.filler.write(&FILLER[..size]).is_ok() {}
            }
        }
    }

    /// The id of a map that a lane's program has.
    pub(crate) fn map(&self, lane: usize, name: &str) -> Outcome<u64> {
        // It may get a successor, which has the same maps, between two looks.
        let again = self.find_map(lane, name);
        again.or_else(|_replaced| self.find_map(lane, name))
    }

    fn find_map(&self, lane: usize, name: &str) -> Outcome<u64> {
        let get = |path: &str| self.client.get::<Value>(path).map_err(|error| error.to_string());
        let (programs, maps) = (get("/v1/programs")?, get("/v1/maps")?);
        let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let object = format!("/lane{lane}.o");
        let is_its = |it: &Value| it["object"].as_str().is_some_and(|path| path.ends_with(&object));
        let program = all(&programs).into_iter().find(is_its);
        let program = program.ok_or_else(|| format!("lane {lane} has no program"))?["id"].clone();
        let has = |map: &Value| map["name"] == name && all(&map["prog_ids"]).contains(&program);
        let map = all(&maps).into_iter().find(has);
        map.and_then(|map| map["id"].as_u64()).ok_or_else(|| format!("lane {lane}: no map {name}"))
    }

    /// Stores or removes an element.
    pub(crate) fn set(&self, map: u64, key: u32, is_there: bool) -> Result<(), ClientError> {
        self.put(map, key, is_there.then(|| 1.into()))
    }

    /// Stores a value, or removes what is there.
    pub(crate) fn put(&self, map: u64, key: u32, value: Option<Value>) -> Result<(), ClientError> {
        let (verb, body) = match value {
            Some(value) => ("update", json!({ "key": key, "value": value })),
            None => ("delete", json!({ "key": key })),
        };
        self.client.json::<Value>("POST", &format!("/v1/maps/{map}/{verb}"), &body).map(drop)
    }

    /// A port's ifindex.
    pub(crate) fn index(&self, port: &str) -> Outcome<u64> {
        let port: Result<Value, _> = self.client.get(&format!("/v1/ports/{port}"));
        port.map(|it| it["index"].as_u64().unwrap_or(0)).map_err(|error| error.to_string())
    }

    /// All keys of a map.
    pub(crate) fn keys(&self, map: u64) -> Outcome<Vec<u64>> {
        let page: Value = self
            .client
            .get(&format!("/v1/maps/{map}/entries"))
            .map_err(|error| error.to_string())?;
        let entries = page.as_array().cloned().unwrap_or_default();
        let mut keys: Vec<u64> = entries.iter().filter_map(|it| it["key"].as_u64()).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Waits until it has ended.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> Outcome<Option<i32>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status.code());
            }
            if start.elapsed() > limit {
                return Err(format!("the daemon did not end in {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// What becomes of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    /// They are read.
    Reads,
    /// They stay in the pipe.
    Waits,
    /// Nobody has the other end.
    Gone,
}

/// Whoever reads the log.
#[derive(Debug)]
struct Reader {
    orders: Option<Sender<Listening>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn new(mut pipe: PipeReader, kept: Arc<Mutex<Vec<u8>>>) -> Reader {
        let (orders, told) = channel();
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).expect("it is a pipe");
        let thread = std::thread::spawn(move || {
            let (mut how, mut bytes) = (Listening::Reads, vec![0; 1 << 16]);
            loop {
                match told.recv_timeout(LOOK) {
                    Ok(order) => how = order,
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                }
                if how == Listening::Gone {
                    return;
                }
                while how == Listening::Reads
                    && let Ok(len @ 1..) = pipe.read(&mut bytes)
                {
                    let said = bytes[..len].iter().filter(|byte| **byte != FILLER[0]);
                    kept.lock().extend(said);
                }
            }
        });
        Reader { orders: Some(orders), thread: Some(thread) }
    }

    fn tell(&mut self, how: Listening) {
        // It may be gone already.
        let _gone = self.orders.as_ref().is_some_and(|orders| orders.send(how).is_ok());
        if how == Listening::Gone {
            self.join();
        }
    }

    fn join(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.join();
    }
}

/// The configuration's name.
pub(crate) const CONFIG: &str = "t.toml";
/// The API's socket.
pub(crate) const SOCKET: &str = "s.sock";
const LOOK: Duration = Duration::from_millis(5);
/// What the log never says.
const FILLER: [u8; 4096] = [0; 4096];
