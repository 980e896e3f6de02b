//! The host's tables as of the last read, and the set of tables to read again.

use std::io;

use towpath_xdp::host::{Host, Interface, Neighbour};

use crate::Error;
use crate::interfaces::{self, Address};
use crate::neighbours::neighbour;
use crate::netlink::protocols::NETLINK_ROUTE;
use crate::netlink::{
    ADDRESSES, Dump, LINKS, Message, NEIGHBOURS, NEXTHOPS, ROUTES, Socket, Table,
};
use crate::nexthops::{self, Objects};
use crate::routes::{self, Found};

/// Tables that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stale {
    links: bool,
    addresses: bool,
    routes: bool,
    neighbours: bool,
}

impl Stale {
    pub(crate) const ALL: Stale =
        Stale { links: true, addresses: true, routes: true, neighbours: true };

    /// Marks the tables that a notification concerns.
    ///
    /// An interface that goes down removes IPv4 routes, and none of these removals is announced.
    pub(crate) fn mark(&mut self, message: &Message<'_>) {
        let family = message.body.first().copied().unwrap_or(0);
        match message.kind {
            RTM_NEWLINK..=RTM_DELLINK => *self = Stale::ALL,
            RTM_NEWADDR..=RTM_DELADDR => {
                (self.addresses, self.routes) = (true, true);
            }
            RTM_NEWROUTE..=RTM_DELROUTE | RTM_NEWNEXTHOP..=RTM_DELNEXTHOP => self.routes = true,
            // Bridges report their addresses in the same way, with another family.
            RTM_NEWNEIGH..=RTM_DELNEIGH => {
                self.neighbours |= family == AF_INET || family == AF_INET6;
            }
            RTM_NEWNETCONF..=RTM_DELNETCONF => self.links = true,
            _ => {}
        }
    }

    pub(crate) fn is_any(self) -> bool {
        self != Stale::default()
    }
}

/// The multicast groups whose messages [`Stale::mark`] handles, as bits (`RTNLGRP_* - 1`).
pub(crate) const GROUPS: u32 = 1 << 0 // LINK
    | 1 << 2 // NEIGH
    | 1 << 4 // IPV4_IFADDR
    | 1 << 6 // IPV4_ROUTE
    | 1 << 8 // IPV6_IFADDR
    | 1 << 10 // IPV6_ROUTE
    | 1 << 23 // IPV4_NETCONF
    | 1 << 24 // IPV6_NETCONF
    | 1 << 31; // NEXTHOP

/// Reads tables, and keeps them.
#[derive(Debug)]
pub(crate) struct Reader {
    socket: Socket,
    links: Read<Interface>,
    addresses: Read<Address>,
    routes: [Read<Found>; 2],
    objects: Objects,
    neighbours: Read<Neighbour>,
}

/// The entries of a table, and the number of unreadable ones.
#[derive(Debug)]
struct Read<T> {
    entries: Vec<T>,
    unreadable: usize,
}

impl Reader {
    pub(crate) fn open() -> io::Result<Reader> {
        Ok(Reader {
            socket: Socket::open(NETLINK_ROUTE, 0)?,
            links: Read::default(),
            addresses: Read::default(),
            routes: [Read::default(), Read::default()],
            objects: Objects::default(),
            neighbours: Read::default(),
        })
    }

    /// Reads the stale tables.
    pub(crate) fn read(&mut self, stale: Stale) -> Result<(), Error> {
        if stale.links {
            let parse = |body: &[u8]| interfaces::interface(body).map(Some);
            self.links = self.table(LINKS, AF_UNSPEC, parse)?;
        }
        if stale.addresses {
            self.addresses = self.table(ADDRESSES, AF_UNSPEC, interfaces::address)?;
        }
        if stale.routes {
            let objects = self.table(NEXTHOPS, AF_UNSPEC, |body| nexthops::object(body).map(Some));
            // Kernels before 5.3 have no such objects.
            self.objects = Objects::new(objects.map_or(Vec::new(), |objects| objects.entries));
            let v4 = self.table(ROUTES, AF_INET, routes::route)?;
            self.routes = [v4, self.table(ROUTES, AF_INET6, routes::route)?];
        }
        if stale.neighbours {
            self.neighbours = self.table(NEIGHBOURS, AF_UNSPEC, neighbour)?;
        }
        Ok(())
    }

    fn table<T>(
        &mut self,
        table: Table,
        family: u8,
        parse: impl Fn(&[u8]) -> Option<Option<T>>,
    ) -> Result<Read<T>, Error> {
        let failed = |source| Error::Read { what: table.what, source };
        let Dump { entries, unreadable } =
            self.socket.dump(table, family, parse).map_err(failed)?;
        Ok(Read { entries: entries.into_iter().flatten().collect(), unreadable })
    }

    /// The host that the tables describe.
    pub(crate) fn host(&self) -> Host {
        let mut interfaces = self.links.entries.clone();
        let addresses = &self.addresses.entries;
        interfaces::assign(&mut interfaces, addresses);
        let resolve =
            |routes: &Read<Found>| routes::resolve(&routes.entries, &self.objects, addresses);
        Host {
            interfaces,
            routes: self.routes.iter().flat_map(resolve).collect(),
            neighbours: self.neighbours.entries.clone(),
            // The kernel does not announce changes of sockets.
            sockets: Vec::new(),
        }
    }

    /// Number of entries that could not be parsed.
    pub(crate) fn unreadable(&self) -> usize {
        let routes: usize = self.routes.iter().map(|routes| routes.unreadable).sum();
        self.links.unreadable + self.addresses.unreadable + self.neighbours.unreadable + routes
    }
}

impl<T> Default for Read<T> {
    fn default() -> Read<T> {
        Read { entries: Vec::new(), unreadable: 0 }
    }
}

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
