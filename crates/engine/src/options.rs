//! How an engine, its workers and its ports are set up.

use crate::spread::Spread;

/// How an engine is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its workers; at least one.
    pub workers: Vec<WorkerOptions>,
    /// Frames there are, 4096 bytes each.
    pub frames: usize,
}

/// One worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerOptions {
    /// The CPU it stays on, if it may run there; see [`keep_off`](crate::keep_off).
    pub cpu: Option<usize>,
    /// How it waits.
    pub mode: Mode,
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: vec![WorkerOptions::default()], frames: FRAMES }
    }
}

/// How a worker waits for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Never sleeps: lowest latency, a whole core.
    Busy,
    /// Spins for a while, then sleeps until a descriptor is readable.
    #[default]
    Adaptive,
}

/// How a port is set up, whatever its kind.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// Its name, unique among ports and bridges.
    pub name: String,
    /// Its ifindex; by default that of the host's interface behind it, else a number of our own.
    pub ifindex: Option<u32>,
    /// Largest payload it sends, by default what the device says.
    pub mtu: Option<u32>,
    /// Makes frames linear for programs without frags support. Without it they see the first
    /// buffer only.
    pub linearize: bool,
    /// Workers that poll its queues, in turn. Without any, each queue is polled by the worker that
    /// has least to do when it is opened, and may move
    /// ([`Engine::balance`](crate::Engine::balance)).
    pub workers: Vec<usize>,
    /// Which workers run its programs: by flow, its [`PortOptions::workers`] do, or all there are.
    pub spread: Spread,
    /// Whether it starts up. One that starts down can get its programs before the first frame.
    pub up: bool,
}

impl PortOptions {
    /// The usual options for a port of that name.
    pub fn new(name: &str) -> PortOptions {
        PortOptions {
            name: name.to_owned(),
            ifindex: None,
            mtu: None,
            linearize: true,
            workers: Vec::new(),
            spread: Spread::Off,
            up: true,
        }
    }
}

/// Where passed frames are to go, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UpperName {
    /// Nowhere.
    #[default]
    None,
    /// To a port or a bridge.
    Named(String),
}

/// Frames received and judged at a time.
pub const BURST: usize = 64;
const _: () = assert!(BURST <= u64::BITS as usize, "a mask has a bit for each frame");
/// Enough for a few thousand frames in rings of each of some ports: 64 MiB.
const FRAMES: usize = 16384;
