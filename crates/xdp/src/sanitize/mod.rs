//! The sanitizer: finds mistakes that the kernel's verifier accepts, while a program is
//! interpreted.
//!
//! It tracks unset memory bit by bit: the stack, records of ring buffers, what
//! `bpf_xdp_adjust_head` adds, what functions leave unset when they fail. Copying such bits is no
//! mistake, and masked or shifted away they are gone. A [`Finding`] is made where they matter: in a
//! key, a value, a record, a packet that leaves, an argument, a branch, a return value.
//!
//! The interpreter shows each instruction before it is executed ([`Sanitizer::step`]), so nothing
//! of this costs anything where no sanitizer was asked for.

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
    /// The one that runs, by its number.
    program: usize,
    /// The instruction that is next.
    place: Place,
    /// Undefined bits of the registers.
    bits: [u64; REG_COUNT],
    /// Where they came from.
    sources: [Place; REG_COUNT],
    shadow: Shadow,
    /// Whether a run has begun of which no instruction was seen yet.
    fresh: bool,
    /// Whether it is a packet's run, whose verdict and packet are looked at.
    judges: bool,
    /// The frame pointer of the running function, its callers, and the call that it made last.
    fp: u64,
    callers: Vec<Caller>,
    pending: Option<Pending>,
    /// Records of ring buffers that the program has: address, length, where it got them.
    records: Vec<(u64, u64, Place)>,
    /// The lowest address of the packet of which it is known what was there.
    packet_start: u64,
    /// The last call that was to set a target of a redirect.
    redirect: Option<Redirect>,
    /// Where the packet began, and its headers that were right, by their addresses.
    arrived_at: u64,
    right_headers: Vec<u64>,
    /// The last instruction that changed the packet.
    packet_writer: Place,
    /// Origin of each register: the address that its number was loaded from, or 0 for the stack or
    /// the packet.
    loaded_from: [u64; REG_COUNT],
    /// Locks that the program holds.
    locks: u32,
    /// Its behaviour over many runs.
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
    /// To an application, which may get packets in any state.
    to_socket: bool,
    /// To ifindex 0, which no interface has.
    to_nothing: bool,
}

impl Default for Sanitizer {
    fn default() -> Self {
        Sanitizer::new()
    }
}

impl Sanitizer {
    /// A sanitizer that has seen nothing yet.
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

    /// Takes what was found since the last time. What was told once is not told again.
    pub fn take(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// A run begins; `judges`: of a packet, whose verdict matters.
    pub(crate) fn begin(&mut self, judges: bool) {
        (self.fresh, self.judges) = (true, judges);
    }
}
