//! Files named by users. A name may belong to a FIFO, a terminal or another device, where the
//! process at the other end determines the pace.
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
    /// A file on a disk: reading and writing it takes no longer than that takes.
    File(File),
    /// Anything else; it says "would block" instead of waiting.
    Stream(File),
}

/// Opens it to be read; `-` is standard input.
///
/// # Errors
///
/// As [`File::open`] gives them, and for what has no contents to read.
pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    let path = named(path, "/dev/stdin");
    opened(path, OpenOptions::new().read(true))
}

/// Opens it for writing and truncates a file. `-` is standard output.
///
/// # Errors
///
/// The errors of [`File::create`]; the FIFO has no reader.
pub(crate) fn create(path: &Path) -> io::Result<Opened> {
    let path = named(path, "/dev/stdout");
    opened(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Whether there is a file of that name, or might be one: it can be read more than once.
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

/// The system has one number for several things that are not there.
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
