//! Programs on a hook: one, or several in a row.

use std::sync::Arc;

use towpath_xdp::{Action, Program};

use crate::config::Hook;
use crate::counters::{Counter, DropReason, PortCounters, ProgramCounters};
use crate::snapshot::{Numbers, Port, PortId, Snapshot};
use crate::tap::Tap;
use crate::target::{Exit, Owner, TargetId};

/// The programs of one hook of one port, in the order they run.
///
/// Several programs run as libxdp's dispatcher runs them: the next one judges a frame when the
/// verdict so far is among its predecessor's chain-call actions; when none is left, the frame
/// passes.
#[derive(Debug, Clone)]
pub struct Chain {
    links: Vec<Link>,
}

/// A program in its place.
#[derive(Debug, Clone)]
pub struct Link {
    /// The program.
    pub program: Program,
    /// Smaller runs earlier (`run_prio`).
    pub priority: u32,
    /// Verdicts after which the next program runs: bit `1 << action`.
    pub chain_call_actions: u32,
    /// Whoever attached it: names it when it is to be replaced or taken away.
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

    /// What each worker counted.
    pub fn counters(&self) -> &[ProgramCounters] {
        &self.counters
    }
}

impl Chain {
    /// These programs, sorted by priority, then name; equal ones stay in order.
    pub fn new(mut links: Vec<Link>) -> Option<Chain> {
        links.sort_by(|a, b| (a.priority, a.program.name()).cmp(&(b.priority, b.program.name())));
        (!links.is_empty()).then_some(Chain { links })
    }

    /// A program alone, for so many workers.
    pub(crate) fn of_one(program: &Program, workers: usize) -> Chain {
        Chain { links: vec![Link::new(program.clone(), NO_LINK, workers)] }
    }

    /// The same programs where each sees what the one before passed, and nothing else.
    pub(crate) fn in_a_row(&self) -> Chain {
        let links = self.links.iter().cloned();
        let links = links.map(|link| Link { chain_call_actions: DEFAULT_ACTIONS, ..link });
        Chain { links: links.collect() }
    }

    /// The programs in the order they run; at least one.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Whether all of them check each access as they run ([`Program::checks_accesses`]).
    pub fn checks_accesses(&self) -> bool {
        self.links.iter().all(|link| link.program.checks_accesses())
    }

    /// Whether all of them take frames of several buffers.
    pub fn has_frags(&self) -> bool {
        self.links.iter().all(|link| link.program.has_frags())
    }
}

/// What becomes of frames somewhere: the programs that judge them, and what each verdict means
/// there. The kernel's special cases are rows of this table ([`HookSpec::row`]).
#[derive(Debug, Clone)]
pub(crate) struct HookSpec {
    /// Without any, frames pass.
    pub(crate) chain: Option<Arc<Chain>>,
    /// By [`Action`], where frames go.
    pub(crate) row: Row,
    /// Who is charged with redirects that lead nowhere.
    pub(crate) owner: Owner,
    /// Where verdicts are counted, by worker.
    pub(crate) counts: Option<Arc<[PortCounters]>>,
    /// Where it is, for taps.
    pub(crate) point: Hook,
    /// Who gets copies.
    pub(crate) taps: Vec<Arc<Tap>>,
    /// The ifindex that programs see as `egress_ifindex`; 0 where frames arrive.
    pub(crate) egress: u32,
    /// Makes frames linear first.
    pub(crate) linearize: bool,
    /// Frames may be in the memory of applications.
    pub(crate) zero_copy: bool,
    /// Control frames of that bond pass before a program sees them.
    pub(crate) control: Option<PortId>,
    /// The ports that redirects may name, by the numbers that the programs' owner knows; without
    /// it, all there are by their ifindexes.
    pub(crate) scope: Option<Arc<Numbers<PortId>>>,
}

/// A guest's program, and the ports that it may redirect to, by the guest's numbers.
#[derive(Debug)]
pub(crate) struct GuestChain {
    pub(crate) chain: Arc<Chain>,
    pub(crate) scope: Arc<Numbers<PortId>>,
}

/// What `XDP_ABORTED`, `DROP`, `PASS`, `TX` and `REDIRECT` mean, in this order.
pub(crate) type Row = [TargetId; 5];

/// The row of what arrives, where only two targets differ.
fn arrivals(owner: Owner, pass: TargetId, tx: TargetId) -> Row {
    let (aborted, dropped) = (owner.drops(DropReason::Aborted), owner.drops(DropReason::Verdict));
    [aborted, dropped, pass, tx, TargetId::AS_FRAME_SAYS]
}

impl HookSpec {
    /// Programs alone, for nobody in particular.
    fn new(chain: Option<Arc<Chain>>, owner: Owner, row: Row) -> HookSpec {
        HookSpec {
            chain,
            row,
            owner,
            counts: None,
            point: Hook::Rx,
            taps: Vec::new(),
            egress: 0,
            linearize: false,
            zero_copy: false,
            control: None,
            scope: None,
        }
    }

    /// What arrives at a port: passes to what is above it, and is sent back by `tx`.
    pub(crate) fn rx(
        port: PortId,
        chain: Option<Arc<Chain>>,
        pass: TargetId,
        tx: TargetId,
    ) -> Self {
        let owner = Owner::of(port);
        HookSpec::new(chain, owner, arrivals(owner, pass, tx))
    }

    /// What leaves by a port: only what all programs pass does.
    pub(crate) fn tx(port: PortId, ifindex: u32, chain: Option<Arc<Chain>>) -> HookSpec {
        let owner = Owner::of(port);
        let (drop, pass) = (owner.target(Exit::TxVerdict), owner.target(Exit::Guest));
        let new = HookSpec::new(chain, owner, [drop, drop, pass, drop, drop]);
        HookSpec { point: Hook::Tx, egress: ifindex, ..new }
    }

    /// The ports that redirects may name here.
    #[inline]
    pub(crate) fn ports<'a>(&'a self, snapshot: &'a Snapshot) -> &'a Numbers<PortId> {
        self.scope.as_deref().unwrap_or(&snapshot.by_ifindex)
    }

    /// What is to reach the guest behind a port, as its own program decides: what that sends back
    /// arrives at the port, as if the guest had sent it.
    pub(crate) fn guest_rx(port: PortId, guest: GuestChain) -> HookSpec {
        let owner = Owner::of(port);
        let (drop, pass) = (owner.target(Exit::TxVerdict), owner.target(Exit::Xmit));
        let row = [drop, drop, pass, owner.target(Exit::Arrive), TargetId::AS_FRAME_SAYS];
        let new = HookSpec::new(Some(guest.chain), owner, row);
        HookSpec { point: Hook::GuestRx, scope: Some(guest.scope), ..new }
    }

    /// What that guest sends: what its own program passes is the port's to judge, and what that
    /// sends back goes to the guest.
    pub(crate) fn guest_tx(port: PortId, guest: GuestChain) -> HookSpec {
        let owner = Owner::of(port);
        let row = arrivals(owner, owner.target(Exit::Receive), owner.target(Exit::Xmit));
        let new = HookSpec::new(Some(guest.chain), owner, row);
        HookSpec { point: Hook::GuestTx, scope: Some(guest.scope), ..new }
    }

    /// The program of a devmap's entry (`dev_map_bpf_prog_run`).
    pub(crate) fn devmap(to: &Port, chain: Arc<Chain>) -> HookSpec {
        let owner = Owner::of(to.id);
        let (drop, pass) = (owner.target(Exit::EntryVerdict), owner.target(Exit::Send));
        let new = HookSpec::new(Some(chain), owner, [drop, drop, pass, drop, drop]);
        HookSpec { egress: to.ifindex, ..new }
    }

    /// The program of a cpumap's entry, for frames that arrived at that port
    /// (`cpu_map_bpf_prog_run_xdp`).
    pub(crate) fn cpumap(from: &Port, chain: Option<Arc<Chain>>) -> HookSpec {
        let owner = Owner::of(from.id);
        let (drop, pass) = (owner.drops(DropReason::EntryVerdict), from.rx.target(Action::Pass));
        HookSpec::new(chain, owner, [drop, drop, pass, drop, TargetId::AS_FRAME_SAYS])
    }

    /// Live frames, which seem to have arrived at that port: what is sent back leaves as if
    /// redirected, but by a bond's choice as ever (`xdp_test_run_batch`, `bpf_prog_run_xdp`).
    pub(crate) fn live(from: Option<&Port>, chain: Arc<Chain>) -> HookSpec {
        let owner = from.map_or(Owner::NOBODY, |from| Owner::of(from.id));
        let (pass, tx) = match from {
            Some(from) if from.member.is_some_and(|member| member.is_delegate) => {
                (from.rx.target(Action::Pass), from.rx.target(Action::Tx))
            }
            Some(from) => (from.rx.target(Action::Pass), owner.target(Exit::Redirect)),
            // The kernel's loopback device: nothing is above it, and nothing leaves by it.
            None => (owner.drops(DropReason::NoUpper), owner.drops(DropReason::Unsupported)),
        };
        HookSpec::new(Some(chain), owner, arrivals(owner, pass, tx))
    }

    /// Where a worker counts verdicts.
    #[inline]
    pub(crate) fn verdicts(&self, worker: usize) -> Option<&[Counter; 5]> {
        Some(&self.counts.as_ref()?[worker].actions)
    }

    /// What a verdict means here: the only place where one decides about a frame.
    #[inline]
    pub(crate) fn target(&self, action: Action) -> TargetId {
        self.row[action as usize]
    }
}

/// libxdp's `XDP_DEFAULT_RUN_PRIO`.
pub const DEFAULT_PRIORITY: u32 = 50;
/// The id of a program that nobody attached to a port.
const NO_LINK: u32 = 0;
/// libxdp's default: the next program sees what this one passes.
pub const DEFAULT_ACTIONS: u32 = 1 << 2;
