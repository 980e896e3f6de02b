//! The sanitizer: finds mistakes that the kernel's verifier accepts, while a program is
//! interpreted.
//!
//! It tracks unset memory bit by bit: the stack, records of ring buffers, what
//! `bpf_xdp_adjust_head` adds, what functions leave unset when they fail. Copying such bits is no
//! mistake, and masking or shifting them away removes them. A [`Finding`] is made where they
//! matter: in a key, a value, a record, a packet that leaves, an argument, a branch, a return
//! value.
//!
//! The interpreter shows each instruction before it is executed ([`Sanitizer::step`]), so this
//! costs nothing where no sanitizer was asked for.

mod bits;
mod call;
mod choice;
mod effect;
mod finding;
mod habits;
mod headers;
mod layout;
mod leave;
mod lost;
mod memory_checks;
mod shadow;
mod step;
mod tally;
mod text;

use std::collections::HashSet;
use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::insn::REG_COUNT;

pub use choice::{Poison, Sanitize, SanitizeError};
pub use finding::{Finding, Kind, Severity};
pub use tally::Tally;

use effect::Pending;
use habits::Habits;
use shadow::{Place, Shadow};

/// Watches the programs that a worker runs ([`crate::Worker::set_sanitizer`]).
#[derive(Debug)]
pub struct Sanitizer {
    /// Programs that ran.
    programs: Vec<Arc<Linked>>,
    /// Number of the running program.
    program: usize,
    /// The next instruction.
    place: Place,
    /// Undefined bits of the registers.
    bits: [u64; REG_COUNT],
    /// The instructions that the undefined bits came from.
    sources: [Place; REG_COUNT],
    shadow: Shadow,
    /// Whether a run has begun and no instruction was seen yet.
    fresh: bool,
    /// Whether the run is for a packet, so that its verdict and packet are checked.
    judges: bool,
    /// The frame pointer of the running function, its callers, and the call that it made last.
    fp: u64,
    callers: Vec<Caller>,
    pending: Option<Pending>,
    /// Records of ring buffers that the program holds: address, length, and the call that returned
    /// them.
    records: Vec<(u64, u64, Place)>,
    /// The lowest address of the packet whose contents are known.
    packet_start: u64,
    /// The last call for a redirect target.
    redirect: Option<Redirect>,
    /// Where the arriving packet began, and the addresses of its headers that were right.
    arrived_at: u64,
    right_headers: Vec<u64>,
    /// The last instruction that changed the packet.
    packet_writer: Place,
    /// Origin of each register: the address that its number was loaded from, or 0 for the stack or
    /// the packet.
    loaded_from: [u64; REG_COUNT],
    /// Locks that the program holds.
    locks: u32,
    /// The program's behaviour over many runs.
    habits: Habits,
    /// Findings of earlier runs, which are not reported again.
    known: HashSet<(Place, Kind, u8)>,
    findings: Vec<Finding>,
}

/// A function that waits for one that it called, or that a helper calls.
#[derive(Debug)]
struct Caller {
    fp: u64,
    /// r6 to r9.
    bits: [u64; 4],
    sources: [Place; 4],
    pending: Option<Pending>,
}

/// A call of `bpf_redirect` or `bpf_redirect_map`.
#[derive(Debug, Clone, Copy)]
struct Redirect {
    place: Place,
    succeeded: bool,
    /// Whether it goes to an application, which may get packets in any state.
    to_socket: bool,
    /// Whether it goes to ifindex 0, which no interface has.
    to_nothing: bool,
}

impl Default for Sanitizer {
    fn default() -> Self {
        Sanitizer::new()
    }
}

impl Sanitizer {
    /// A sanitizer without observations.
    pub fn new() -> Sanitizer {
        Sanitizer {
            programs: Vec::new(),
            program: 0,
            place: Place::default(),
            bits: [0; REG_COUNT],
            sources: [Place::default(); REG_COUNT],
            shadow: Shadow::new(),
            fresh: true,
            judges: false,
            fp: 0,
            callers: Vec::new(),
            pending: None,
            records: Vec::new(),
            packet_start: 0,
            redirect: None,
            arrived_at: 0,
            right_headers: Vec::new(),
            packet_writer: Place::default(),
            loaded_from: [0; REG_COUNT],
            locks: 0,
            habits: Habits::default(),
            known: HashSet::new(),
            findings: Vec::new(),
        }
    }

    /// Takes the findings since the last call. A finding is reported once.
    pub fn take(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Starts a run. `judges` tells whether the run is for a packet, so that its verdict matters.
    pub(crate) fn begin(&mut self, judges: bool) {
        (self.fresh, self.judges) = (true, judges);
    }
}
