//! The sockets of a stack by address and port, and how each is woken.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A socket's number in its stack.
pub(crate) type Number = u32;

/// A socket as its stack knows it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) number: Number,
    pub(crate) address: SocketAddr,
    pub(crate) receives: Signal,
    pub(crate) sends: Signal,
}

/// Wakes one direction of a socket.
#[derive(Debug)]
pub(crate) struct Signal {
    file: OwnedFd,
    /// Its owner sleeps, or will soon.
    is_armed: AtomicBool,
}

impl Signal {
    fn new() -> io::Result<Signal> {
        let file = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Signal { file, is_armed: AtomicBool::new(false) })
    }

    /// Makes the next [`Signal::ring`] wake the owner. The caller must look for work after this.
    pub(crate) fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Wakes the owner if it asked for it.
    pub(crate) fn ring(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            // A full counter is readable as well.
            let _full = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }

    /// Discards wake-ups that have already arrived.
    pub(crate) fn silence(&self) {
        let _none = rustix::io::read(&self.file, &mut [0; 8][..]);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The sockets of a stack.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    by_address: FxHashMap<SocketAddr, Arc<Bound>>,
    by_number: FxHashMap<Number, Arc<Bound>>,
    last: Number,
}

impl Bindings {
    /// Adds a socket.
    pub(crate) fn add(&mut self, address: SocketAddr) -> io::Result<Arc<Bound>> {
        if self.by_address.contains_key(&address) {
            return Err(Errno::ADDRINUSE.into());
        }
        self.last += 1;
        let (receives, sends) = (Signal::new()?, Signal::new()?);
        let bound = Arc::new(Bound { number: self.last, address, receives, sends });
        self.by_address.insert(address, Arc::clone(&bound));
        self.by_number.insert(self.last, Arc::clone(&bound));
        Ok(bound)
    }

    pub(crate) fn remove(&mut self, bound: &Bound) {
        self.by_address.remove(&bound.address);
        self.by_number.remove(&bound.number);
    }

    /// The socket that gets datagrams to an address and port: the one that is bound to both, else
    /// the one that is bound to the port on all addresses.
    pub(crate) fn owner(&self, destination: SocketAddr) -> Option<&Arc<Bound>> {
        let exact = self.by_address.get(&destination);
        exact.or_else(|| self.by_address.get(&wildcard_of(destination)))
    }

    /// Whether the stack has only one socket.
    pub(crate) fn is_alone(&self) -> bool {
        self.by_address.len() == 1
    }

    pub(crate) fn get(&self, number: Number) -> Option<&Arc<Bound>> {
        self.by_number.get(&number)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.by_number.values()
    }
}

impl Bound {
    /// Whether the socket is bound to this address and port, or to all addresses.
    #[inline]
    pub(crate) fn covers(&self, destination: SocketAddr) -> bool {
        self.address == destination || self.address == wildcard_of(destination)
    }
}

/// The wildcard address of the family, with the same port.
#[inline]
fn wildcard_of(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_the_very_address_comes_before_one_of_all() {
        let mut bindings = Bindings::default();
        let all = bindings.add("0.0.0.0:53".parse().unwrap()).unwrap();
        let one = bindings.add("10.0.0.1:53".parse().unwrap()).unwrap();
        let six = bindings.add("[::]:53".parse().unwrap()).unwrap();
        let owner = |to: &str| bindings.owner(to.parse().unwrap()).map(|bound| bound.number);
        assert_eq!(owner("10.0.0.1:53"), Some(one.number));
        assert_eq!(owner("10.0.0.2:53"), Some(all.number));
        assert_eq!(owner("[2001:db8::1]:53"), Some(six.number));
        assert_eq!(owner("10.0.0.1:54"), None);
        assert!(bindings.add("10.0.0.1:53".parse().unwrap()).is_err());
        bindings.remove(&one);
        let owner = bindings.owner("10.0.0.1:53".parse().unwrap());
        assert_eq!(owner.map(|bound| bound.number), Some(all.number));
    }
}
