//! Where the walk takes place: a folder, a small disk for the state, wires, and the daemon.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::Outcome;
use crate::daemon::{CONFIG, Daemon, SOCKET, Sink};
use crate::model::{Content, Disk, Kind, Lane, Model, Text};
use crate::traffic::Place;

/// All of it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) daemon: Daemon,
    /// The daemon's.
    pub(crate) pid: Arc<AtomicU32>,
    /// What was read of its log, and of those before.
    log: Arc<Mutex<Vec<u8>>>,
    /// Connections that do nothing.
    pub(crate) idle: Vec<std::os::unix::net::UnixStream>,
    /// What others run beside it, by lane.
    neighbours: BTreeMap<(usize, Neighbour), Child>,
}

/// What somebody runs beside the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Neighbour {
    /// An application with an AF_XDP socket.
    App,
    /// Whoever looks at frames.
    Dump,
}

impl World {
    /// Makes it, as the model has it, with a daemon that was just started.
    pub(crate) fn new(dir: &Path, model: &Model) -> Outcome<World> {
        let _absent = Command::new("umount").arg("-Rlq").arg(dir).status();
        let _absent = fs::remove_dir_all(dir);
        made(fs::create_dir_all(dir))?;
        // Whoever reads the configuration leaves the time.
        run(&format!("mount -t tmpfs -o strictatime none {}", dir.display()))?;
        made(fs::create_dir(dir.join(STATE)))?;
        let state = dir.join(STATE).display().to_string();
        run(&format!("mount -t tmpfs -o size=512k none {state}"))?;
        for (number, lane) in model.lanes.iter().enumerate() {
            plug(number, lane.kind)?;
            put(dir, number, lane.file.content)?;
        }
        write_config(dir, model, Text::Good)?;
        let log = Arc::default();
        let daemon = Daemon::start(dir, Sink::Pipe, &log)?;
        let (idle, neighbours) = (Vec::new(), BTreeMap::new());
        let pid = Arc::new(daemon.pid().into());
        Ok(World { dir: dir.to_owned(), daemon, pid, log, idle, neighbours })
    }

    /// Waits until the daemon answers.
    pub(crate) fn wait_start(&mut self) -> Outcome {
        let start = Instant::now();
        while self.daemon.status().is_err() {
            if let Some(ended) = self.daemon.has_ended() {
                return Err(ended);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the daemon does not answer in {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Starts the next daemon.
    pub(crate) fn start(&mut self, sink: Sink) -> Outcome {
        self.idle.clear();
        while let Some((place, _)) = self.neighbours.first_key_value() {
            self.kill_neighbour(*place);
        }
        self.daemon = Daemon::start(&self.dir, sink, &self.log)?;
        self.pid.store(self.daemon.pid(), Ordering::Relaxed);
        Ok(())
    }

    /// Somebody runs something at a lane, as long as that goes.
    pub(crate) fn run_neighbour(&mut self, lane: usize, which: Neighbour) -> Outcome {
        self.kill_neighbour((lane, which));
        let port = format!("a{lane}");
        let words = match which {
            Neighbour::App => ["xsk", "drop", &port, "--map", "sockets", "--key", "0"].to_vec(),
            Neighbour::Dump => ["dump", &port, "--rx-capture", "entry,exit"].to_vec(),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.args(words).args(["--socket", SOCKET]).current_dir(&self.dir);
        let none = Stdio::null;
        let child = command.stdin(none()).stdout(none()).stderr(none()).spawn();
        let child = child.map_err(|error| format!("{which:?} can't be started: {error}"))?;
        self.neighbours.insert((lane, which), child);
        Ok(())
    }

    /// It ends without a word.
    pub(crate) fn kill_neighbour(&mut self, place: (usize, Neighbour)) {
        if let Some(mut child) = self.neighbours.remove(&place) {
            // It may have ended.
            let _ended = child.kill();
            let _waited = child.wait();
        }
    }

    /// Puts something where a lane's object is.
    pub(crate) fn put(&self, lane: usize, content: Content) -> Outcome {
        put(&self.dir, lane, content)
    }

    pub(crate) fn write_config(&self, model: &Model, text: Text) -> Outcome {
        write_config(&self.dir, model, text)
    }

    /// Breaks or mends the disk of the state; it is good before it gets another fault.
    pub(crate) fn set_disk(&self, from: Disk, to: Disk) -> Outcome {
        let state = self.dir.join(STATE);
        let shown = state.display().to_string();
        match from {
            Disk::Full => made(fs::remove_file(state.join(FILLER)))?,
            Disk::ReadOnly => run(&format!("umount {shown}"))?,
            Disk::Limited => self.limit_files(None)?,
            Disk::Good => {}
        }
        match to {
            Disk::Full => fill(&state.join(FILLER)),
            Disk::ReadOnly => {
                run(&format!("mount --bind {shown} {shown}"))?;
                run(&format!("mount -o remount,bind,ro {shown}"))
            }
            Disk::Limited => self.limit_files(Some(FILE_BYTES)),
            Disk::Good => Ok(()),
        }
    }

    fn limit_files(&self, current: Option<u64>) -> Outcome {
        let pid = Pid::from_raw(self.daemon.pid().cast_signed());
        let limit = Rlimit { current, maximum: None };
        let set = prlimit(pid, Resource::Fsize, limit);
        set.map(drop).map_err(|error| format!("RLIMIT_FSIZE: {error}"))
    }

    /// Has the daemon read its configuration by a signal, and waits until that is done.
    pub(crate) fn hang_up(&self) -> Outcome {
        let file = fs::File::open(self.dir.join(CONFIG)).map_err(|error| error.to_string())?;
        let (long_ago, start) = (SystemTime::UNIX_EPOCH, Instant::now());
        made(file.set_times(fs::FileTimes::new().set_accessed(long_ago)))?;
        self.daemon.signal(Signal::HUP);
        let read_at = || file.metadata().and_then(|about| about.accessed());
        while read_at().is_ok_and(|time| time == long_ago) {
            if start.elapsed() > PATIENCE {
                return Err(format!("SIGHUP: nobody read the configuration in {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        // An upload's turn comes when the reload is done, and changes nothing.
        let object = OBJECTS[0].into();
        let upload = self.daemon.client.send::<Value>("PUT", "/v1/objects?name=turn", object);
        upload.map(drop).map_err(|error| format!("after SIGHUP: {error}"))
    }

    /// Turns a bit of what was saved, while no daemon runs.
    pub(crate) fn damage(&self, place: u32) -> Outcome {
        let path = self.dir.join(STATE).join("state");
        let mut bytes = fs::read(&path).map_err(|error| format!("nothing was saved: {error}"))?;
        let at = place as usize % bytes.len();
        bytes[at] ^= 1 << (place % 7);
        made(fs::write(path, bytes))
    }

    /// Where the API listens, or the port of a virtual machine.
    pub(crate) fn socket(&self, is_vm: bool) -> PathBuf {
        self.dir.join(if is_vm { "vm.sock" } else { SOCKET })
    }

    /// The last lines of the log.
    pub(crate) fn log_end(&self) -> String {
        let log = self.log.lock();
        let text = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while let Some((place, _)) = self.neighbours.first_key_value() {
            self.kill_neighbour(*place);
        }
    }
}

/// Where frames are put in, at the first that takes them, and the interface where they come out.
pub(crate) fn ends(dir: &Path, number: usize, kind: Kind) -> (Vec<Place>, String) {
    let one = |name: String| vec![Place::Interface(name)];
    let output = format!("b{number}");
    match kind {
        Kind::Tap => (one(format!("a{number}")), output),
        Kind::Packet | Kind::Afxdp => (one(format!("w{number}a")), format!("w{number}b")),
        Kind::Bond => (members(number).map(Place::Interface).into(), output),
        Kind::Machine => (vec![Place::Machine(dir.join(format!("a{number}.sock")))], output),
    }
}

/// The members of a bond.
pub(crate) fn members(number: usize) -> [String; 2] {
    [format!("m{number}0"), format!("m{number}1")]
}

/// Makes the wires of a lane whose ports make none.
pub(crate) fn plug(number: usize, kind: Kind) -> Outcome {
    if kind.is_on_wire() {
        for end in ["a", "b"] {
            // Left over from the walk before.
            let _absent = run(&format!("ip link del w{number}{end}"));
            plug_end(number, end)?;
        }
    }
    Ok(())
}

/// A wire from the daemon's interface to the walk's.
pub(crate) fn plug_end(number: usize, end: &str) -> Outcome {
    let (near, far) = (format!("v{number}{end}"), format!("w{number}{end}"));
    let queues = "numrxqueues 2 numtxqueues 2";
    run(&format!("ip link add {near} {queues} type veth peer name {far} {queues}"))?;
    run(&format!("ip link set {far} up"))?;
    run(&format!("ip link set {near} up"))
}

/// Runs a command, which must succeed.
pub(crate) fn run(line: &str) -> Outcome {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {said}")) }
}

fn put(dir: &Path, lane: usize, content: Content) -> Outcome {
    let (path, beside) = (dir.join(format!("lane{lane}.o")), dir.join("new.o"));
    let version = match content {
        Content::Missing => {
            let _absent = fs::remove_file(path);
            return Ok(());
        }
        Content::First | Content::Half => 0,
        Content::Other => 1,
        Content::Wide => 2,
        Content::Refused => 3,
        Content::Nameless => 4,
        Content::Stuck => 5,
    };
    let bytes = OBJECTS[version];
    let len = if content == Content::Half { bytes.len() / 2 } else { bytes.len() };
    made(fs::write(&beside, &bytes[..len]))?;
    made(fs::rename(beside, path))
}

fn write_config(dir: &Path, model: &Model, text: Text) -> Outcome {
    let path = dir.join(CONFIG);
    let good = config(model, text == Text::Reordered);
    let bytes = match text {
        Text::Good | Text::Reordered => good,
        Text::Mistaken => format!("{good}\n[[port]]\nname = \"x\"\nkind = \"pari\"\n"),
        Text::Cut => good[..good.len() - CUT_BYTES].to_owned(),
        Text::Empty => String::new(),
        Text::Missing => {
            let _absent = fs::remove_file(path);
            return Ok(());
        }
    };
    made(fs::write(path, bytes))
}

fn config(model: &Model, is_reordered: bool) -> String {
    let mut lanes: Vec<String> =
        model.lanes.iter().enumerate().map(|(number, lane)| lane_config(number, lane)).collect();
    lanes.push("[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\npath = \"vm.sock\"\n".to_owned());
    if is_reordered {
        lanes.reverse();
    }
    format!(
        "[state]\ndir = \"{STATE}\"\ninterval = 1\n[engine]\nframes = 16384\nstuck_ms = 150\n{}",
        lanes.concat()
    )
}

fn lane_config(number: usize, lane: &Lane) -> String {
    let upper = format!("upper = \"b{number}\"\n");
    let port = |end: &str, kind: &str, more: &str| {
        format!("[[port]]\nname = \"{end}{number}\"\nkind = \"{kind}\"\n{more}")
    };
    let on_wire = |end: &str, kind: &str, more: &str| {
        port(end, kind, &format!("interface = \"v{number}{end}\"\n{more}"))
    };
    let ports = match lane.kind {
        Kind::Tap => port("a", "tap", &upper) + &port("b", "tap", ""),
        Kind::Packet => on_wire("a", "packet", &upper) + &on_wire("b", "packet", ""),
        Kind::Afxdp => on_wire("a", "afxdp", &upper) + &on_wire("b", "afxdp", ""),
        Kind::Machine => {
            port("a", "vhost-user", &format!("path = \"a{number}.sock\"\n{upper}"))
                + &port("b", "tap", "")
        }
        Kind::Bond => {
            let names = members(number);
            let taps =
                names.clone().map(|name| format!("[[port]]\nname = \"{name}\"\nkind = \"tap\"\n"));
            let bond = format!(
                "members = {names:?}\nmode = \"active-backup\"\nmiimon = 10\n\
                 primary = \"{}\"\n{upper}",
                names[0]
            );
            taps.concat() + &port("a", "bond", &bond) + &port("b", "tap", "")
        }
    };
    let attach = format!(
        "[[attach]]\nname = \"lane{number}\"\nport = \"a{number}\"\n\
         object = \"lane{number}.o\"\nprogram = \"filter\"\nset = {{ mask = {} }}\n",
        lane.file.mask
    );
    ports + &attach
}

/// Fills what is left of a disk.
fn fill(path: &Path) -> Outcome {
    use std::io::Write as _;
    let mut file = fs::File::create(path).map_err(|error| error.to_string())?;
    for size in [1 << 16, 1 << 12, 1] {
        while file.write(&vec![0; size]).is_ok_and(|len| len == size) {}
    }
    Ok(())
}

pub(crate) fn made(result: std::io::Result<()>) -> Outcome {
    result.map_err(|error| error.to_string())
}

const OBJECTS: [&[u8]; 6] = [
    include_bytes!("programs/chaos_1.o"),
    include_bytes!("programs/chaos_2.o"),
    include_bytes!("programs/chaos_3.o"),
    include_bytes!("programs/chaos_4.o"),
    include_bytes!("programs/chaos_5.o"),
    include_bytes!("programs/chaos_6.o"),
];
const STATE: &str = "state";
const FILLER: &str = "filler";
/// What a limited file may have: nothing that is saved is shorter.
const FILE_BYTES: u64 = 16;
/// It ends in the middle of the last line.
const CUT_BYTES: usize = 4;
const LINES_SHOWN: usize = 40;
/// A signal is heard by then.
const PATIENCE: Duration = Duration::from_secs(10);
