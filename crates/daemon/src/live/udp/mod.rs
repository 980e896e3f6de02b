//! UDP for AF_XDP sockets: bound addresses and ports, and routes to destinations.
//!
//! A built-in program at the end of a port's `rx` hook delivers the datagrams for bound addresses
//! to their sockets ([`Steering`]). It is attached while something is bound on the port, and never
//! replaces another program. Where the port has a shadow, sockets of the host keep the addresses
//! and ports from the host's applications.

mod reservation;
mod route;
mod steering;
mod table;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use towpath_engine::{Config, Error, Hook, Link};
use towpath_host::{Outcome, Resolver};
use towpath_xdp::host::Live;
use towpath_xsk::Errno;
use towpath_xsk::protocol::Route;

use self::reservation::{Interface, reserve};
pub(super) use self::steering::{Steering, UDP_LINK};
pub(super) use self::table::Claim;
pub(crate) use self::table::Listed;
use self::table::{At, Table};

/// The bindings of all ports, and the host's tables.
#[derive(Debug)]
pub(super) struct Udp {
    /// Ports with bindings, by ifindex. Locked within changes of the engine, never the other way
    /// round.
    ports: Mutex<BTreeMap<u32, Bound>>,
    tables: Arc<Live>,
    host: RwLock<HostView>,
    /// Started for the first route; `None` if that failed.
    resolver: OnceLock<Option<Resolver>>,
}

/// The parts of the running host's state on which bindings depend.
#[derive(Debug, Default)]
struct HostView {
    /// Whether the tables are its own, not configured ones.
    is_running: bool,
    /// Its interfaces that represent ports: names by ifindex.
    shadows: BTreeMap<u32, String>,
}

/// A port's bindings and its program.
#[derive(Debug)]
struct Bound {
    table: Table,
    steering: Steering,
    /// Whether wildcards are only for the host's own addresses.
    own_only: bool,
}

/// A request to bind an address, after the checks that need no lock.
#[derive(Debug)]
pub(super) struct Request {
    ifindex: u32,
    claim: Claim,
    address: SocketAddr,
    /// The host's interface for the port, on which addresses are reserved.
    shadow: Option<Interface>,
    own_only: bool,
}

impl Request {
    pub(super) fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

impl Udp {
    pub(super) fn new(tables: &Arc<Live>) -> Udp {
        Udp {
            ports: Mutex::default(),
            tables: Arc::clone(tables),
            host: RwLock::default(),
            resolver: OnceLock::new(),
        }
    }

    /// The host's tables.
    pub(super) fn tables(&self) -> &Arc<Live> {
        &self.tables
    }

    pub(super) fn follow_host(&self, is_running: bool, shadows: BTreeMap<u32, String>) {
        let before = std::mem::replace(&mut *self.host.write(), HostView { is_running, shadows });
        if before.is_running != is_running {
            for (ifindex, bound) in self.ports.lock().iter_mut() {
                bound.limit_wildcards(self.is_own_only(*ifindex));
            }
        }
    }

    /// Whether wildcards on a port are only for the host's own addresses: the host has a shadow of
    /// the port or addresses on it, and the tables have routes to the addresses, by which the
    /// program knows them. Configured tables have no such routes.
    fn is_own_only(&self, ifindex: u32) -> bool {
        let host = self.host.read();
        let tables = self.tables.current();
        let has_address = || tables.interface(ifindex).is_some_and(|it| !it.addresses.is_empty());
        host.is_running && (host.shadows.contains_key(&ifindex) || has_address())
    }

    /// The program's link, while the port has bindings.
    pub(super) fn link(&self, ifindex: u32) -> Option<Link> {
        self.ports.lock().get(&ifindex).map(|bound| bound.steering.link().clone())
    }

    /// All bindings.
    pub(super) fn all(&self) -> Vec<Listed> {
        self.ports.lock().values().flat_map(|bound| bound.table.all()).collect()
    }

    /// Checks the address of a request: it must be one of the host's on the port, or a wildcard.
    pub(super) fn request(
        &self,
        ifindex: u32,
        claim: Claim,
        address: SocketAddr,
    ) -> Result<Request, Errno> {
        let tables = self.tables.current();
        let own = tables.interface(ifindex).map_or(&[][..], |interface| &interface.addresses);
        // Addresses of services are often on the loopback interface.
        let loopback = tables.interface(LOOPBACK).map_or(&[][..], |it| &it.addresses);
        let mut services = loopback.iter().filter(|address| !address.is_loopback());
        let ip = address.ip();
        let is_own = own.contains(&ip) || services.any(|service| *service == ip);
        if !ip.is_unspecified() && (!is_own || route::is_for_many(ip)) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let shadow = self.host.read().shadows.get(&ifindex).cloned();
        let shadow = shadow.map(|name| Interface { ifindex, name });
        let own_only = self.is_own_only(ifindex);
        Ok(Request { ifindex, claim, address, shadow, own_only })
    }

    /// Binds an address, and returns the UDP port; `None` if the port of the daemon does not have
    /// the program.
    pub(super) fn bind(&self, request: &Request) -> Option<Result<u16, Errno>> {
        let mut ports = self.ports.lock();
        ports.get_mut(&request.ifindex).map(|bound| bound.bind(request))
    }

    /// Attaches the program to a port that does not have it yet.
    pub(super) fn attach(
        &self,
        config: &mut Config,
        ifindex: u32,
        steering: Steering,
    ) -> Result<(), Error> {
        let mut ports = self.ports.lock();
        let Some(port) = config.port_of_ifindex(ifindex).filter(|_| !ports.contains_key(&ifindex))
        else {
            return Ok(());
        };
        let mut links = config.links(port, Hook::Rx)?.to_vec();
        links.retain(|link| link.id != UDP_LINK);
        links.push(steering.link().clone());
        config.set_links(port, Hook::Rx, links)?;
        ports.insert(ifindex, Bound { table: Table::default(), steering, own_only: false });
        Ok(())
    }

    /// Ends a binding; returns whether it was the last one on its port of the daemon.
    pub(super) fn unbind(
        &self,
        ifindex: u32,
        socket: u32,
        address: SocketAddr,
    ) -> Result<bool, Errno> {
        let mut ports = self.ports.lock();
        let bound = ports.get_mut(&ifindex).ok_or(Errno::NOENT)?;
        bound.remove(socket, (address.port(), address.ip())).ok_or(Errno::NOENT)?;
        Ok(bound.table.is_empty())
    }

    /// Ends new connections of a QUIC server: its sockets get only packets that name it.
    pub(super) fn drain(
        &self,
        ifindex: u32,
        socket: u32,
        address: SocketAddr,
    ) -> Result<(), Errno> {
        let mut ports = self.ports.lock();
        let bound = ports.get_mut(&ifindex).ok_or(Errno::NOENT)?;
        bound.drain(socket, (address.port(), address.ip()))
    }

    /// Ends all bindings of closed sockets.
    pub(super) fn close(&self, sockets: impl Iterator<Item = u32>) {
        let mut ports = self.ports.lock();
        if !ports.is_empty() {
            for socket in sockets {
                ports.values_mut().for_each(|bound| bound.close(socket));
            }
        }
    }

    /// Detaches the program from ports without bindings.
    pub(super) fn drop_unused(&self, config: &mut Config) {
        self.ports.lock().retain(|&ifindex, bound| {
            let is_used = !bound.table.is_empty();
            if !is_used && let Some(port) = config.port_of_ifindex(ifindex) {
                let links = config.links(port, Hook::Rx).unwrap_or_default();
                let others = links.iter().filter(|link| link.id != UDP_LINK).cloned();
                let others = others.collect();
                // The removal of a program is never refused.
                let _set = config.set_links(port, Hook::Rx, others);
            }
            is_used
        });
    }

    /// Forgets a port that is gone, with its program.
    pub(super) fn forget_port(&self, ifindex: u32) {
        self.ports.lock().remove(&ifindex);
    }

    /// The way to a destination by a port with this Ethernet address and MTU.
    pub(super) fn route(
        &self,
        ifindex: u32,
        (mac, mtu): ([u8; 6], u32),
        destination: IpAddr,
    ) -> Result<Route, Errno> {
        let way = route::find(&self.tables.current(), ifindex, destination)?;
        // The stack sees none of the application's packets, so it is told of each use.
        let outcome = self.use_neighbour(ifindex, way.next_hop);
        let next_hop_mac = way.mac.ok_or(match outcome {
            Outcome::Pending => Errno::AGAIN,
            Outcome::Failed | Outcome::Refused(_) => Errno::HOSTUNREACH,
        })?;
        // Neighbours know the address of the interface, if there is one.
        let is_usable = way.source_mac != [0; 6] && way.source_mac[0] & 1 == 0;
        let source_mac = if is_usable { way.source_mac } else { mac };
        let learned = self.resolver().and_then(|it| it.path_mtu(ifindex, destination));
        let mtu = way.mtu.min(mtu).min(learned.unwrap_or(u32::MAX));
        Ok(Route { source_mac, next_hop_mac, mtu, source: way.source })
    }

    fn use_neighbour(&self, ifindex: u32, address: IpAddr) -> Outcome {
        let unavailable = Outcome::Refused(Errno::NETUNREACH.raw_os_error());
        self.resolver().map_or(unavailable, |resolver| resolver.use_neighbour(ifindex, address))
    }

    /// The resolver, if the tables are those of the running host.
    fn resolver(&self) -> Option<&Resolver> {
        if !self.host.read().is_running {
            return None;
        }
        let start = || match Resolver::start() {
            Ok(resolver) => Some(resolver),
            Err(error) => {
                tracing::warn!("neighbours of UDP sockets can't be resolved: {error}");
                None
            }
        };
        self.resolver.get_or_init(start).as_ref()
    }
}

impl Bound {
    fn bind(&mut self, request: &Request) -> Result<u16, Errno> {
        let claim = &request.claim;
        self.limit_wildcards(request.own_only);
        let (port, reservation) = self.choose(request)?;
        let at = (port, request.address.ip());
        let slot = self.table.add(claim, at, reservation)?;
        let put = self.steering.put(slot, claim.socket);
        if let Err(errno) = put.and_then(|()| self.write(at, claim.queue)) {
            self.remove(claim.socket, at);
            return Err(errno);
        }
        Ok(port)
    }

    /// Checks the requested port, or chooses one, and reserves it.
    fn choose(&self, request: &Request) -> Result<(u16, Option<UdpSocket>), Errno> {
        let Request { claim, address, .. } = request;
        let reserve = || match &request.shadow {
            Some(shadow) => reserve(shadow, *address, claim.shares),
            None => Ok(None),
        };
        let at = (address.port(), address.ip());
        if address.port() != 0 {
            self.table.check(claim, at)?;
            let reservation = if self.table.owns(claim.group, at) { None } else { reserve()? };
            return Ok((address.port(), reservation.map(|(_, socket)| socket)));
        }
        for _ in 0..PORT_TRIES {
            let Some((port, socket)) = reserve()? else { break };
            if self.table.check(claim, (port, address.ip())).is_ok() {
                return Ok((port, Some(socket)));
            }
        }
        let random = RandomState::new().hash_one(claim.socket);
        Ok((self.table.free_port(claim, address.ip(), random)?, None))
    }

    /// Sets whether wildcards are only for the host's own addresses.
    fn limit_wildcards(&mut self, own_only: bool) {
        if self.own_only != own_only {
            self.own_only = own_only;
            for (at, queue) in self.table.wildcards() {
                // An entry that is there needs no memory.
                let _written = self.write(at, queue);
            }
        }
    }

    fn close(&mut self, socket: u32) {
        for at in self.table.bound(socket) {
            self.remove(socket, at);
        }
        if self.table.free_slot(socket).is_some() {
            self.steering.forget(socket);
        }
    }

    /// Removes a binding from the table and the program's map.
    fn remove(&mut self, socket: u32, at: At) -> Option<()> {
        let (queue, server) = self.table.remove(socket, at)?;
        // Fewer sockets in an entry, or none, need no memory.
        let _written = self.write(at, queue);
        if let Some(server) = server {
            self.steering.forget_server(at, queue, server);
        }
        Some(())
    }

    fn drain(&mut self, socket: u32, at: At) -> Result<(), Errno> {
        let queues = self.table.drain(socket, at)?;
        queues.into_iter().try_for_each(|queue| self.write(at, queue))
    }

    fn write(&self, at: At, queue: u32) -> Result<(), Errno> {
        let members = self.table.members(at, queue);
        self.steering.set(at, queue, members.as_ref(), self.own_only)
    }
}

/// Maximum number of attempts to find a UDP port that is free in the host's stack and here.
const PORT_TRIES: u32 = 8;
/// Ifindex of the host's loopback interface.
const LOOPBACK: u32 = 1;
