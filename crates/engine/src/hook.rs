//! Hooks: the programs that judge frames, and the target of each verdict.

use std::sync::Arc;

use towpath_xdp::Action;

use crate::chain::{Chain, Hook};
use crate::counters::{Counter, DropReason, PortCounters};
use crate::numbers::{Numbers, PortId};
use crate::tap::Tap;
use crate::target::{Exit, Owner, TargetId};

/// A hook: the programs that judge frames, and the target of each verdict there. The kernel's
/// special cases are rows of this table ([`HookSpec::row`]).
#[derive(Debug, Clone)]
pub(crate) struct HookSpec {
    /// The programs; without any, frames pass.
    pub(crate) chain: Option<Arc<Chain>>,
    /// Target of frames by [`Action`].
    pub(crate) row: Row,
    /// The port whose counters count redirects without a valid target.
    pub(crate) owner: Owner,
    /// Counters of verdicts, by worker.
    pub(crate) counts: Option<Arc<[PortCounters]>>,
    /// The hook as taps name it.
    pub(crate) point: Hook,
    /// Taps that get copies of frames.
    pub(crate) taps: Vec<Arc<Tap>>,
    /// The ifindex that programs see as `egress_ifindex`; 0 where frames arrive.
    pub(crate) egress: u32,
    /// Copies frames of several buffers into one before programs without frags support run. The
    /// kernel's drivers refuse such a program where the MTU needs several buffers.
    pub(crate) linearize: bool,
    /// Frames may be in the memory of applications.
    pub(crate) zero_copy: bool,
    /// Control frames of this bond bypass the programs.
    pub(crate) control: Option<PortId>,
    /// Ports that redirects may name, by the numbers that the programs' owner uses; without it, all
    /// ports by ifindex.
    pub(crate) scope: Option<Arc<Numbers<PortId>>>,
}

/// A guest's program, and the ports that it may redirect to, by the guest's numbers.
#[derive(Debug)]
pub(crate) struct GuestChain {
    pub(crate) chain: Arc<Chain>,
    pub(crate) scope: Arc<Numbers<PortId>>,
}

/// Targets of `XDP_ABORTED`, `DROP`, `PASS`, `TX` and `REDIRECT`, in this order.
pub(crate) type Row = [TargetId; 5];

/// The row of an ingress hook; only its `pass` and `tx` targets vary.
fn arrivals(owner: Owner, pass: TargetId, tx: TargetId) -> Row {
    let (aborted, dropped) = (owner.drops(DropReason::Aborted), owner.drops(DropReason::Verdict));
    [aborted, dropped, pass, tx, TargetId::AS_FRAME_SAYS]
}

impl HookSpec {
    /// A hook with programs and a row, everything else at its default.
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

    /// The `rx` hook of a port: passed frames go to `pass`, frames to send back to `tx`.
    pub(crate) fn rx(
        port: PortId,
        chain: Option<Arc<Chain>>,
        pass: TargetId,
        tx: TargetId,
    ) -> Self {
        let owner = Owner::of(port);
        HookSpec::new(chain, owner, arrivals(owner, pass, tx))
    }

    /// The `tx` hook of a port: only frames that all programs pass leave.
    pub(crate) fn tx(port: PortId, ifindex: u32, chain: Option<Arc<Chain>>) -> HookSpec {
        let owner = Owner::of(port);
        let (drop, pass) = (owner.target(Exit::TxVerdict), owner.target(Exit::Guest));
        let new = HookSpec::new(chain, owner, [drop, drop, pass, drop, drop]);
        HookSpec { point: Hook::Tx, egress: ifindex, ..new }
    }

    /// Ports that redirects may name here; `all` are the engine's ports by ifindex.
    #[inline]
    pub(crate) fn ports<'a>(&'a self, all: &'a Numbers<PortId>) -> &'a Numbers<PortId> {
        self.scope.as_deref().unwrap_or(all)
    }

    /// The hook of a guest's own program on frames to the guest. Frames it sends back arrive at the
    /// port, as if the guest had sent them.
    pub(crate) fn guest_rx(port: PortId, guest: GuestChain) -> HookSpec {
        let owner = Owner::of(port);
        let (drop, pass) = (owner.target(Exit::TxVerdict), owner.target(Exit::Xmit));
        let row = [drop, drop, pass, owner.target(Exit::Arrive), TargetId::AS_FRAME_SAYS];
        let new = HookSpec::new(Some(guest.chain), owner, row);
        HookSpec { point: Hook::GuestRx, scope: Some(guest.scope), ..new }
    }

    /// The hook of a guest's own program on frames from the guest. Frames it passes go to the
    /// port's `rx` hook; frames it sends back go to the guest.
    pub(crate) fn guest_tx(port: PortId, guest: GuestChain) -> HookSpec {
        let owner = Owner::of(port);
        let row = arrivals(owner, owner.target(Exit::Receive), owner.target(Exit::Xmit));
        let new = HookSpec::new(Some(guest.chain), owner, row);
        HookSpec { point: Hook::GuestTx, scope: Some(guest.scope), ..new }
    }

    /// The hook of a devmap entry's program, on the way to port `to` (`dev_map_bpf_prog_run`).
    pub(crate) fn devmap(to: PortId, ifindex: u32, chain: Arc<Chain>) -> HookSpec {
        let owner = Owner::of(to);
        let (drop, pass) = (owner.target(Exit::EntryVerdict), owner.target(Exit::Send));
        let new = HookSpec::new(Some(chain), owner, [drop, drop, pass, drop, drop]);
        HookSpec { egress: ifindex, ..new }
    }

    /// The hook of a cpumap entry's program, for frames that arrived at a port with hook `from`
    /// (`cpu_map_bpf_prog_run_xdp`).
    pub(crate) fn cpumap(from: &HookSpec, chain: Option<Arc<Chain>>) -> HookSpec {
        let owner = from.owner;
        let (drop, pass) = (owner.drops(DropReason::EntryVerdict), from.target(Action::Pass));
        HookSpec::new(chain, owner, [drop, drop, pass, drop, TargetId::AS_FRAME_SAYS])
    }

    /// The hook of a live test run, whose frames seem to arrive at a port with hook `from`. Frames
    /// sent back leave as if redirected; if `from`'s flag is set, because the port runs its bond's
    /// program, they leave by the member that the bond chooses (`xdp_test_run_batch`,
    /// `bpf_prog_run_xdp`).
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

    /// The verdict counters of a worker.
    #[inline]
    pub(crate) fn verdicts(&self, worker: usize) -> Option<&[Counter; 5]> {
        Some(&self.counts.as_ref()?[worker].actions)
    }

    /// The target of a verdict: the only place that decides about a frame.
    #[inline]
    pub(crate) fn target(&self, action: Action) -> TargetId {
        self.row[action as usize]
    }
}
