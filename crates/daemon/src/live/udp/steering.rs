//! The program that delivers UDP datagrams to sockets, and its maps.

use std::net::IpAddr;
use std::sync::Arc;

use towpath_bpf::{Env, Object};
use towpath_engine::Link;
use towpath_maps::{Map, Value};
use towpath_xdp::program::Select;
use towpath_xdp::{LoadOptions, Program};
use towpath_xsk::Errno;
use towpath_xsk::protocol::ServerId;

use super::table::{At, MEMBERS_MAX, Members};

/// The program of one port.
#[derive(Debug)]
pub(crate) struct Steering {
    link: Link,
    bindings: Arc<Map>,
    servers: Arc<Map>,
    sockets: Arc<Map>,
}

impl Steering {
    /// Loads the program.
    pub(crate) fn load(options: &LoadOptions) -> Result<Steering, Errno> {
        let object = Object::open(OBJECT, "udp_steer.o").map_err(|_damaged| Errno::NOEXEC)?;
        let program = Program::load(&object, Select::Only, &Env::builtin(), options);
        let program = program.map_err(|_no_memory| Errno::NOMEM)?;
        let map = |name| program.maps().by_name(name).cloned().ok_or(Errno::NOEXEC);
        let bindings = map("bindings")?;
        let (servers, sockets) = (map("servers")?, map("udp_sockets")?);
        let mut link = Link::new(program, UDP_LINK, options.workers);
        link.priority = PRIORITY;
        Ok(Steering { link, bindings, servers, sockets })
    }

    /// The link to attach.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Puts a socket into a slot.
    pub(super) fn put(&self, slot: u16, socket: u32) -> Result<(), Errno> {
        let value = Value::One(socket.to_ne_bytes().to_vec());
        store(&self.sockets, &u32::from(slot).to_ne_bytes(), &value)
    }

    /// Clears the slots of a socket.
    pub(super) fn forget(&self, socket: u32) {
        self.sockets.forget(socket);
    }

    /// Stores which sockets share a binding on a queue; `None` ends the binding.
    pub(super) fn set(
        &self,
        at: At,
        queue: u32,
        members: Option<&Members>,
        own_only: bool,
    ) -> Result<(), Errno> {
        let key = key(at, queue);
        let Some(Members { accepting, servers }) = members else {
            return remove(&self.bindings, &key);
        };
        assert!(accepting.len() <= MEMBERS_MAX, "the table has limits");
        // A connection ID that names a socket must find it as soon as the socket uses it.
        for (server, slot) in servers {
            let slot = Value::One(u32::from(*slot).to_ne_bytes().to_vec());
            store(&self.servers, &server_key(at, queue, *server), &slot)?;
        }
        let mut flags = if own_only { OWN_ONLY } else { 0 };
        flags |= if servers.is_empty() { 0 } else { QUIC };
        let mut value = vec![0; 2 * (2 + MEMBERS_MAX)];
        let words = [accepting.len() as u16, flags];
        let words = words.into_iter().chain(accepting.iter().copied());
        for (bytes, word) in value.chunks_exact_mut(2).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        store(&self.bindings, &key, &Value::One(value))
    }

    /// Ends delivery by a server ID on a queue.
    pub(super) fn forget_server(&self, at: At, queue: u32, server: ServerId) {
        // A removal needs no memory.
        let _removed = remove(&self.servers, &server_key(at, queue, server));
    }
}

fn remove(map: &Map, key: &[u8]) -> Result<(), Errno> {
    match map.user().delete(key) {
        Ok(()) | Err(towpath_bpf::Errno::ENOENT) => Ok(()),
        Err(errno) => Err(Errno::from_raw_os_error(errno.0)),
    }
}

fn store(map: &Map, key: &[u8], value: &Value) -> Result<(), Errno> {
    map.user().update(key, value, 0).map_err(|errno| Errno::from_raw_os_error(errno.0))
}

/// A `struct binding_key`.
fn key((port, address): At, queue: u32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) if address.is_unspecified() => (AF_INET, [0; 16]),
        IpAddr::V4(address) => (AF_INET, address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => (AF_INET6, address.octets()),
    };
    let mut key = octets.to_vec();
    key.extend(port.to_be_bytes());
    key.extend(family.to_ne_bytes());
    key.extend(queue.to_ne_bytes());
    key
}

/// A `struct server_key`.
fn server_key(at: At, queue: u32, server: ServerId) -> Vec<u8> {
    let mut key = key(at, queue);
    key.extend(server.prefix());
    key.push(0);
    key
}

/// Id of the program's link; ids of other links never get this high.
pub(crate) const UDP_LINK: u32 = u32::MAX - 1;
/// Priority of the program: it runs after all other programs, on the frames that they pass.
const PRIORITY: u32 = u32::MAX;
/// `BINDING_OWN_ONLY`
const OWN_ONLY: u16 = 1;
/// `BINDING_QUIC`
const QUIC: u16 = 2;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Made by `scripts/build-programs.sh --clang clang-19 --ship --out crates/daemon/src/live/udp
/// udp_steer`.
const OBJECT: &[u8] = include_bytes!("udp_steer.o");
