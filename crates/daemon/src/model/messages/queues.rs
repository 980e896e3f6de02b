//! Packet queues, and the ports whose dequeue programs empty them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue: a map of kind `pifo_xdp`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// The map's id.
    pub map_id: u32,
    /// The map's name.
    pub name: String,
    /// Packets in the queue.
    pub depth: u64,
    /// Bytes of the packets in the queue.
    pub bytes: u64,
    /// Capacity in packets.
    pub max_entries: u32,
    /// Median time that recently dequeued packets waited, in nanoseconds.
    pub wait_p50_ns: u64,
    /// 99th percentile of that time, in nanoseconds.
    pub wait_p99_ns: u64,
    /// Packets enqueued since the map was created.
    pub enqueued: u64,
    /// Packets dequeued.
    pub dequeued: u64,
    /// Packets dropped because the queue was full.
    pub drops_full: u64,
    /// Packets whose rank was below the window.
    pub drops_rank: u64,
    /// Packets dropped by the dequeue program.
    pub drops_program: u64,
    /// Ports whose dequeue programs use the queue.
    pub ports: Vec<String>,
}

/// A port with a dequeue program.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DequeueView {
    /// The port.
    pub port: String,
    /// The program.
    pub program: String,
    /// The worker that runs it.
    pub worker: usize,
    /// Limit on bytes in flight at the port; 0 if the port does not report its capacity.
    pub limit_bytes: u64,
    /// Bytes in flight at the port.
    pub in_flight_bytes: u64,
    /// Dequeued packets that wait because the port has no room.
    pub kept: u64,
}
