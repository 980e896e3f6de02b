//! Queues of packets, and the ports that take packets out of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A queue: a map of kind `pifo_xdp`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// The map's id.
    pub map_id: u32,
    /// Its name.
    pub name: String,
    /// Packets in it now.
    pub depth: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many packets there is room for.
    pub max_entries: u32,
    /// For how long half of the packets waited that left lately, in nanoseconds.
    pub wait_p50_ns: u64,
    /// For how long all but one in a hundred of them waited at most.
    pub wait_p99_ns: u64,
    /// Packets that came in since the map was made.
    pub enqueued: u64,
    /// Packets that were taken out.
    pub dequeued: u64,
    /// Packets it had no room for.
    pub drops_full: u64,
    /// Packets whose rank was below the window.
    pub drops_rank: u64,
    /// Packets that the dequeue program dropped.
    pub drops_program: u64,
    /// Ports whose dequeue programs know it.
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
    /// Bytes that may be on their way at the port; 0 when it does not say how much room it has.
    pub limit_bytes: u64,
    /// Bytes that are.
    pub in_flight_bytes: u64,
    /// Packets out of queues that the port had no room for yet.
    pub kept: u64,
}
