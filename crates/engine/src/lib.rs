//! The packet engine: workers poll ports, run programs and deliver frames by their verdicts.
//!
//! ```text
//! source -- burst --> hook -- one verdict switch --> target (admit, push, flush, credit)
//! ```
//!
//! Control code owns an [`Engine`] and changes its [`Config`]; workers see the result as an
//! immutable [`Snapshot`] that they pick up between bursts. Port kinds implement [`port::Device`].

#![forbid(unsafe_code)]

mod admit;
mod balance;
pub mod bond;
pub mod bridge;
mod chain;
mod config;
pub mod counters;
mod cpus;
mod dequeue;
mod engine;
mod error;
mod flow;
mod hook;
mod lane;
mod load;
mod numbers;
pub mod offload;
mod opened;
mod options;
mod place;
pub mod port;
mod snapshot;
mod socket;
mod sockets;
mod spread;
pub mod tap;
mod target;
mod targets;
mod waker;
mod watch;
mod worker;

pub use balance::{BALANCE_PERIOD, Moved};
pub use chain::{Chain, DEFAULT_ACTIONS, DEFAULT_PRIORITY, Hook, Link};
pub use config::Config;
pub use cpus::keep_off;
pub use dequeue::{DequeueHook, Schedule};
pub use engine::Engine;
pub use error::Error;
pub use flow::Flows;
pub use load::{LOOKS, WorkerLoad};
pub use numbers::PortId;
pub use opened::Opened;
pub use options::{BURST, Mode, Options, PortOptions, UpperName, WorkerOptions};
pub use snapshot::{BridgeView, Membership, Port, Snapshot, Upper};
pub use socket::{QueueId, Socket};
pub use sockets::{Collect, Served, Sockets};
pub use spread::Spread;
pub use waker::Waker;
pub use watch::{LATE, PATIENCE, Stopped, Stuck};
pub use worker::{ControlTask, LAUNCH_HORIZON, LiveError, LiveRun, TaskContext};
