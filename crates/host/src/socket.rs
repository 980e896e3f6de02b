//! A unix socket's place in the file system: taken from who has gone, and given up with what
//! listens there.

use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of a socket that this process listens at. It goes when this is dropped, unless somebody
/// else has put another one in its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    is: Option<Identity>,
}

/// Which file it is: its number, and when it was made, since numbers are used again.
type Identity = (u64, Option<SystemTime>);

fn identity(path: &Path) -> Option<Identity> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.st_ino(), file.created().ok()))
}

/// Listens at a path, without blocking. A socket that nobody listens at any more is in nobody's
/// way.
///
/// # Errors
///
/// `AddrInUse`: somebody listens there, or it is no socket. Else what the system says.
pub fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let is_socket = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there")),
        }
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile { path: path.to_owned(), is: identity(path) };
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is.is_some() && self.is == identity(&self.path) {
            let _gone_already = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_from_who_has_gone_only() {
        let path = std::env::temp_dir().join(format!("towpath-socket-{}", std::process::id()));
        let (first, file) = listen(&path).unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // As if it had been killed: the file stays.
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
}
