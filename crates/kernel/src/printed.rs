//! Output of programs in the kernel, by `bpf_trace_printk` and its relatives.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;

use crate::sys_unsafe::mount_detached;

/// The lines that programs print while this thread runs them.
///
/// It listens in its own instance of tracefs, so that readers of the machine's `trace_pipe` lose
/// nothing. The instance is removed on drop.
#[derive(Debug)]
pub struct PrintedLines {
    instance: PathBuf,
    pipe: File,
    /// A tracefs that is mounted nowhere; paths through it are valid while it is open.
    _mount: OwnedFd,
}

impl PrintedLines {
    /// Starts listening. Needs root.
    ///
    /// # Errors
    ///
    /// Fails if there is no tracefs, or if it has no event for `bpf_trace_printk`.
    pub fn listen() -> io::Result<PrintedLines> {
        let mount = mount_detached(c"tracefs");
        let mount = mount.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-{}-{number}", std::process::id());
        let folder = format!("/proc/self/fd/{}/instances/{name}", mount.as_raw_fd());
        let instance = PathBuf::from(folder);
        fs::create_dir(&instance)?;
        match start(&instance) {
            Ok(pipe) => Ok(PrintedLines { instance, pipe, _mount: mount }),
            Err(error) => {
                let _removed = fs::remove_dir(&instance);
                Err(error)
            }
        }
    }

    /// Takes the lines printed since the last time, oldest first, without the tracer's prefix.
    ///
    /// # Errors
    ///
    /// Fails if the pipe can't be read.
    pub fn take(&mut self) -> io::Result<Vec<String>> {
        let mut bytes = Vec::new();
        match self.pipe.read_to_end(&mut bytes) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = |line: &str| line.split_once(EVENT).map(|(_, said)| said.to_owned());
        Ok(text.lines().filter_map(line).collect())
    }
}

impl Drop for PrintedLines {
    fn drop(&mut self) {
        // The instance can't be removed while its pipe is open.
        if let Ok(other) = File::open("/dev/null") {
            self.pipe = other;
        }
        let _removed = fs::remove_dir(&self.instance);
    }
}

/// Makes the instance record the output of programs on this thread.
fn start(instance: &std::path::Path) -> io::Result<File> {
    let thread = rustix::thread::gettid().as_raw_nonzero();
    fs::write(instance.join("set_event_pid"), thread.to_string())?;
    fs::write(instance.join("events/bpf_trace/bpf_trace_printk/enable"), "1")?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = rustix::fs::open(instance.join("trace_pipe"), flags, rustix::fs::Mode::empty())?;
    Ok(File::from(pipe))
}

/// Number that distinguishes the instances of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Text in front of a line that a program printed.
const EVENT: &str = ": bpf_trace_printk: ";
