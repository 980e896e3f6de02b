//! An application in C, compiled for libxdp and for Towpath: its output must be the same.
//!
//! In both runs, a veth leads to the application, and the tester at the far end must see the same.
//! The near end has the kernel's socket in one run; in the other, it has a daemon's port, and the
//! socket is the daemon's.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use towpath_ring::Desc;

use crate::daemon::Daemon;
use crate::packets::{PATIENCE, location, packet};
use crate::socket::{Plan, Socket};
use crate::world::{End, World, kernel_refuses};

/// The application for one of the worlds.
struct Built(PathBuf);

impl Built {
    /// Builds the application for libxdp, or for Towpath's library.
    fn new(for_towpath: bool) -> Result<Built, String> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        // As it is installed: programs ask for what the library calls itself.
        let installed = folder.join("libtowpath_xsk_client.so.0");
        let _there = std::os::unix::fs::symlink("libtowpath_xsk_capi.so", installed);
        let library = folder.display().to_string();
        let program = Built(std::env::temp_dir().join(format!(
            "towpath-app-{}-{}",
            std::process::id(),
            if for_towpath { "ours" } else { "libxdp" }
        )));
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program.0);
        command.arg(top.join("tests/sockets/app.c"));
        if for_towpath {
            command.arg("-I").arg(top.join("../crates/xsk/include")).arg("-DWITH_TOWPATH");
            command.args(["-L", &library, "-ltowpath_xsk_capi"]);
            command.arg(format!("-Wl,-rpath,{library}"));
        } else if Path::new("/usr/include/xdp/xsk.h").exists() {
            command.args(["-lxdp", "-lbpf"]);
        } else {
            return Err("libxdp-dev is missing: scripts/install-deps.sh test".to_owned());
        }
        let output = command.output().map_err(|error| format!("no C compiler: {error}"))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(program)
    }

    /// Starts it, and again while the queue is not yet free of the one before.
    #[track_caller]
    fn start_ready(&self, arguments: &str, daemon: Option<&Daemon>) -> App {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut app = self.start(arguments, daemon);
            match app.wait_until_ready() {
                Ok(()) => break app,
                Err(why) => assert!(why.contains("busy") && Instant::now() < until, "{why}"),
            }
        }
    }

    fn start(&self, arguments: &str, daemon: Option<&Daemon>) -> App {
        let mut command = Command::new(&self.0);
        command.args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Programs that are pinned would outlive the test.
        command.env("LIBXDP_SKIP_DISPATCHER", "1");
        if let Some(daemon) = daemon {
            command.env("TOWPATH_XSK", daemon.sockets());
        }
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        App { child, errors }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// The application as it runs.
struct App {
    child: Child,
    /// Open as long as it runs: it may have more to say.
    errors: BufReader<ChildStderr>,
}

impl App {
    /// Waits until it has its socket; an error says why it has none.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let (mut line, mut before) = (String::new(), String::new());
        // Messages of libraries come first.
        while line != "ready\n" {
            line.clear();
            let count = self.errors.read_line(&mut line).unwrap();
            before += &line;
            if count == 0 {
                return Err(before);
            }
        }
        Ok(())
    }

    /// The application's output, after its end.
    #[track_caller]
    fn said(mut self) -> String {
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                let _ended = self.child.kill();
                let mut said = String::new();
                self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it does not end, and said\n{said}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The peer at the far end.
struct Tester(Socket);

impl Tester {
    fn new(world: &World) -> Tester {
        let mut socket = world.open(&Plan::new(End::Far));
        socket.fill_half(512);
        Tester(socket)
    }

    /// Sends packets, not more at a time than a queue holds.
    fn send(&mut self, lengths: &[usize]) -> String {
        let mut seen = String::new();
        for (number, &len) in (0..).zip(lengths) {
            let addr = self.0.chunk_to_send(number, 64);
            let desc = self.0.place(addr, &packet(number, len));
            self.0.send_all(&[desc]);
            self.0.completed();
            if number % 16 == 15 {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.look(&mut seen);
        }
        seen
    }

    /// Appends all packets that arrive, until no more do.
    fn see(&mut self, seen: &mut String) {
        let came = self.0.receive_all();
        self.say(&came, seen);
    }

    fn look(&mut self, seen: &mut String) {
        let came = self.0.receive();
        self.say(&came, seen);
    }

    fn say(&mut self, came: &[Desc], seen: &mut String) {
        for desc in came {
            let bytes = self.0.bytes(desc);
            let sum = bytes
                .iter()
                .fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            say!(seen, "{:02x?} {} bytes, sum {sum:016x}", &bytes[..14], bytes.len());
        }
        self.0.fill(came.iter().map(|desc| location(desc.addr)));
    }
}

/// Runs everything; gives what the application said and what was seen at the far end.
fn run_all(app: &Built, world: &World, daemon: Option<&Daemon>) -> String {
    let mut tester = Tester::new(world);
    let mut out = String::new();
    say!(out, "refusals\n{}", app.start("refusals near", daemon).said());
    let short: Vec<_> = (0..200).map(|number| 60 + number * 7 % 1400).collect();
    let long: Vec<_> = (0..100).map(|number| 60 + number * 97 % 3300).collect();
    for (mode, lengths, flags) in [
        ("receive", &short, COPY),
        ("echo", &short, COPY),
        ("receive", &long, COPY | SEVERAL),
        ("echo", &long, COPY | SEVERAL),
        ("transmit", &short, COPY),
        ("transmit", &long, COPY | SEVERAL),
    ] {
        let line = format!("{mode} near {} {flags}", lengths.len());
        let running = app.start_ready(&line, daemon);
        let mut seen = if mode == "transmit" { String::new() } else { tester.send(lengths) };
        tester.see(&mut seen);
        say!(out, "{mode}, flags {flags}\n{}", running.said());
        tester.see(&mut seen);
        say!(out, "seen\n{seen}");
    }
    out
}

/// On a thread of its own, which enters a namespace.
fn apart(action: impl FnOnce() -> String + Send) -> String {
    std::thread::scope(|scope| match scope.spawn(action).join() {
        Ok(said) => said,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[test]
fn one_source_two_worlds() {
    if let Some(why) = kernel_refuses() {
        return eprintln!("skipped: {why}");
    }
    let (ours, theirs) = match (Built::new(true), Built::new(false)) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(why), _) | (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let kernel = apart(|| run_all(&theirs, &World::kernel_with(&[End::Far]), None));
    for kind in ["afxdp", "packet"] {
        let towpath = apart(|| {
            let world = World::kernel_with(&[End::Far]);
            let daemon = Daemon::start(&format!("[[port]]\nname = \"near\"\nkind = \"{kind}\"\n"));
            run_all(&ours, &world, Some(&daemon))
        });
        assert!(kernel.lines().count() > 1000, "{kernel}");
        for (ours, theirs) in towpath.lines().zip(kernel.lines()) {
            assert_eq!(ours, theirs, "{kind}: Towpath on the left, the kernel on the right");
        }
        assert_eq!(towpath.len(), kernel.len());
    }
}

const COPY: u16 = towpath_xsk_client::abi::COPY;
/// `XDP_USE_SG`
const SEVERAL: u16 = towpath_xsk_client::abi::USE_SG;
