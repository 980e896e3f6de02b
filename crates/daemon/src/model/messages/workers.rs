//! Workers, and the flow of frames between ports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A worker: a thread that polls receive queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// The worker's number, which its programs see as the number of the CPU.
    pub worker: usize,
    /// The CPU to which the worker is pinned.
    pub cpu: Option<usize>,
    /// `adaptive` if the worker sleeps when it has no work, else `busy`.
    pub mode: String,
    /// Receive queues that the worker polls, by port.
    pub queues: Vec<PolledView>,
    /// Ports that spread their flows over several workers including this one (`spread`).
    #[serde(default)]
    pub shares: Vec<String>,
    /// Share of the last seconds, 0 to 1, in which the worker had work. Polling empty queues is not
    /// counted.
    pub busy: f64,
    /// Seconds in which the worker had work, since the daemon started.
    pub busy_seconds: f64,
    /// Recent rate in frames per second.
    pub frames_per_second: f64,
    /// Frames from receive queues, from other workers and from packet queues, since the daemon
    /// started.
    pub frames: u64,
    /// Programs that the worker ran at samples of the last ten seconds, the most frequent first.
    pub programs: Vec<ProgramShare>,
}

/// Receive queues of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolledView {
    /// The port.
    pub port: String,
    /// Numbers of the queues.
    pub queues: Vec<u32>,
}

/// A program's share of a worker's time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgramShare {
    /// The program's id; unset for a guest's program.
    pub id: Option<u32>,
    /// The program's name.
    pub name: String,
    /// Share of the worker's time, 0 to 1.
    pub share: f64,
}

/// Frames that are received by one port and sent by another one, or by the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// The receiving port; unset for frames from AF_XDP sockets or from the daemon itself.
    pub from: Option<String>,
    /// The sending port.
    pub to: String,
    /// Recent rate in frames per second: the sending port's counter, divided among receiving ports
    /// in proportion to the frames of sampled bursts.
    pub frames_per_second: f64,
}
