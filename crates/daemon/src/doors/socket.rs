//! Unix sockets of the daemon: each is used by one daemon at a time, and taken over from a dead
//! one.
//!
//! Users who may connect by default: `MODE_DEFAULT` of [`towpath_host::socket`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use towpath_host::socket::{Access, SocketFile, listen};

/// A socket reserved for this daemon.
#[derive(Debug)]
pub(crate) struct Socket {
    access: Access,
    file: SocketFile,
    reserved: Reserved,
}

/// Errors in creating a socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SocketError {
    /// Another daemon uses the socket.
    #[error("{0}: another daemon uses it; stop that one, or choose another socket for this one")]
    InUse(String),
    /// The socket cannot be created at present.
    #[error("{0}")]
    Failed(String),
}

/// A path for a socket, locked against other daemons.
#[derive(Debug)]
pub(crate) struct Reserved {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Socket {
    /// Creates a socket at `path`, with its listener.
    ///
    /// # Errors
    ///
    /// Fails if another daemon uses the socket, or it cannot be created.
    pub(crate) fn bind(
        path: &Path,
        mode: u32,
        group: Option<u32>,
    ) -> Result<(Socket, UnixListener), SocketError> {
        let reserved = Reserved::new(path)?;
        let access = Access { mode, owner: None, group };
        let (listener, file) = listen(path, &access).map_err(|error| failed(path, &error))?;
        Ok((Socket { access, file, reserved }, listener))
    }

    /// Whether the socket's file still exists.
    pub(crate) fn is_there(&self) -> bool {
        self.file.is_there()
    }

    /// Creates the socket again after its file was removed.
    ///
    /// # Errors
    ///
    /// Fails if another file is at the path, or the socket cannot be created.
    pub(crate) fn listen_again(&mut self) -> io::Result<UnixListener> {
        let (listener, file) = listen(&self.reserved.path, &self.access)?;
        self.file = file;
        Ok(listener)
    }
}

/// Changes the group of a socket, so that its members may connect.
///
/// # Errors
///
/// Fails if the process is neither privileged nor in the group, or the file is gone.
pub(crate) fn give_to(path: &Path, group: Option<u32>) -> Result<(), String> {
    let Some(group) = group else { return Ok(()) };
    let given = std::os::unix::fs::chown(path, None, Some(group));
    given.map_err(|error| format!("{}: group {group}: {error}", path.display()))
}

impl Reserved {
    /// Locks `path` and removes the socket that a killed daemon left there. The lock on a file
    /// beside the socket shows whether a daemon uses it.
    ///
    /// # Errors
    ///
    /// Fails if another daemon uses the path, or another kind of file is there.
    pub(crate) fn new(path: &Path) -> Result<Reserved, SocketError> {
        let said = |error: io::Error| failed(path, &error);
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock_path = PathBuf::from(name);
        let lock = lock(&lock_path, path)?;
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                fs::remove_file(path).map_err(said)?;
            }
            Ok(_) => {
                let why = format!("{}: it exists and is not a socket", path.display());
                return Err(SocketError::Failed(why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(said(error)),
        }
        Ok(Reserved { path: path.to_owned(), lock_path, _lock: lock })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // The file may be gone with its directory.
        let _lock = fs::remove_file(&self.lock_path);
    }
}

/// Takes the lock, which the kernel releases when the process ends.
fn lock(path: &Path, socket: &Path) -> Result<File, SocketError> {
    let said = |error: io::Error| failed(path, &error);
    loop {
        let options = &mut File::options();
        let made = options.create(true).truncate(false).write(true).open(path);
        // In a read-only directory, an earlier daemon may still hold the lock.
        let file = made.or_else(|error| File::open(path).map_err(|_absent| error)).map_err(said)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(SocketError::InUse(socket.display().to_string()));
            }
            Err(error) => return Err(said(error.into())),
        }
        // A daemon that ended meanwhile removed the file, in which case this lock is void.
        let ours = file.metadata().map_err(said)?.ino();
        if fs::metadata(path).is_ok_and(|metadata| metadata.ino() == ours) {
            return Ok(file);
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> SocketError {
    SocketError::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_one_daemon_and_a_dead_one_is_replaced() {
        let dir = std::env::temp_dir().join(format!("towpath-socket-{}", std::process::id()));
        let path = dir.join("api.sock");
        let (mut socket, _) = Socket::bind(&path, 0o600, None).expect("nobody has it");
        let error = Socket::bind(&path, 0o600, None).expect_err("it is in use");
        assert_eq!(error, SocketError::InUse(path.display().to_string()));
        assert!(socket.is_there());
        fs::remove_file(&path).expect("it is there");
        assert!(!socket.is_there());
        fs::write(&path, "text").expect("the directory is there");
        assert!(!socket.is_there());
        socket.listen_again().expect_err("a file of somebody");
        fs::remove_file(&path).expect("it is there");
        socket.listen_again().expect("nothing is there");
        assert!(socket.is_there());
        drop(socket);
        assert!(!path.exists(), "nothing stays behind");
        drop(UnixListener::bind(&path).expect("the directory is there"));
        assert!(path.exists(), "as after kill -9");
        drop(Socket::bind(&path, 0o600, None).expect("it is stale"));
        fs::write(&path, "text").expect("the directory is there");
        let error = Socket::bind(&path, 0o600, None).expect_err("a file of somebody");
        assert!(error.to_string().contains("not a socket"), "{error}");
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
