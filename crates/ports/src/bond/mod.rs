//! `bond`: the control side of a bond, which says what its members are good for.
//!
//! The engine moves a bond's frames (`towpath_engine::bond`); here is who watches links, chooses
//! the active member, talks LACP, and announces fail-overs. What decides is pure ([`links`],
//! [`arp`], [`active`], [`lacp`], [`announce`]); [`Controller`] is the thread that looks, decides
//! and tells the engine.

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
