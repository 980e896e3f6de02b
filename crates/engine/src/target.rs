//! Targets: where frames can go, by dense numbers that are given when the configuration changes.
//!
//! Each port has a row of targets at a fixed distance, so that a port's number and what is wanted
//! of it are a target's number. Sockets follow; behind those a worker keeps what entries of devmaps
//! and cpumaps name (a program on the way, another worker), as it comes across them.
//!
//! A target of a port differs by how one got there: what `XDP_TX` sends is asked nothing, what is
//! redirected must fit the port as it is, what passes is made to fit. Where its frames wait is the
//! same queue.

use strum::VariantArray;

use crate::counters::DropReason;
use crate::numbers::PortId;

/// The number of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetId(pub(crate) u32);

/// The exits of a port: where a verdict may lead at it. Each has a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
#[repr(u32)]
pub(crate) enum Exit {
    /// Its wire, or a bond's choice of a member's: whatever comes is sent.
    Xmit,
    /// Its `tx` hook, or its wire where there is none: `XDP_TX`.
    Send,
    /// The same for what was redirected: it must fit as it is.
    Redirect,
    /// The same for what passed: it is made to fit.
    Forward,
    /// What is above it, where that needs a look at each frame.
    Upper,
    /// `XDP_TX` by its bond's choice.
    BondTx,
    /// What its guest's own program is to judge before it reaches the guest; its wire where there
    /// is none.
    Guest,
    /// Its receive path, as if its guest had sent it: what the guest's program sends back.
    Arrive,
    /// The same for what the guest did send, and its own program passed.
    Receive,
    /// Dropped on the way out: by a program of the `tx` hook, by one of a devmap's entry, because
    /// that program is gone.
    TxVerdict,
    EntryVerdict,
    NoEntryProgram,
    /// The first of the drops of what arrived there, one for each reason.
    Drops,
}

/// A port whose counters tell of a frame, or nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u32);

/// Which of them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It arrived there.
    Rx,
    /// It was to leave there.
    Tx,
}

/// One target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Bytes of the longest frame that only has to be queued, if it is nothing but linear; 0 when
    /// there is something to do for each frame.
    pub(crate) plain_max: u32,
    /// The target in whose queue frames wait for the end of the burst.
    pub(crate) queue: TargetId,
    /// Who is charged with what goes wrong here.
    pub(crate) owner: Owner,
    pub(crate) check: Check,
    pub(crate) prepare: Prepare,
    pub(crate) kind: Kind,
}

/// What a frame must be to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Anything.
    Nothing,
    /// Such that the port can send it after [`Prepare::Port`].
    Forward,
    /// Such that the port can send it.
    Redirect,
}

/// What is done to a frame before it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prepare {
    Nothing,
    /// What the port leaves to its egress.
    Port,
    /// What a wire would carry of it.
    Socket,
}

/// What becomes of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A port's transmitter sends them.
    Wire,
    /// A bond chooses a member for each.
    Bond,
    /// A port's `tx` hook runs.
    TxHook,
    /// A guest's program runs on what is to reach the guest.
    GuestHook,
    /// They arrive at a port: its `rx` hook runs.
    Arrive,
    /// The same for those that are counted as arrived.
    RxHook,
    /// The program of a devmap's entry runs: the worker's entry hook of that number.
    EntryHook(u32),
    /// The socket of that place in [`Snapshot::sockets`](crate::Snapshot::sockets).
    Socket(u32),
    /// Another worker gets them: the worker's cpumap queue of that number.
    Cpu(u32),
    /// They wait in a queue for a dequeue program: the worker's queue of that number.
    Queue(u32),
    /// They are dropped.
    Drop(DropReason, Side),
    /// At once: the bridge of that number decides.
    Bridge(u32),
    /// At once: a bond's control side looks at what passed on a member, which then goes on.
    Member { bond: PortId, then: TargetId },
    /// At once: the bond of the member it arrived on chooses a member to send it back.
    BondTx { bond: PortId },
    /// At once: a copy for each entry of a devmap.
    Broadcast,
}

impl TargetId {
    /// In a hook's row: where the frame's own redirect leads.
    pub(crate) const AS_FRAME_SAYS: TargetId = TargetId(u32::MAX);
    /// All targets that were last resolved for a broadcast.
    pub(crate) const BROADCAST: TargetId = TargetId(0);

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The socket at that place, where there are so many ports.
    #[inline]
    pub(crate) fn socket(ports: usize, place: u32) -> TargetId {
        TargetId((ports as u32 + 1) * STRIDE + place)
    }
}

impl Exit {
    /// The target of that port.
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

    /// Dropped on arrival for that reason.
    #[inline]
    pub(crate) fn drops(self, why: DropReason) -> TargetId {
        TargetId(self.target(Exit::Drops).0 + why as u32)
    }
}

impl Kind {
    /// Whether frames go on from here to other targets of this worker.
    pub(crate) fn is_inner(self) -> bool {
        matches!(
            self,
            Kind::Bond | Kind::TxHook | Kind::GuestHook | Kind::RxHook | Kind::EntryHook(_)
        )
    }
}

impl Target {
    /// One that takes everything and has a queue of its own.
    pub(crate) fn open(id: TargetId, owner: Owner, kind: Kind) -> Target {
        let (check, prepare) = (Check::Nothing, Prepare::Nothing);
        Target { plain_max: u32::MAX, queue: id, owner, check, prepare, kind }
    }

    /// One that looks at each frame at once.
    pub(crate) fn at_once(id: TargetId, owner: Owner, kind: Kind) -> Target {
        Target { plain_max: 0, ..Target::open(id, owner, kind) }
    }

    /// Whether frames in an application's memory may get there: nobody else looks at them.
    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        matches!(self.kind, Kind::Drop(..) | Kind::Socket(_))
    }
}

/// All but the drops, in order.
pub(crate) const EXITS: [Exit; Exit::Drops as usize] =
    *Exit::VARIANTS.first_chunk().expect("all but drops");
/// Targets of one port.
pub(crate) const STRIDE: u32 = (EXITS.len() + DropReason::ALL.len()) as u32;
const _: () =
    assert!(DropReason::ALL.len() <= u32::BITS as usize, "a word has a bit for each reason");
