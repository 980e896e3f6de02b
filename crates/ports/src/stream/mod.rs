//! Files named by users. A name may belong to a FIFO, a terminal or another device, whose peer
//! process determines the pace.
//!
//! Opening one never waits. Each stream has a thread for its data ([`reader`], [`writer`]), so that
//! no worker waits.

pub(crate) mod reader;
pub(crate) mod writer;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// An opened file or stream.
#[derive(Debug)]
pub(crate) enum Opened {
    /// A file on a disk: reads and writes wait for the disk only.
    File(File),
    /// Any other kind, opened non-blocking.
    Stream(File),
}

/// Opens it for reading; `-` is standard input.
///
/// # Errors
///
/// Fails with the errors of [`File::open`], or if the file has no readable contents.
pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    let path = named(path, "/dev/stdin");
    opened(path, OpenOptions::new().read(true))
}

/// Opens it for writing and truncates a file. `-` is standard output.
///
/// # Errors
///
/// Fails with the errors of [`File::create`], or if a FIFO has no reader.
pub(crate) fn create(path: &Path) -> io::Result<Opened> {
    let path = named(path, "/dev/stdout");
    opened(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Whether a regular file has this name, so that it can be read more than once.
pub(crate) fn is_file(path: &Path) -> bool {
    fs::metadata(named(path, "/dev/stdin")).is_ok_and(|it| it.is_file())
}

fn opened(path: &Path, options: &mut OpenOptions) -> io::Result<Opened> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = file.map_err(|error| explained(path, error))?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(Opened::File(file)),
        false if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false if kind.is_block_device() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a block device"))
        }
        false => Ok(Opened::Stream(file)),
    }
}

/// Explains an error number that the system uses for several causes.
fn explained(path: &Path, error: io::Error) -> io::Error {
    let Ok(kind) = fs::metadata(path).map(|it| it.file_type()) else { return error };
    let why = match error.raw_os_error() {
        Some(libc::ENXIO) if kind.is_fifo() => "this FIFO has no reader: start the reader first",
        Some(libc::ENXIO) if kind.is_socket() => "it is a socket: name a file or a FIFO",
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

fn named<'a>(path: &'a Path, standard: &'static str) -> &'a Path {
    if path == Path::new("-") { Path::new(standard) } else { path }
}
