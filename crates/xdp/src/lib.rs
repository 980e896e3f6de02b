//! Everything that an XDP program can access: frames, the context, verdicts, helpers and kfuncs;
//! and loading of programs that run on them. Users of the library use the crate `towpath`.

#![deny(unsafe_code)]

mod brake;
mod burst;
mod clock;
mod compiled;
pub mod conformance;
mod conntrack;
mod crypto;
pub mod frame;
mod held;
mod helpers;
pub mod host;
mod memory;
mod objects;
mod pace;
mod printed;
pub mod program;
pub mod queue;
mod run;
mod sanitize;
pub mod standing;
mod targets;
mod timers;
mod tx_timestamps;
pub mod verdict;
mod worker;
mod xfrm;

pub use brake::{Brake, Running};
pub use burst::{ActionMasks, Burst};
pub use clock::{Clock, now_ns, tai_now};
pub use compiled::{CompileError, Exec, ExecStatus};
pub use conntrack::KnownConnection;
pub use frame::arena::Arena;
pub use frame::{Frame, FrameError, Pool, RxInfo};
pub use held::{Dequeued, Schedules};
pub use memory::{SharedBytes, SharedBytesMut};
pub use printed::{Line, StreamId, Streams, Trace};
pub use program::{CallError, DUE_TIMERS_MAX, LoadError, LoadOptions, Loader, Program, Select};
pub use queue::FrameQueue;
pub use sanitize::{
    Finding, Kind as FindingKind, Poison, Sanitize, SanitizeError, Sanitizer, Severity, Tally,
};
pub use standing::Standing;
pub use targets::{KNOWN_TARGETS, KnownTargets};
pub use towpath_jit::{Trust, interrupt};
pub use tx_timestamps::{Sent, TxTimestamps};
pub use verdict::{Action, RedirectTarget, Verdict};
pub use worker::Worker;
