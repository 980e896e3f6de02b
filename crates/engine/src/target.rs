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
use towpath_xdp::Frame;

use crate::counters::DropReason;
use crate::snapshot::{Port, PortId, Snapshot, Upper};

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
    /// The socket of that place in [`Snapshot::sockets`].
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
    fn at_once(id: TargetId, owner: Owner, kind: Kind) -> Target {
        Target { plain_max: 0, ..Target::open(id, owner, kind) }
    }

    /// The program of an entry of a devmap, on the way to a port.
    pub(crate) fn entry(id: TargetId, to: &Port, number: u32) -> Target {
        let open = Target::open(id, Owner::of(to.id), Kind::EntryHook(number));
        Target { plain_max: plain_max(to), check: Check::Redirect, ..open }
    }

    /// Whether frames in an application's memory may get there: nobody else looks at them.
    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        matches!(self.kind, Kind::Drop(..) | Kind::Socket(_))
    }

    /// Whether it takes a frame.
    pub(crate) fn admit(&self, snapshot: &Snapshot, frame: &Frame) -> Result<(), DropReason> {
        if self.check == Check::Nothing {
            return Ok(());
        }
        let port = self.owner.port().and_then(|port| snapshot.port(port));
        match admit(port.ok_or(DropReason::Removed)?, frame) {
            Err(DropReason::Unsupported) if self.check == Check::Forward => Ok(()),
            admitted => admitted,
        }
    }
}

/// Whether a port takes a redirected frame (`xdp_ok_fwd_dev`, `__xdp_enqueue`).
fn admit(to: &Port, frame: &Frame) -> Result<(), DropReason> {
    if to.is_shut {
        return Err(DropReason::NoProgram);
    }
    if !to.is_target && !to.up {
        return Err(DropReason::Down);
    }
    let is_gso = frame.offload().is_some_and(|offload| offload.gso.is_some());
    if frame.len() > bytes_max(to) && !is_gso {
        return Err(DropReason::TooLong);
    }
    if !to.is_target || frame.has_frags() && !to.features.tx_frags && !is_gso {
        return Err(DropReason::Unsupported);
    }
    Ok(())
}

/// Bytes of the longest frame a port sends.
fn bytes_max(to: &Port) -> usize {
    to.mtu as usize + ETH_HLEN + VLAN_HLEN
}

/// Bytes of the longest linear frame that it takes without a further look.
fn plain_max(to: &Port) -> u32 {
    if to.is_target { u32::try_from(bytes_max(to)).unwrap_or(u32::MAX) } else { 0 }
}

/// The targets of all ports and of so many sockets.
pub(crate) fn table(snapshot: &Snapshot, sockets: usize) -> Box<[Target]> {
    let ports = snapshot.ports.len();
    let mut table = Vec::with_capacity((ports + 1) * STRIDE as usize + sockets);
    add_port(&mut table, Owner::NOBODY, None);
    table[TargetId::BROADCAST.index()] =
        Target::at_once(TargetId::BROADCAST, Owner::NOBODY, Kind::Broadcast);
    for (number, port) in (0..).zip(&snapshot.ports) {
        add_port(&mut table, Owner::of(PortId(number)), port.as_deref());
    }
    for place in 0..sockets as u32 {
        let id = TargetId::socket(ports, place);
        debug_assert_eq!(id.index(), table.len(), "targets are dense");
        let open = Target::open(id, Owner::NOBODY, Kind::Socket(place));
        table.push(Target { prepare: Prepare::Socket, ..open });
    }
    table.into()
}

fn add_port(table: &mut Vec<Target>, owner: Owner, port: Option<&Port>) {
    debug_assert_eq!(owner.target(Exit::Xmit).index(), table.len(), "targets are dense");
    let drop = |id, why, side| Target::open(id, owner, Kind::Drop(why, side));
    let gone = |exit| drop(owner.target(exit), DropReason::Removed, Side::Tx);
    table.extend(EXITS.map(|exit| port.map_or(gone(exit), |port| of_port(owner, port, exit))));
    table.extend(DropReason::ALL.map(|why| drop(owner.drops(why), why, Side::Rx)));
}

/// One of a port's targets: the table's row for a port.
fn of_port(owner: Owner, port: &Port, exit: Exit) -> Target {
    let id = owner.target(exit);
    let wire = if port.bond.is_some() { Kind::Bond } else { Kind::Wire };
    let guest = if port.guest_rx.is_some() { Kind::GuestHook } else { wire };
    let (next, kind) = match (port.watches_tx(), guest) {
        (true, _) => (Exit::Send, Kind::TxHook),
        (false, Kind::GuestHook) => (Exit::Guest, guest),
        (false, _) => (Exit::Xmit, wire),
    };
    let sends = |check, plain_max| {
        let (queue, prepare) = (owner.target(next), Prepare::Port);
        Target { plain_max, queue, owner, check, prepare, kind }
    };
    let drops = |why| Target::open(id, owner, Kind::Drop(why, Side::Tx));
    match exit {
        Exit::Xmit => Target { prepare: Prepare::Port, ..Target::open(id, owner, wire) },
        Exit::Guest if guest == wire => {
            let queue = owner.target(Exit::Xmit);
            Target { prepare: Prepare::Port, queue, ..Target::open(id, owner, wire) }
        }
        Exit::Guest => Target::open(id, owner, guest),
        Exit::Arrive => Target::open(id, owner, Kind::Arrive),
        Exit::Receive => Target::open(id, owner, Kind::RxHook),
        Exit::Send => sends(Check::Nothing, u32::MAX),
        Exit::Redirect => sends(Check::Redirect, plain_max(port)),
        Exit::Forward => sends(Check::Forward, plain_max(port)),
        Exit::Upper => Target::at_once(id, owner, port.upper_kind()),
        Exit::BondTx => {
            let bond = port.member.map_or(port.id, |member| member.bond);
            Target::at_once(id, owner, Kind::BondTx { bond })
        }
        Exit::TxVerdict | Exit::Drops => drops(DropReason::Verdict),
        Exit::EntryVerdict => drops(DropReason::EntryVerdict),
        Exit::NoEntryProgram => drops(DropReason::BadTarget),
    }
}

impl Port {
    /// What is above it, for ports where each frame is looked at.
    fn upper_kind(&self) -> Kind {
        match self.upper {
            Upper::Bridge(index) => Kind::Bridge(index as u32),
            Upper::Bond(bond) => Kind::Member { bond, then: self.passed },
            Upper::None | Upper::Port(_) => Kind::Drop(DropReason::NoUpper, Side::Rx),
        }
    }
}

/// All but the drops, in order.
const EXITS: [Exit; Exit::Drops as usize] = *Exit::VARIANTS.first_chunk().expect("all but drops");
/// Targets of one port.
const STRIDE: u32 = (EXITS.len() + DropReason::ALL.len()) as u32;
const ETH_HLEN: usize = 14;
const VLAN_HLEN: usize = 4;
