//! Where a guest's programs run: a port, as this crate sees it.

use std::fmt;

use towpath_guest_client::wire::{Counters, Direction};
use towpath_xdp::Program;

/// A guest's port.
pub trait Edge: fmt::Debug + Send + Sync {
    /// Sets the program that judges the frames of one direction, or (`None`) removes it. When it
    /// returns, no worker runs the previous one.
    ///
    /// # Errors
    ///
    /// Why that can't be done; everything is as it was.
    fn set_program(&self, direction: Direction, program: Option<&Program>) -> Result<(), String>;

    /// Counters of a direction's program since it was attached.
    fn counters(&self, direction: Direction) -> Option<Counters>;

    /// Where programs may redirect to.
    fn targets(&self) -> Vec<Target>;

    /// Number of restarts of the guest so far: it was reset, or replaced by another one.
    fn restarts(&self) -> u64;

    /// Tells people what happened.
    fn tell(&self, text: &str);
}

/// A port that the operator lets a guest's programs redirect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The guest's number for it.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Largest payload, in bytes.
    pub mtu: u32,
    /// Its address.
    pub mac: [u8; 6],
    /// Whether it takes frames now.
    pub is_up: bool,
}
