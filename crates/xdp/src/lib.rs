//! What an XDP program can touch: frames, the context, verdicts, helpers and kfuncs; and the way in
//! for users of the library.

#![deny(unsafe_code)]

pub mod frame;
mod helpers;
pub mod host;
mod memory;
pub mod program;
mod run;
pub mod verdict;
mod worker;

pub use frame::{Frame, FrameError, RxInfo};
pub use helpers::Trace;
pub use program::{LoadError, LoadOptions, Loader, Program, Select};
pub use verdict::{Action, Target, Verdict};
pub use worker::Worker;
