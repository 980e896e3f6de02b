//! The bound UDP addresses of one port, by the rules of `bind`.
//!
//! An address and port has one owner, a group of sockets on different queues, unless all its owners
//! are of one user and share it (`SO_REUSEPORT`). A wildcard address conflicts with every address
//! of its family. Groups of QUIC servers have server IDs, by which their packets reach them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use towpath_xsk::Errno;
use towpath_xsk::protocol::ServerId;

/// An address and port.
pub(super) type At = (u16, IpAddr);

/// The socket that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The socket's number.
    pub(crate) socket: u32,
    /// The effective user ID of its application.
    pub(crate) user: u32,
    /// The socket's queue.
    pub(crate) queue: u32,
    /// The group of sockets that it belongs to.
    pub(crate) group: u64,
    /// Whether other groups of the same user may bind the same address and port.
    pub(crate) shares: bool,
    /// The server ID in the connection IDs of the group.
    pub(crate) server: Option<ServerId>,
}

/// The bindings of a port.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The owners of each address and port.
    bindings: BTreeMap<At, BTreeMap<u64, Group>>,
    /// The socket of each slot. It keeps the slot until it is closed: a worker may still use the
    /// slot of a binding that is gone.
    slots: Vec<Option<u32>>,
    /// Number of entries in the program's map: one for each address, port and queue.
    entries: usize,
    /// Number of sockets of bindings with server IDs.
    servers: usize,
}

/// An owner of an address and port.
#[derive(Debug)]
struct Group {
    shares: bool,
    user: u32,
    server: Option<ServerId>,
    /// It takes no new connections, only packets with its server ID.
    is_draining: bool,
    /// Queues of its sockets.
    members: BTreeMap<u32, u32>,
    /// Keeps the address and port from the host's own sockets.
    _reservation: Option<UdpSocket>,
}

impl Table {
    /// Whether nothing is bound.
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// Whether a group has this address and port.
    pub(super) fn owns(&self, group: u64, at: At) -> bool {
        self.bindings.get(&at).is_some_and(|groups| groups.contains_key(&group))
    }

    /// Fails with `EADDRINUSE` if a socket may not bind an address and port, with `EEXIST` if
    /// another group has its server ID there, and with `EINVAL` if its group has another one.
    pub(super) fn check(&self, claim: &Claim, at: At) -> Result<(), Errno> {
        let (port, address) = at;
        let taken = |other: IpAddr, group: u64, there: &Group| {
            let is_own = other == address && group == claim.group;
            if other == address && there.members.contains_key(&claim.socket) {
                return true;
            }
            let is_apart = is_own && there.members.values().all(|queue| *queue != claim.queue);
            !(is_apart || there.shares && claim.shares && there.user == claim.user)
        };
        let first = (port, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let last = (port, IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));
        let same_port = self.bindings.range(first..=last);
        let mut groups = same_port
            .filter(|((_, other), _)| overlap(*other, address))
            .flat_map(|((_, other), groups)| groups.iter().map(|it| (*other, it)));
        match groups.any(|(other, (group, there))| taken(other, *group, there)) {
            true => Err(Errno::ADDRINUSE),
            false => self.check_server(claim, at),
        }
    }

    fn check_server(&self, claim: &Claim, at: At) -> Result<(), Errno> {
        for (group, there) in self.bindings.get(&at).into_iter().flatten() {
            if *group == claim.group && there.server != claim.server {
                return Err(Errno::INVAL);
            }
            if *group != claim.group && claim.server.is_some() && there.server == claim.server {
                return Err(Errno::EXIST);
            }
        }
        Ok(())
    }

    /// Finds a port that may be bound, in the usual range of ports for clients. `random` decides
    /// where the search begins.
    pub(super) fn free_port(
        &self,
        claim: &Claim,
        address: IpAddr,
        random: u64,
    ) -> Result<u16, Errno> {
        let start = random % u64::from(CLIENT_PORTS);
        let ports = (0..CLIENT_PORTS).map(|step| {
            let place = (start as u16).wrapping_add(step) % CLIENT_PORTS;
            FIRST_CLIENT_PORT + place
        });
        let mut free = ports.filter(|port| self.check(claim, (*port, address)).is_ok());
        free.next().ok_or(Errno::ADDRINUSE)
    }

    /// Adds a binding that was checked; gives the socket's slot.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if there are too many bindings or sockets.
    pub(super) fn add(
        &mut self,
        claim: &Claim,
        at: At,
        reservation: Option<UdpSocket>,
    ) -> Result<u16, Errno> {
        let sockets = self.sockets(at, claim.queue).count();
        let is_full = match sockets {
            0 => self.entries >= ENTRIES_MAX,
            sockets => sockets >= MEMBERS_MAX,
        };
        if is_full || claim.server.is_some() && self.servers >= SERVERS_MAX {
            return Err(Errno::NOBUFS);
        }
        let slot = self.take_slot(claim.socket).ok_or(Errno::NOBUFS)?;
        let groups = self.bindings.entry(at).or_default();
        let group = groups.entry(claim.group).or_insert_with(|| Group {
            shares: claim.shares,
            user: claim.user,
            server: claim.server,
            is_draining: false,
            members: BTreeMap::new(),
            _reservation: reservation,
        });
        group.shares &= claim.shares;
        group.members.insert(claim.socket, claim.queue);
        self.entries += usize::from(sockets == 0);
        self.servers += usize::from(claim.server.is_some());
        Ok(slot)
    }

    /// Ends a binding of a socket; gives the socket's queue and its group's server ID.
    pub(super) fn remove(&mut self, socket: u32, at: At) -> Option<(u32, Option<ServerId>)> {
        let groups = self.bindings.get_mut(&at)?;
        let (queue, server) = groups
            .values_mut()
            .find_map(|group| Some((group.members.remove(&socket)?, group.server)))?;
        groups.retain(|_, group| !group.members.is_empty());
        let mut queues = groups.values().flat_map(|group| group.members.values());
        self.entries -= usize::from(queues.all(|other| *other != queue));
        self.servers -= usize::from(server.is_some());
        if groups.is_empty() {
            self.bindings.remove(&at);
        }
        Some((queue, server))
    }

    /// Ends new connections of a socket's group at an address and port; gives the queues of its
    /// sockets.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the socket has no such binding, `EINVAL` if its group has no server ID.
    pub(super) fn drain(&mut self, socket: u32, at: At) -> Result<Vec<u32>, Errno> {
        let mut groups = self.bindings.get_mut(&at).into_iter().flat_map(BTreeMap::values_mut);
        let group = groups.find(|group| group.members.contains_key(&socket));
        let group = group.ok_or(Errno::NOENT)?;
        if group.server.is_none() {
            return Err(Errno::INVAL);
        }
        group.is_draining = true;
        Ok(group.members.values().copied().collect())
    }

    /// Frees the slot of a closed socket.
    pub(super) fn free_slot(&mut self, socket: u32) -> Option<u16> {
        let slot = self.slot(socket)?;
        self.slots[slot] = None;
        Some(slot as u16)
    }

    /// All addresses and ports that a socket has bound.
    pub(super) fn bound(&self, socket: u32) -> Vec<At> {
        let has = |groups: &BTreeMap<u64, Group>| {
            groups.values().any(|group| group.members.contains_key(&socket))
        };
        let bound = self.bindings.iter().filter(|(_, groups)| has(groups));
        bound.map(|(at, _)| *at).collect()
    }

    /// Every binding of every socket.
    pub(super) fn all(&self) -> impl Iterator<Item = Listed> {
        self.bindings.iter().flat_map(|((port, address), groups)| {
            let address = SocketAddr::new(*address, *port);
            let members =
                groups.values().flat_map(|group| group.members.keys().map(move |it| (group, it)));
            members.map(move |(group, socket)| Listed {
                socket: *socket,
                address,
                server: group.server,
                is_draining: group.is_draining,
            })
        })
    }

    /// Bound wildcards, with each of their queues.
    pub(super) fn wildcards(&self) -> BTreeSet<(At, u32)> {
        let wild = self.bindings.iter().filter(|((_, address), _)| address.is_unspecified());
        let queues = |groups: &BTreeMap<u64, Group>| {
            let members = groups.values().flat_map(|group| group.members.values().copied());
            members.collect::<Vec<u32>>()
        };
        wild.flat_map(|(at, groups)| queues(groups).into_iter().map(|queue| (*at, queue))).collect()
    }

    /// The sockets on a queue that share an address and port, with their groups.
    fn sockets(&self, at: At, queue: u32) -> impl Iterator<Item = (&Group, u16)> {
        let groups = self.bindings.get(&at).into_iter().flat_map(BTreeMap::values);
        let all = groups.flat_map(|group| group.members.iter().map(move |it| (group, it)));
        let here = all.filter(move |(_, (_, of))| **of == queue);
        here.filter_map(|(group, (socket, _))| Some((group, self.slot(*socket)? as u16)))
    }

    /// The sockets on a queue that share an address and port; `None` if there is none.
    pub(super) fn members(&self, at: At, queue: u32) -> Option<Members> {
        let mut sockets = self.sockets(at, queue).peekable();
        sockets.peek()?;
        let mut members = Members::default();
        for (group, slot) in sockets {
            members.accepting.extend((!group.is_draining).then_some(slot));
            members.servers.extend(group.server.map(|server| (server, slot)));
        }
        Some(members)
    }

    fn slot(&self, socket: u32) -> Option<usize> {
        self.slots.iter().position(|slot| *slot == Some(socket))
    }

    fn take_slot(&mut self, socket: u32) -> Option<u16> {
        let there = self.slot(socket).or_else(|| self.slots.iter().position(Option::is_none));
        let slot = there.unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            if slot >= SOCKETS_MAX {
                return None;
            }
            self.slots.push(None);
        }
        self.slots[slot] = Some(socket);
        Some(slot as u16)
    }
}

/// A binding of a socket, to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The socket's number.
    pub(crate) socket: u32,
    address: SocketAddr,
    server: Option<ServerId>,
    is_draining: bool,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        let Some(server) = self.server else { return Ok(()) };
        let [first, high, low] = server.prefix();
        let draining = if self.is_draining { ", draining" } else { "" };
        write!(f, " (server ID {first:02x}{high:02x}{low:02x}{draining})")
    }
}

/// The slots of the sockets on a queue that share an address and port.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// Sockets that take new flows.
    pub(super) accepting: Vec<u16>,
    /// Sockets with server IDs.
    pub(super) servers: Vec<(ServerId, u16)>,
}

/// Whether both addresses are the same, or one is the wildcard of the other's family.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    one == other
        || one.is_ipv4() == other.is_ipv4() && (one.is_unspecified() || other.is_unspecified())
}

/// Largest number of addresses, ports and queues that are bound on a port (`BINDINGS_MAX`).
pub(super) const ENTRIES_MAX: usize = 4096;
/// Largest number of sockets of bindings with server IDs on a port (`SERVERS_MAX`).
pub(super) const SERVERS_MAX: usize = 4096;
/// Largest number of sockets with bindings on a port (`SOCKETS_MAX`).
pub(super) const SOCKETS_MAX: usize = 1024;
/// Largest number of sockets that share an address and port on a queue (`MEMBERS_MAX`).
pub(super) const MEMBERS_MAX: usize = 64;
/// Linux's default range (`net.ipv4.ip_local_port_range`).
const FIRST_CLIENT_PORT: u16 = 32768;
const CLIENT_PORTS: u16 = 60999 - FIRST_CLIENT_PORT + 1;

#[cfg(test)]
mod tests;
