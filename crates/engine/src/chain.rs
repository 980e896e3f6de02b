//! Chains: the programs of a hook, in order.

use std::sync::Arc;

use strum::{EnumCount, VariantArray};
use towpath_xdp::Program;

use crate::counters::ProgramCounters;

/// The hooks of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumCount, VariantArray)]
pub enum Hook {
    /// Ingress: native XDP.
    Rx,
    /// Egress.
    Tx,
    /// Dequeue programs, which choose the packet of a queue that leaves next.
    Dequeue,
    /// Frames to the guest behind a port: the guest's own program.
    GuestRx,
    /// Frames from the guest, before the port's programs: the guest's own program.
    GuestTx,
}

impl Hook {
    /// All hooks.
    pub const ALL: &'static [Hook] = Hook::VARIANTS;
}

/// The programs of one hook of one port, in the order they run.
///
/// Several programs run as libxdp's dispatcher runs them: the next one judges a frame when the
/// verdict so far is among its predecessor's chain-call actions; when none is left, the frame
/// passes.
#[derive(Debug, Clone)]
pub struct Chain {
    links: Vec<Link>,
}

/// A program's place in a chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// The program.
    pub program: Program,
    /// Smaller runs earlier (`run_prio`).
    pub priority: u32,
    /// Verdicts after which the next program runs: bit `1 << action`.
    pub chain_call_actions: u32,
    /// Identifies the attachment for a later replacement or removal.
    pub id: u32,
    counters: Arc<[ProgramCounters]>,
}

impl Link {
    /// A program with counters for `workers` workers.
    pub fn new(program: Program, id: u32, workers: usize) -> Link {
        let counters = (0..workers).map(|_| ProgramCounters::default()).collect();
        Link {
            program,
            priority: DEFAULT_PRIORITY,
            chain_call_actions: DEFAULT_ACTIONS,
            id,
            counters,
        }
    }

    /// Counters by worker.
    pub fn counters(&self) -> &[ProgramCounters] {
        &self.counters
    }
}

impl Chain {
    /// A chain of `links`, sorted by priority, then name; equal ones keep their order. `None` if
    /// empty.
    pub fn new(mut links: Vec<Link>) -> Option<Chain> {
        links.sort_by(|a, b| (a.priority, a.program.name()).cmp(&(b.priority, b.program.name())));
        (!links.is_empty()).then_some(Chain { links })
    }

    /// A chain of one program, with counters for `workers` workers.
    pub(crate) fn of_one(program: &Program, workers: usize) -> Chain {
        Chain { links: vec![Link::new(program.clone(), NO_LINK, workers)] }
    }

    /// The same programs with default actions: each sees only the frames that the previous one
    /// passed.
    pub(crate) fn in_a_row(&self) -> Chain {
        let links = self.links.iter().cloned();
        let links = links.map(|link| Link { chain_call_actions: DEFAULT_ACTIONS, ..link });
        Chain { links: links.collect() }
    }

    /// The programs in the order they run; at least one.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether all programs check each memory access at run time ([`Program::checks_accesses`]).
    pub fn checks_accesses(&self) -> bool {
        self.links.iter().all(|link| link.program.checks_accesses())
    }

    /// Whether all programs support frames of several buffers.
    pub fn has_frags(&self) -> bool {
        self.links.iter().all(|link| link.program.has_frags())
    }
}

/// libxdp's `XDP_DEFAULT_RUN_PRIO`.
pub const DEFAULT_PRIORITY: u32 = 50;
/// The id of a program that is not attached to a port.
const NO_LINK: u32 = 0;
/// libxdp's default chain-call actions: the next program runs after `XDP_PASS`.
pub const DEFAULT_ACTIONS: u32 = 1 << 2;
const _: () = assert!(DEFAULT_ACTIONS == 1 << towpath_xdp::Action::Pass as u32);
