//! What an XDP program can touch: frames, the context, verdicts, helpers; and the way in for users
//! of the library.

#![deny(unsafe_code)]

pub mod frame;
pub mod host;
mod memory;

pub use frame::{Frame, FrameError, RxInfo};
