//! The file of a unix socket: taken over from a process that is gone, and removed together with the
//! listener.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, connect, socket_with};

/// The file of a socket that this process listens at. It is removed on drop, unless another process
/// has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    is: Option<Identity>,
}

impl SocketFile {
    /// Whether the file is still at its path.
    pub fn is_there(&self) -> bool {
        self.is.is_some() && identity(&self.path) == self.is
    }
}

/// Identity of a file: its inode number, and its creation time, since inode numbers are reused.
type Identity = (u64, Option<SystemTime>);

fn identity(path: &Path) -> Option<Identity> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.st_ino(), file.created().ok()))
}

/// Users who may connect to a socket: connecting requires write permission for its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the file, as `chmod(2)` takes them.
    pub mode: u32,
    /// Owner of the file, if not the user of this process.
    pub owner: Option<u32>,
    /// Group of the file, if not the group of this process.
    pub group: Option<u32>,
}

/// By default owner and group may connect, and both are those of this process.
impl Default for Access {
    fn default() -> Access {
        Access { mode: MODE_DEFAULT, owner: None, group: None }
    }
}

/// Default permissions of sockets: owner and group may connect.
pub const MODE_DEFAULT: u32 = 0o660;
const _: () = assert!(MODE_DEFAULT & 0o117 == 0, "others have no access");

/// Listens at a path, without blocking. A socket file without a listener is replaced.
///
/// # Errors
///
/// Fails with `AddrInUse` if another process listens there, or if the file is not a socket; with
/// `PermissionDenied` if the file can't be given to that user or group, which takes CAP_CHOWN; else
/// with the system's error.
pub fn listen(path: &Path, access: &Access) -> io::Result<(UnixListener, SocketFile)> {
    let (socket, file) = listen_at(path, access, SocketType::STREAM)?;
    Ok((UnixListener::from(socket), file))
}

/// As [`listen`], for connections that keep messages apart (`SOCK_SEQPACKET`).
///
/// # Errors
///
/// As of [`listen`].
pub fn listen_packets(path: &Path, access: &Access) -> io::Result<(OwnedFd, SocketFile)> {
    listen_at(path, access, SocketType::SEQPACKET)
}

fn listen_at(path: &Path, access: &Access, kind: SocketType) -> io::Result<(OwnedFd, SocketFile)> {
    let is_socket = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        // Non-blocking: a listener whose backlog is full then gives EAGAIN, and does not block this
        // process.
        match connect(&socket(kind)?, &SocketAddrUnix::new(path)?) {
            // A listener of another type gives EPROTOTYPE.
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens there",
                ));
            }
        }
    }
    let socket = socket(kind)?;
    // The file gets the permissions that the socket has at this time (`unix_bind_bsd`): until it
    // belongs to the right user, no other user may connect.
    fchmod(&socket, Mode::from_raw_mode(0o600))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let file = SocketFile { path: path.to_owned(), is: identity(path) };
    if access.owner.is_some() || access.group.is_some() {
        chown(path, access.owner, access.group)?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(access.mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

fn socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// Largest number of connections that wait to be accepted; the kernel's limit is
/// `net.core.somaxconn`. It has room for a burst of clients while the listener is busy: a
/// non-blocking client gets EAGAIN if the backlog is full (`unix_stream_connect`).
const BACKLOG: i32 = 1024;

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is.is_some() && self.is == identity(&self.path) {
            let _gone_already = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_burst_of_clients_waits_for_a_busy_listener() {
        let path = std::env::temp_dir().join(format!("towpath-burst-{}", std::process::id()));
        let (listener, _file) = listen(&path, &Access::default()).unwrap();
        let at = SocketAddrUnix::new(&path).unwrap();
        let connects = || -> rustix::io::Result<OwnedFd> {
            let socket = socket(SocketType::STREAM)?;
            connect(&socket, &at).map(|()| socket)
        };
        let clients: Vec<_> = (0..100).map(|_| connects().unwrap()).collect();
        assert_eq!(clients.iter().filter(|_| listener.accept().is_ok()).count(), 100);
        // The backlog is limited: a further client gets an error, and so does another daemon.
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connects().unwrap();
        assert_eq!(connects().unwrap_err(), Errno::AGAIN);
        let other = listen(&path, &Access::default()).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_place_is_taken_from_who_has_gone_only() {
        let path = std::env::temp_dir().join(format!("towpath-socket-{}", std::process::id()));
        let listen = |path: &Path| listen(path, &Access::default());
        let (first, file) = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // As after a kill: the file stays.
        drop(first);
        // Clocks of file systems are coarse.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (second, other) = listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "it is another one's by now");
        drop((second, other));
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists(), "what is no socket stays");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_socket_belongs_to_who_is_to_connect() {
        let path = std::env::temp_dir().join(format!("towpath-access-{}", std::process::id()));
        let seen = || {
            let file = std::fs::metadata(&path).unwrap();
            (file.permissions().mode() & 0o777, file.st_uid(), file.st_gid())
        };
        let made = listen(&path, &Access::default()).unwrap();
        let ours = seen();
        assert_eq!(ours.0, 0o660);
        drop(made);
        let access = Access { mode: 0o600, owner: Some(4711), group: Some(4712) };
        match listen(&path, &access) {
            Ok(_made) => assert_eq!(seen(), (0o600, 4711, 4712)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert!(!path.exists(), "it goes, whether it could be given away or not");
        // An accepted stream works.
        let (listener, _file) = listen(&path, &Access::default()).unwrap();
        let _stream = UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
    }
}
