//! Workers, and which way frames go between ports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A worker: a thread that polls receive queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Its number, which programs see as that of their CPU.
    pub worker: usize,
    /// The CPU that it was told to stay on.
    pub cpu: Option<usize>,
    /// `adaptive` or `busy`: whether it sleeps when there is nothing to do.
    pub mode: String,
    /// The receive queues that it polls, by port.
    pub queues: Vec<PolledView>,
    /// Names of ports that spread their flows over workers, this one among them (`spread`).
    #[serde(default)]
    pub shares: Vec<String>,
    /// Share of the last seconds, 0 to 1, in which it had something to do. To look for frames and
    /// find none is not part of it.
    pub busy: f64,
    /// Seconds in which it had something to do, since the daemon started.
    pub busy_seconds: f64,
    /// Frames a second, lately.
    pub frames_per_second: f64,
    /// Frames out of receive queues, from other workers and out of queues of packets, since the
    /// daemon started.
    pub frames: u64,
    /// Programs that it was in when it was looked at in the last ten seconds, the most often first.
    pub programs: Vec<ProgramShare>,
}

/// Receive queues of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolledView {
    /// The port.
    pub port: String,
    /// Numbers of its queues.
    pub queues: Vec<u32>,
}

/// What part of a worker's time a program takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgramShare {
    /// Its id; nothing for a program of a guest.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// Share of the worker's time, 0 to 1.
    pub share: f64,
}

/// Frames that arrive at one port and leave by another one, or by the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// The port where they arrive; nothing for what AF_XDP sockets send and what is made here.
    pub from: Option<String>,
    /// The port that sends them.
    pub to: String,
    /// Frames a second, lately: what the port sends is counted, and divided among those it comes
    /// from as in the bursts that were looked at.
    pub frames_per_second: f64,
}
