//! What becomes of frames at a hook: the programs that judge them, and where each verdict leads.

use std::sync::Arc;

use towpath_xdp::Action;

use crate::chain::{Chain, Hook};
use crate::counters::{Counter, DropReason, PortCounters};
use crate::numbers::{Numbers, PortId};
use crate::tap::Tap;
use crate::target::{Exit, Owner, TargetId};

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

    /// The ports that redirects may name here, where `all` are known by their ifindexes.
    #[inline]
    pub(crate) fn ports<'a>(&'a self, all: &'a Numbers<PortId>) -> &'a Numbers<PortId> {
        self.scope.as_deref().unwrap_or(all)
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

    /// The program of a devmap's entry on the way to that port (`dev_map_bpf_prog_run`).
    pub(crate) fn devmap(to: PortId, ifindex: u32, chain: Arc<Chain>) -> HookSpec {
        let owner = Owner::of(to);
        let (drop, pass) = (owner.target(Exit::EntryVerdict), owner.target(Exit::Send));
        let new = HookSpec::new(Some(chain), owner, [drop, drop, pass, drop, drop]);
        HookSpec { egress: ifindex, ..new }
    }

    /// The program of a cpumap's entry, for frames that arrived at a port with that hook
    /// (`cpu_map_bpf_prog_run_xdp`).
    pub(crate) fn cpumap(from: &HookSpec, chain: Option<Arc<Chain>>) -> HookSpec {
        let owner = from.owner;
        let (drop, pass) = (owner.drops(DropReason::EntryVerdict), from.target(Action::Pass));
        HookSpec::new(chain, owner, [drop, drop, pass, drop, TargetId::AS_FRAME_SAYS])
    }

    /// Live frames, which seem to have arrived at a port with that hook: what is sent back leaves
    /// as if redirected, but by a bond's choice where the port's program is its bond's
    /// (`xdp_test_run_batch`, `bpf_prog_run_xdp`).
    pub(crate) fn live(from: Option<(&HookSpec, bool)>, chain: Arc<Chain>) -> HookSpec {
        let owner = from.map_or(Owner::NOBODY, |(from, _)| from.owner);
        let (pass, tx) = match from {
            Some((from, true)) => (from.target(Action::Pass), from.target(Action::Tx)),
            Some((from, false)) => (from.target(Action::Pass), owner.target(Exit::Redirect)),
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
