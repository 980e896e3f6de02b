//! Targets: the places frames can go, with dense numbers that are assigned at each change of
//! configuration.
//!
//! Each port has a row of targets at a fixed stride, so that a target's number follows from the
//! port's number and the exit. Sockets follow. Behind those, each worker keeps targets for entries
//! of devmaps and cpumaps (a program on the way, another worker), added at first use.
//!
//! A port's targets differ by the way frames reach the port: frames sent by `XDP_TX` are not
//! checked, redirected frames must fit the port as they are, and passed frames are made to fit. All
//! of them wait in the same queue.

use strum::VariantArray;

use crate::counters::DropReason;
use crate::numbers::PortId;

/// The number of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetId(pub(crate) u32);

/// The exits of a port: the destinations of a verdict there. Each has a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
#[repr(u32)]
pub(crate) enum Exit {
    /// The port's wire, or the wire of the member that a bond chooses, without checks.
    Xmit,
    /// `XDP_TX`: the port's `tx` hook, or its wire if it has no hook.
    Send,
    /// Like [`Exit::Send`], for redirected frames, which must fit the port as they are.
    Redirect,
    /// Like [`Exit::Send`], for passed frames, which are made to fit the port.
    Forward,
    /// The bridge or bond above the port, which decides for each frame.
    Upper,
    /// `XDP_TX` on a bond's member: the bond chooses the member that sends.
    BondTx,
    /// The guest's own program, which judges frames before they reach the guest; the wire if there
    /// is none.
    Guest,
    /// The port's receive path, as if its guest had sent the frame: frames the guest's program
    /// sends back.
    Arrive,
    /// The port's receive path for frames that the guest sent and its own program passed.
    Receive,
    /// Drop on egress by a program of the `tx` hook. ([`Exit::EntryVerdict`]: by the program of a
    /// devmap entry; [`Exit::NoEntryProgram`]: because that program is gone.)
    TxVerdict,
    EntryVerdict,
    NoEntryProgram,
    /// The first of the ingress drop targets, one for each [`DropReason`].
    Drops,
}

/// The port whose counters count a frame, or no port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u32);

/// The port whose counters count a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The ingress port.
    Rx,
    /// The egress port.
    Tx,
}

/// One target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Length in bytes of the longest linear frame that is queued without further checks or work; 0
    /// if each frame needs some.
    pub(crate) plain_max: u32,
    /// The target in whose queue frames wait for the end of the burst.
    pub(crate) queue: TargetId,
    /// The port whose counters count drops here.
    pub(crate) owner: Owner,
    pub(crate) check: Check,
    pub(crate) prepare: Prepare,
    pub(crate) kind: Kind,
}

/// The check that a frame must pass to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// All frames are admitted.
    Nothing,
    /// Frames that the port can send after [`Prepare::Port`].
    Forward,
    /// Frames that the port can send as they are.
    Redirect,
}

/// Work done on a frame before it is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepare {
    Nothing,
    /// Offload work that the port does not do itself.
    Port,
    /// Conversion to the bytes a wire would carry.
    Socket,
}

/// The processing of a target's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A port's transmitter sends the frames.
    Wire,
    /// A bond chooses a member for each frame.
    Bond,
    /// A port's `tx` hook runs.
    TxHook,
    /// A guest's program runs on frames to the guest.
    GuestHook,
    /// The frames arrive at a port: its `rx` hook runs.
    Arrive,
    /// Like [`Kind::Arrive`], for frames that are already counted as received.
    RxHook,
    /// The program of a devmap entry runs: the worker's entry hook with this number.
    EntryHook(u32),
    /// A socket, by its index in [`Snapshot::sockets`](crate::Snapshot::sockets).
    Socket(u32),
    /// Another worker gets the frames, by the worker's cpumap queue with this number.
    Cpu(u32),
    /// The frames wait for a dequeue program, in the worker's queue with this number.
    Queue(u32),
    /// The frames are dropped.
    Drop(DropReason, Side),
    /// Immediate: the bridge with this number decides.
    Bridge(u32),
    /// Immediate: the bond's control plane inspects a frame that passed on a member; the frame then
    /// goes on to `then`.
    Member { bond: PortId, then: TargetId },
    /// Immediate: the bond of the ingress member chooses the member that sends the frame back.
    BondTx { bond: PortId },
    /// Immediate: each entry of a devmap gets a copy.
    Broadcast,
}

impl TargetId {
    /// In a hook's row: the destination of the frame's own redirect.
    pub(crate) const AS_FRAME_SAYS: TargetId = TargetId(u32::MAX);
    /// All targets of the broadcast resolved last.
    pub(crate) const BROADCAST: TargetId = TargetId(0);

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The target of the socket at index `place`, in a table for `ports` ports.
    #[inline]
    pub(crate) fn socket(ports: usize, place: u32) -> TargetId {
        TargetId((ports as u32 + 1) * STRIDE + place)
    }
}

impl Exit {
    /// The target of this exit of a port.
    #[inline]
    pub(crate) fn at(self, port: PortId) -> TargetId {
        Owner::of(port).target(self)
    }
}

impl Owner {
    pub(crate) const NOBODY: Owner = Owner(0);

    #[inline]
    pub(crate) fn of(port: PortId) -> Owner {
        Owner(port.0 + 1)
    }

    #[inline]
    pub(crate) fn port(self) -> Option<PortId> {
        self.0.checked_sub(1).map(PortId)
    }

    #[inline]
    pub(crate) fn target(self, exit: Exit) -> TargetId {
        TargetId(self.0 * STRIDE + exit as u32)
    }

    /// The target for drops on ingress for reason `why`.
    #[inline]
    pub(crate) fn drops(self, why: DropReason) -> TargetId {
        TargetId(self.target(Exit::Drops).0 + why as u32)
    }
}

impl Kind {
    /// Whether this target passes frames to other targets of this worker.
    pub(crate) fn is_inner(self) -> bool {
        matches!(
            self,
            Kind::Bond | Kind::TxHook | Kind::GuestHook | Kind::RxHook | Kind::EntryHook(_)
        )
    }
}

impl Target {
    /// A target that admits all frames and has its own queue.
    pub(crate) fn open(id: TargetId, owner: Owner, kind: Kind) -> Target {
        let (check, prepare) = (Check::Nothing, Prepare::Nothing);
        Target { plain_max: u32::MAX, queue: id, owner, check, prepare, kind }
    }

    /// A target that processes each frame immediately.
    pub(crate) fn at_once(id: TargetId, owner: Owner, kind: Kind) -> Target {
        Target { plain_max: 0, ..Target::open(id, owner, kind) }
    }

    /// Whether frames in an application's memory may be queued here: no other program or port reads
    /// them.
    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        matches!(self.kind, Kind::Drop(..) | Kind::Socket(_))
    }
}

/// All exits except [`Exit::Drops`], in order.
pub(crate) const EXITS: [Exit; Exit::Drops as usize] =
    *Exit::VARIANTS.first_chunk().expect("all but drops");
/// Targets of one port.
pub(crate) const STRIDE: u32 = (EXITS.len() + DropReason::ALL.len()) as u32;
const _: () =
    assert!(DropReason::ALL.len() <= u32::BITS as usize, "a word has a bit for each reason");
