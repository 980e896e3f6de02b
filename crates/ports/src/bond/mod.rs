//! `bond`: the control plane of a bond, which decides the use of its members.
//!
//! The engine moves a bond's frames (`towpath_engine::bond`); this module monitors links, chooses
//! the active member, speaks LACP, and announces fail-overs. The deciding parts do no I/O
//! ([`links`], [`arp`], [`active`], [`lacp`], [`announce`]); [`Controller`] is the thread that
//! observes, decides and updates the engine.

pub mod active;
pub mod announce;
pub mod arp;
mod control;
pub mod lacp;
pub mod links;
pub mod settings;
mod status;

pub use control::{Controller, Observer, Tell};
pub use status::{MemberStatus, Status};
