//! The table of targets: the target of each exit of each port in a configuration. [`crate::admit`]
//! decides which frames they take.

use crate::admit::plain_max;
use crate::counters::DropReason;
use crate::numbers::PortId;
use crate::snapshot::{Port, Snapshot, Upper};
use crate::target::{Check, EXITS, Exit, Kind, Owner, Prepare, STRIDE, Side, Target, TargetId};

/// The target for the program of a devmap entry, on the way to port `to`.
pub(crate) fn entry(id: TargetId, to: &Port, number: u32) -> Target {
    let open = Target::open(id, Owner::of(to.id), Kind::EntryHook(number));
    Target { plain_max: plain_max(to), check: Check::Redirect, ..open }
}

/// The targets of all ports and of `sockets` sockets.
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
        assert_eq!(id.index(), table.len(), "targets are dense");
        let open = Target::open(id, Owner::NOBODY, Kind::Socket(place));
        table.push(Target { prepare: Prepare::Socket, ..open });
    }
    table.into()
}

fn add_port(table: &mut Vec<Target>, owner: Owner, port: Option<&Port>) {
    assert_eq!(owner.target(Exit::Xmit).index(), table.len(), "targets are dense");
    let drop = |id, why, side| Target::open(id, owner, Kind::Drop(why, side));
    let gone = |exit| drop(owner.target(exit), DropReason::Removed, Side::Tx);
    table.extend(EXITS.map(|exit| port.map_or(gone(exit), |port| of_port(owner, port, exit))));
    table.extend(DropReason::ALL.map(|why| drop(owner.drops(why), why, Side::Rx)));
}

/// The target of one exit of a port.
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
        Exit::Upper => Target::at_once(id, owner, upper_kind(port)),
        Exit::BondTx => {
            let bond = port.member.map_or(port.id, |member| member.bond);
            Target::at_once(id, owner, Kind::BondTx { bond })
        }
        Exit::TxVerdict | Exit::Drops => drops(DropReason::Verdict),
        Exit::EntryVerdict => drops(DropReason::EntryVerdict),
        Exit::NoEntryProgram => drops(DropReason::BadTarget),
    }
}

/// The kind of a port's [`Exit::Upper`].
fn upper_kind(port: &Port) -> Kind {
    match port.upper {
        Upper::Bridge(index) => Kind::Bridge(index as u32),
        Upper::Bond(bond) => Kind::Member { bond, then: port.passed },
        Upper::None | Upper::Port(_) => Kind::Drop(DropReason::NoUpper, Side::Rx),
    }
}
