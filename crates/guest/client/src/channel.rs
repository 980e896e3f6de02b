//! The connection to the host: a virtio-serial port, a virtio socket, or a unix socket.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

/// Choice of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The virtio-serial port of this name; by default the one whose name begins with
    /// [`PORT_NAME`], and if there are several, the one whose name ends with the interface's
    /// address.
    Port(Option<String>),
    /// A unix socket, for tests.
    Unix(PathBuf),
    /// A virtio socket of the host.
    Vsock {
        /// Context id; 2 is the host.
        cid: u32,
        /// The port of this guest at the host.
        port: u32,
    },
}

/// An open connection to the host.
#[derive(Debug)]
pub struct Channel {
    file: OwnedFd,
}

/// Opens the connection to the host; `mac` is the address of the interface that it is for.
///
/// # Errors
///
/// Fails if there is no port, or if there are several and none matches.
pub fn open(wanted: &Wanted, mac: Option<&str>) -> io::Result<Channel> {
    let file = match wanted {
        Wanted::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            stream.into()
        }
        &Wanted::Vsock { cid, port } => connect_vsock(cid, port)?,
        Wanted::Port(name) => open_port(Path::new(PORTS), name.as_deref(), mac)?,
    };
    Ok(Channel { file })
}

fn connect_vsock(cid: u32, port: u32) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = nix::sys::socket::socket(AddressFamily::Vsock, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &VsockAddr::new(cid, port))?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// `/dev/virtio-ports/NAME` is a link that udev makes: without udev only sysfs has the names.
fn open_port(ports: &Path, name: Option<&str>, mac: Option<&str>) -> io::Result<OwnedFd> {
    let mut found = Vec::new();
    for entry in fs::read_dir(ports).into_iter().flatten() {
        let entry = entry?;
        let Ok(is) = fs::read_to_string(entry.path().join("name")) else { continue };
        found.push((is.trim().to_owned(), entry.file_name()));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let index = choose(&names, name, mac).map_err(io::Error::other)?;
    let device = Path::new("/dev").join(&found[index].1);
    // Without this flag, a write would block for ever while no peer is at the other end.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&device, flags, Mode::empty());
    opened.map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{}: {error}", device.display()))
    })
}

/// Index of the port to use, among ports with these names.
fn choose(names: &[&str], wanted: Option<&str>, mac: Option<&str>) -> Result<usize, String> {
    let known = || if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if let Some(wanted) = wanted {
        let found = names.iter().position(|name| *name == wanted);
        return found
            .ok_or_else(|| format!("no virtio-serial port {wanted}: there is {}", known()));
    }
    let ours: Vec<usize> =
        (0..names.len()).filter(|&index| names[index].starts_with(PORT_NAME)).collect();
    let own = mac.map(|mac| format!("{PORT_NAME}.{mac}"));
    let exact = ours.iter().find(|&&index| Some(names[index]) == own.as_deref());
    match (exact, &ours[..]) {
        (Some(&index), _) | (None, &[index]) => Ok(index),
        (None, []) => Err(format!("no virtio-serial port {PORT_NAME}: there is {}", known())),
        (None, _) => {
            Err(format!("several channels to the host, choose one (--channel): {}", known()))
        }
    }
}

impl Channel {
    /// Writes all bytes.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut` if the peer does not accept the bytes until then.
    pub(crate) fn send(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Reads available bytes, at least one.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut` if nothing arrives until then, with `UnexpectedEof` if the host hangs
    /// up.
    pub(crate) fn receive(&mut self, bytes: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.file, &mut *bytes) {
                // A read from a virtio-serial port without a host gives an end of file.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(count),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN, until)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn wait(&self, what: PollFlags, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&self.file, what)];
        match poll(&mut waiting, Some(&left)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let answered = waiting[0].revents();
        if answered.contains(PollFlags::HUP) && !answered.intersects(what) {
            // The virtio-serial port has no peer at the other end yet.
            std::thread::sleep(HANG_UP_PAUSE.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }
}

/// Prefix of the names of virtio-serial ports to a host with guest offload.
pub const PORT_NAME: &str = "org.towpath.offload";
const PORTS: &str = "/sys/class/virtio-ports";
const HANG_UP_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_of_an_interface_is_found_by_name_and_address() {
        let one = ["org.qemu.guest_agent.0", "org.towpath.offload"];
        assert_eq!(choose(&one, None, None), Ok(1));
        assert_eq!(choose(&one, Some("org.qemu.guest_agent.0"), None), Ok(0));
        let two =
            ["org.towpath.offload.02:00:00:00:00:01", "org.towpath.offload.02:00:00:00:00:02"];
        assert_eq!(choose(&two, None, Some("02:00:00:00:00:02")), Ok(1));
        assert!(choose(&two, None, None).is_err_and(|why| why.contains("--channel")));
        assert!(choose(&[], None, None).is_err());
        assert!(choose(&one, Some("other"), None).is_err());
    }
}
