//! How frames move: workers that poll ports, run programs and deliver by their verdicts.
//!
//! ```text
//! source -- burst --> hook -- one verdict switch --> target (admit, push, flush, credit)
//! ```
//!
//! Control code owns an [`Engine`] and changes its [`Config`]; workers see the result as an
//! immutable [`Snapshot`] that they pick up between bursts. Port kinds implement [`port::Device`].

#![forbid(unsafe_code)]

mod balance;
pub mod bond;
pub mod bridge;
mod config;
pub mod counters;
mod cpus;
mod dequeue;
mod engine;
mod error;
mod flow;
mod hook;
mod load;
pub mod offload;
mod place;
pub mod port;
mod snapshot;
mod socket;
mod sockets;
mod spread;
pub mod tap;
mod target;
mod waker;
mod watch;
mod worker;

pub use balance::{BALANCE_PERIOD, Moved};
pub use config::{Config, Hook, PortOptions, UpperName};
pub use cpus::keep_off;
pub use dequeue::{DequeueHook, Schedule};
pub use engine::{Engine, Options, WorkerOptions};
pub use error::Error;
pub use flow::Flows;
pub use hook::{Chain, DEFAULT_ACTIONS, DEFAULT_PRIORITY, Link};
pub use load::{LOOKS, WorkerLoad};
pub use snapshot::{BridgeView, Membership, Opened, Port, PortId, Snapshot, Upper};
pub use socket::{QueueId, Socket};
pub use sockets::{Collect, Served, Sockets};
pub use spread::Spread;
pub use waker::Waker;
pub use watch::{LATE, Stopped, Stuck};
pub use worker::{BURST, ControlTask, LAUNCH_HORIZON, LiveError, LiveRun, Mode, TaskContext};
