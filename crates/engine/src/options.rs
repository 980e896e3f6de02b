//! Options of an engine, its workers and its ports.

use std::time::Duration;

use crate::spread::Spread;

/// Options of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The workers; if empty, one with default options.
    pub workers: Vec<WorkerOptions>,
    /// Number of frames in the arena; each takes 4160 bytes (`STRIDE_BYTES`).
    pub frames: usize,
}

/// Options of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerOptions {
    /// The CPU that the worker stays on, if it is allowed to run there; see
    /// [`keep_off`](crate::keep_off).
    pub cpu: Option<usize>,
    /// How the worker waits for work.
    pub mode: Mode,
    /// How long a worker in mode [`Mode::Adaptive`] polls without work before it sleeps. Every
    /// sleep costs some microseconds of processor time and of delay.
    pub spin: Duration,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions { cpu: None, mode: Mode::default(), spin: Duration::from_micros(50) }
    }
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

/// Options of a port of any kind.
#[derive(Debug, Clone)]
pub struct PortOptions {
    /// Its name, unique among ports and bridges.
    pub name: String,
    /// Its ifindex; by default that of the host's interface behind it, else one the engine assigns.
    pub ifindex: Option<u32>,
    /// MTU in bytes: the largest payload it sends; by default the device's.
    pub mtu: Option<u32>,
    /// Linearises frames for programs without frags support. Otherwise such programs see only the
    /// first buffer.
    pub linearize: bool,
    /// Workers that poll its queues, in turn. Without any, each queue is polled by the worker that
    /// has least to do when it is opened, and may move
    /// ([`Engine::balance`](crate::Engine::balance)).
    pub workers: Vec<usize>,
    /// How its flows are spread over workers that run its programs: over [`PortOptions::workers`],
    /// or over all workers if that is empty.
    pub spread: Spread,
    /// Whether the port starts in state up. A port that starts down can get its programs before the
    /// first frame.
    pub up: bool,
}

impl PortOptions {
    /// Default options for a port called `name`.
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

/// Destination of passed frames, by name.
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
/// Default number of frames, 64 MiB in all: enough for rings of a few thousand frames on several
/// ports.
const FRAMES: usize = 16384;
