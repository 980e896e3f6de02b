//! The place where a guest's programs run: a port, as this crate sees it.

use std::fmt;

use towpath_guest_client::wire::{Counters, Direction};
use towpath_xdp::Program;

/// A guest's port.
pub trait Edge: fmt::Debug + Send + Sync {
    /// Sets the program for the frames of one direction, or (`None`) removes it. When the call
    /// returns, no worker runs the previous program.
    ///
    /// # Errors
    ///
    /// Fails with a reason if that is impossible; then nothing has changed.
    fn set_program(&self, direction: Direction, program: Option<&Program>) -> Result<(), String>;

    /// Counters of a direction's program since it was attached.
    fn counters(&self, direction: Direction) -> Option<Counters>;

    /// Targets of redirects.
    fn targets(&self) -> Vec<Target>;

    /// Number of restarts of the guest so far: it was reset, or replaced by another one.
    fn restarts(&self) -> u64;

    /// Reports an event to the operator.
    fn tell(&self, text: &str);
}

/// A port that the operator lets a guest's programs redirect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The guest's number of the target.
    pub ifindex: u32,
    /// Name of the target.
    pub name: String,
    /// Largest payload, in bytes.
    pub mtu: u32,
    /// Ethernet address of the target.
    pub mac: [u8; 6],
    /// Whether it accepts frames now.
    pub is_up: bool,
}
