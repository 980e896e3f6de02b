//! Network namespaces: hosts with the kernel's own network stack, and commands in them.
//!
//! They have no names and live as long as this process, so that none is left behind after any end
//! of the process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// A command that runs in the background and ends when this is dropped.
#[derive(Debug)]
pub struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

impl Namespace {
    /// A new namespace, with only a loopback device. Needs CAP_SYS_ADMIN.
    pub fn new() -> io::Result<Namespace> {
        let make = || {
            crate::isolate_network().map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
            let file = File::open("/proc/thread-self/ns/net")?;
            checked(Command::new("ip").args(["link", "set", "lo", "up"]), "ip link set lo up")?;
            Ok(Namespace { file })
        };
        let thread = std::thread::Builder::new().name("namespace".to_owned()).spawn(make)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// An existing namespace, by the path of its file.
    pub fn open(path: &str) -> io::Result<Namespace> {
        Ok(Namespace { file: File::open(path)? })
    }

    /// A path by which other processes can enter it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Moves the calling thread into the namespace for good, with the threads that it starts from
    /// now on.
    pub fn enter(&self) -> io::Result<()> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.file.as_fd(), network).map_err(io::Error::from)
    }

    /// A command in the namespace, which is killed when the thread that starts it ends.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path()));
        command.args(["setpriv", "--pdeathsig", "KILL", "--"]).args(line.split_whitespace());
        command
    }

    /// Runs a command that must succeed; gives its output.
    pub fn run(&self, line: &str) -> io::Result<String> {
        checked(&mut self.command(line), line)
    }

    /// Starts a command in the background.
    pub fn start(&self, line: &str) -> io::Result<Background> {
        let mut command = self.command(line);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        Ok(Background(command.spawn()?))
    }
}

fn checked(command: &mut Command, line: &str) -> io::Result<String> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    match output.status.success() {
        true => Ok(out),
        false => Err(io::Error::other(format!("{line}: {}\n{out}{err}", output.status))),
    }
}
