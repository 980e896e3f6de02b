//! Sockets in the configuration: which there are, and where.

use std::sync::Arc;

use super::{Config, PortConfig};
use crate::error::Error;
use crate::snapshot::PortId;
use crate::socket::{Place, Socket};
use crate::sockets::{Collect, Delivery, Served};

impl Config {
    /// Makes a bound socket known to workers: redirects find it, and its tx ring is polled while
    /// its port is up.
    pub fn add_socket(&mut self, socket: Arc<dyn Socket>) -> Result<(), Error> {
        let id = socket.id();
        if id == 0 || self.sockets.iter().any(|known| known.id == id) {
            return Err(Error::SocketTaken(id));
        }
        self.sockets.push(Arc::new(Served::new(socket)));
        Ok(())
    }

    /// No worker uses the socket once this is in force. Nothing happens when there is none.
    pub fn remove_socket(&mut self, id: u32) {
        self.sockets.retain(|known| known.id != id);
    }

    /// Chooses how redirected frames get to sockets; the default is the fastest way.
    pub fn set_delivery(&mut self, delivery: Delivery) {
        self.delivery = delivery;
    }

    /// The port of that ifindex.
    pub fn port_of_ifindex(&self, ifindex: u32) -> Option<PortId> {
        self.port_with(ifindex).map(|(id, _)| id)
    }

    /// By queue of a port: the only socket that receives there.
    pub(super) fn sole(&self, port: &PortConfig) -> Vec<Option<Arc<Served>>> {
        let is_there = |queue: u32| {
            let here = Place { ifindex: port.ifindex, queue };
            move |served: &&Arc<Served>| {
                served.socket.receives() && served.socket.place() == Some(here)
            }
        };
        let sole = |queue| {
            let mut there = self.sockets.iter().filter(is_there(queue));
            there.next().filter(|_| there.next().is_none()).cloned()
        };
        if self.sockets.is_empty() {
            return Vec::new();
        }
        (0..port.opened.device.queues()).map(sole).collect()
    }

    /// Whether frames may be received into applications' memory (`XDP_ZEROCOPY`): the port receives
    /// into frames that it is given, and until a socket has them only programs look at them that
    /// check each access.
    pub fn can_borrow(&self, id: PortId) -> bool {
        let Some(port) = self.ports.get(&id) else { return false };
        let chain = self.chain(id, port);
        port.opened.device.features().zero_copy
            && self.membership(id, port).is_none()
            && chain.iter().all(|chain| chain.checks_accesses())
    }

    /// Whether frames are, because somebody wants it.
    pub(super) fn borrows(&self, id: PortId, port: &PortConfig) -> bool {
        let lends = |served: &Arc<Served>| {
            let here = served.socket.place().is_some_and(|place| place.ifindex == port.ifindex);
            here && served.socket.lends()
        };
        port.rx_hook.is_some() && self.sockets.iter().any(lends) && self.can_borrow(id)
    }

    /// By worker: the sockets whose packets it sends. The worker that polls a queue also sends what
    /// is to leave by it.
    pub(super) fn collects(&self) -> Vec<Vec<Collect>> {
        let mut collects = vec![Vec::new(); self.workers];
        for served in self.sockets.iter().filter(|served| served.socket.transmits()) {
            let Some(Place { ifindex, queue }) = served.socket.place() else { continue };
            if let Some((port, config)) = self.port_with(ifindex)
                && config.is_up()
            {
                let served = Arc::clone(served);
                collects[self.worker_of(config, queue)].push(Collect { port, served });
            }
        }
        collects
    }

    fn port_with(&self, ifindex: u32) -> Option<(PortId, &PortConfig)> {
        let found = self.ports.iter().find(|(_, port)| port.ifindex == ifindex);
        found.map(|(&id, port)| (id, port))
    }
}
