//! Network namespaces without names, and commands in them.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, Command, Output, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace: a host with a stack of its own.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
}

/// A command that runs in the background and ends with this.
pub(crate) struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Namespace {
    /// A new one, with nothing but a loopback device.
    pub(crate) fn new() -> Namespace {
        let thread = std::thread::spawn(|| {
            towpath_kernel::isolate_network().unwrap();
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.unwrap().success());
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Namespace { file: thread.join().unwrap() }
    }

    /// One that somebody else made.
    pub(crate) fn open(path: &str) -> Namespace {
        Namespace { file: File::open(path).unwrap() }
    }

    /// A new one, which the calling thread enters for good: what it opens is there.
    pub(crate) fn enter_new() -> Namespace {
        let namespace = Namespace::new();
        namespace.enter();
        namespace
    }

    fn enter(&self) {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Runs something in it.
    pub(crate) fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                action()
            });
            thread.join().unwrap()
        })
    }

    /// A path by which others can enter.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// A command in it, which is killed when the thread that starts it ends.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path()));
        command.args(["setpriv", "--pdeathsig", "KILL", "--"]).args(line.split_whitespace());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
        out
    }

    /// Starts a command.
    pub(crate) fn start(&self, line: &str) -> Background {
        let mut command = self.command(line);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        Background(command.spawn().unwrap())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
