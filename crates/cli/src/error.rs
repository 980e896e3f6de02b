//! Every way a command can fail, and the exit status that goes with it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use towpath_bpf::interp::Fault;
use towpath_bpf::object::{GlobalError, MapSizeError, ObjectError, SelectError};
use towpath_daemon::client::ClientError;
use towpath_kernel::Unavailable;
use towpath_xdp::{CompileError, FrameError, LoadError};

/// Error of a command. The message is one sentence for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CliError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is larger than anything of its kind.
    #[error("{}: {size} bytes, more than the {limit} that {what} may have", path.display())]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Kind of file that was expected.
        what: &'static str,
        /// Size of the file, in bytes.
        size: u64,
        /// Largest size, in bytes.
        limit: u64,
    },
    /// Standard output is closed or full.
    #[error("standard output: {0}")]
    Stdout(io::Error),
    /// An object file that can't be understood; the message names it.
    #[error("{}", named(path, source))]
    Object {
        /// The object file.
        path: PathBuf,
        /// The reason why the file can't be understood.
        source: Box<ObjectError>,
    },
    /// No program matches the choice, or several do.
    #[error("{}: {source}; choose with -n PROG", path.display())]
    Select {
        /// The object file.
        path: PathBuf,
        /// The choice, and the programs that exist.
        source: Box<SelectError>,
    },
    /// `--set` with a variable or value that does not fit.
    #[error("{}: --set: {source}", path.display())]
    Global {
        /// The object file.
        path: PathBuf,
        /// Cause of the error.
        source: Box<GlobalError>,
    },
    /// `--map-size` with a map that the object does not have.
    #[error("{}: --map-size: {source}", path.display())]
    MapSize {
        /// The object file.
        path: PathBuf,
        /// Cause of the error.
        source: MapSizeError,
    },
    /// `--set` with a value of no known form.
    #[error("--set {name}={value}: expected an integer (10, -1, 0x1f), true, false, or hex:BYTES")]
    Value {
        /// The variable.
        name: String,
        /// The text that was given.
        value: String,
    },
    /// A program that can't be linked: a type, symbol or map that is not there.
    #[error("{}: program {program}: {source}", path.display())]
    Link {
        /// The object file.
        path: PathBuf,
        /// The program.
        program: String,
        /// The missing item.
        source: Box<ObjectError>,
    },
    /// A capture that can't be read or written.
    #[error("{}: {source}", path.display())]
    Capture {
        /// The capture.
        path: PathBuf,
        /// Cause of the error, and its place.
        source: towpath_capture::Error,
    },
    /// A capture of something other than Ethernet.
    #[error(
        "{}: no Ethernet frame in it: its interface is of link type {link_type}, and XDP programs \
         take Ethernet frames (link type 1): capture on an Ethernet interface, not on \"any\"",
        path.display()
    )]
    LinkType {
        /// The capture.
        path: PathBuf,
        /// `LINKTYPE_*` of its frames.
        link_type: u16,
    },
    /// A program that can't be loaded: refused by the verifier, or a map that can't be created.
    #[error("{}: {source}{}", path.display(), hinted(constants.as_deref()))]
    Load {
        /// The object file.
        path: PathBuf,
        /// Cause of the error.
        source: Box<LoadError>,
        /// Constants that a loader was to set, if the verifier refused the program.
        constants: Option<String>,
    },
    /// A program that only the interpreter can run.
    #[error("{}: program {program}: {source}", path.display())]
    Compile {
        /// The object file.
        path: PathBuf,
        /// The program.
        program: String,
        /// Cause of the error.
        source: Box<CompileError>,
    },
    /// A run violated a property of every verified program.
    #[error(
        "frame {frame}: {fault}; a verified program cannot do this, so this is an error in Towpath: \
         please report it with the object file and the frame"
    )]
    Fault {
        /// Number of the frame, from 1.
        frame: u64,
        /// The fault, and its place.
        fault: Box<Fault>,
    },
    /// `--dump-maps` with a map that the object does not have.
    #[error("--dump-maps: no map {name:?}{hint}")]
    NoMap {
        /// The name that was given.
        name: String,
        /// Names that exist, or similar ones.
        hint: String,
    },
    /// `--without` with an unknown pass.
    #[error("--without: no pass {name:?}{hint}")]
    NoPass {
        /// The name that was given.
        name: String,
        /// Names that exist, or similar ones.
        hint: String,
    },
    /// Standard input cannot be read twice.
    #[error("--repeat needs a file: standard input can be read only once")]
    RepeatStdin,
    /// The running kernel can't be used.
    #[error("the running kernel: {0}")]
    Kernel(#[from] Unavailable),
    /// A port that can't be tried.
    #[error("{0}")]
    Qualify(String),
    /// The running kernel refused the program or the packet.
    #[error("the running kernel: {0}")]
    KernelRefused(String),
    /// A packet that can't be run.
    #[error("{}: {source}", path.display())]
    Frame {
        /// The packet's file.
        path: PathBuf,
        /// Cause of the error.
        source: FrameError,
    },
    /// The daemon cannot start, or its configuration is wrong.
    #[error("{0}")]
    Daemon(String),
    /// The daemon refused the request, or no daemon runs.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The arguments contradict each other.
    #[error("{0}")]
    Usage(String),
    /// A failure that the output of the command reports.
    #[error("something failed")]
    Reported,
    /// A file in a text format that can't be understood.
    #[error("{}: {message}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Place and cause of the error.
        message: String,
    },
}

/// A hint on a line of its own.
fn hinted(hint: Option<&str>) -> String {
    hint.map(|hint| format!("\n  hint: {hint}")).unwrap_or_default()
}

/// Message of an error in an object: an error in the file as a whole names the file itself.
fn named(path: &Path, source: &ObjectError) -> String {
    match source {
        ObjectError::File { .. } => source.to_string(),
        _ => format!("{}: {source}", path.display()),
    }
}

/// Exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// All went well.
    Ok = 0,
    /// A program was refused.
    Refused = 1,
    /// The command line or a file could not be understood.
    Unreadable = 2,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(status as u8)
    }
}

impl CliError {
    /// The exit status that goes with this error.
    pub(crate) fn status(&self) -> Status {
        match self {
            // The reader of the output was satisfied (`towpath ... | head`).
            CliError::Stdout(source) if source.kind() == io::ErrorKind::BrokenPipe => Status::Ok,
            CliError::Link { .. }
            | CliError::Load { .. }
            | CliError::Compile { .. }
            | CliError::Fault { .. }
            | CliError::KernelRefused(_)
            | CliError::Reported
            | CliError::Client(ClientError::Refused(_)) => Status::Refused,
            _ => Status::Unreadable,
        }
    }
}
