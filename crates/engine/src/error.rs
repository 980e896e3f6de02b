//! Errors of configuration changes.

use std::io;

use crate::bond::Refusal;

/// A change that was refused; nothing changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that is taken.
    #[error("there is a port or bridge {0} already")]
    NameTaken(String),
    /// An ifindex that is taken.
    #[error("ifindex {ifindex} is taken by port {owner}")]
    IfindexTaken {
        /// The number.
        ifindex: u32,
        /// The port that has it.
        owner: String,
    },
    /// A name that no port has.
    #[error("there is no port {name}{}", hint(.known))]
    NoPort {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A number that no port has.
    #[error("there is no port number {0}")]
    NoPortId(u32),
    /// A bridge that does not exist.
    #[error("there is no bridge {0}")]
    NoBridge(String),
    /// A port that would pass its frames to itself.
    #[error("port {0} cannot be its own upper: its frames would come back for ever")]
    OwnUpper(String),
    /// A port or bridge that is still in use.
    #[error("{name} is the upper of port {by}: give that another one first")]
    InUse {
        /// The name of the port or bridge that was to be removed.
        name: String,
        /// The name of the port that uses it.
        by: String,
    },
    /// A worker that does not exist.
    #[error("there is no worker {0}: there are {1}, numbered from 0")]
    NoWorker(usize, usize),
    /// A queue that cannot be given to another worker.
    #[error("port {port}: queue {queue} cannot go to another worker: {why}")]
    Queue {
        /// The port.
        port: String,
        /// The queue.
        queue: u32,
        /// The reason.
        why: String,
    },
    /// A program that does not fit the hook.
    #[error("program {program} cannot be attached to {port}: {why}")]
    Attach {
        /// The program.
        program: String,
        /// The port.
        port: String,
        /// The reason.
        why: String,
    },
    /// An operation on a bond or its member that the kernel would refuse, too.
    #[error("{name}: {refusal} ({})", .refusal.errno())]
    Bond {
        /// The bond, or the port that is or should be its member.
        name: String,
        /// The reason.
        refusal: Refusal,
    },
    /// A socket whose number is taken, or is 0.
    #[error("there is a socket {0} already, or the number is invalid")]
    SocketTaken(u32),
    /// The device cannot be opened.
    #[error("port {port}: {what}: {source}")]
    Device {
        /// The port.
        port: String,
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// Threads, memory or descriptors ran out.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn hint(known: &[String]) -> String {
    match known {
        [] => ": there are none".to_owned(),
        known => format!(": there are {}", known.join(", ")),
    }
}
