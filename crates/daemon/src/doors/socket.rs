//! Sockets that a daemon listens on: one daemon each, whatever became of the one before.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use towpath_host::socket::{Access, SocketFile, listen};

/// A socket that is ours alone while this lives.
#[derive(Debug)]
pub(crate) struct Socket {
    access: Access,
    file: SocketFile,
    reserved: Reserved,
}

/// Why there is no socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SocketError {
    /// Another daemon has it.
    #[error("{0}: another daemon uses it; stop that one, or choose another socket for this one")]
    InUse(String),
    /// It can't be made, now.
    #[error("{0}")]
    Failed(String),
}

/// A place for a socket that no other daemon can take while this lives.
#[derive(Debug)]
pub(crate) struct Reserved {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl Socket {
    /// Makes a socket at `path`, and what accepts there.
    ///
    /// # Errors
    ///
    /// Another daemon uses it, or it cannot be made.
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

    /// Whether its file is still there.
    pub(crate) fn is_there(&self) -> bool {
        self.file.is_there()
    }

    /// Makes it again, since its file was removed.
    ///
    /// # Errors
    ///
    /// Something else is there now, or what the system says.
    pub(crate) fn listen_again(&mut self) -> io::Result<UnixListener> {
        let (listener, file) = listen(&self.reserved.path, &self.access)?;
        self.file = file;
        Ok(listener)
    }
}

/// Gives a socket to a group, so that its members may connect, too.
///
/// # Errors
///
/// Only root gives to a group that it is not in.
pub(crate) fn give_to(path: &Path, group: Option<u32>) -> Result<(), String> {
    let Some(group) = group else { return Ok(()) };
    let given = std::os::unix::fs::chown(path, None, Some(group));
    given.map_err(|error| format!("{}: group {group}: {error}", path.display()))
}

impl Reserved {
    /// Makes room at `path`. A daemon that was killed leaves a socket behind, which is removed:
    /// what tells it from one in use is a lock on a file beside it.
    ///
    /// # Errors
    ///
    /// Another daemon uses it, or it is something else.
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
                let why = format!("{}: it exists and is no socket", path.display());
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
        // It may be gone already with its directory.
        let _lock = fs::remove_file(&self.lock_path);
    }
}

/// Takes the lock, which ends with the process, however that ends.
fn lock(path: &Path, socket: &Path) -> Result<File, SocketError> {
    let said = |error: io::Error| failed(path, &error);
    loop {
        let options = &mut File::options();
        let made = options.create(true).truncate(false).write(true).open(path);
        // Where nothing can be written, a daemon from before may still have it.
        let file = made.or_else(|error| File::open(path).map_err(|_absent| error)).map_err(said)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(SocketError::InUse(socket.display().to_string()));
            }
            Err(error) => return Err(said(error.into())),
        }
        // A daemon that ended meanwhile took the file with it: then this lock is on nothing.
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
        assert!(error.to_string().contains("no socket"), "{error}");
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
