//! Sockets in the configuration, and the queues they are bound to.

use std::sync::Arc;

use super::{Config, PortConfig};
use crate::chain::Hook;
use crate::error::Error;
use crate::numbers::PortId;
use crate::socket::{QueueId, Socket};
use crate::sockets::{Collect, Served};

impl Config {
    /// Adds a bound socket: redirects reach it, and its TX ring is polled while its port is up.
    ///
    /// # Errors
    ///
    /// Fails if its id is 0 or taken.
    pub fn add_socket(&mut self, socket: Arc<dyn Socket>) -> Result<(), Error> {
        let id = socket.id();
        if id == 0 || self.sockets.iter().any(|known| known.id == id) {
            return Err(Error::SocketTaken(id));
        }
        self.sockets.push(Arc::new(Served::new(socket)));
        Ok(())
    }

    /// Removes a socket, if it exists. No worker uses it once the change is in force.
    pub fn remove_socket(&mut self, id: u32) {
        self.sockets.retain(|known| known.id != id);
    }

    /// The port with this ifindex.
    pub fn port_of_ifindex(&self, ifindex: u32) -> Option<PortId> {
        self.index.with_ifindex(ifindex)
    }

    /// By queue of a port: the only socket that receives there, if frames are received into its
    /// application's memory. Empty if the port has no such queue.
    pub(super) fn zero_copy_sockets(
        &self,
        id: PortId,
        port: &PortConfig,
    ) -> Vec<Option<Arc<Served>>> {
        let is_here = |served: &Arc<Served>, queue: Option<u32>| {
            let place = served.socket.bound_to().filter(|place| place.ifindex == port.ifindex);
            place.is_some_and(|place| queue.is_none_or(|queue| place.queue == queue))
        };
        let lends = |served: &Arc<Served>| is_here(served, None) && served.socket.lends();
        let is_passive = port.hook(Hook::Rx).is_none();
        if is_passive || !self.sockets.iter().any(lends) || !self.can_zero_copy(id) {
            return Vec::new();
        }
        let zero_copy_socket = |queue| {
            let receives = |it: &&Arc<Served>| it.socket.receives() && is_here(it, Some(queue));
            let mut there = self.sockets.iter().filter(receives);
            there.next().filter(|only| there.next().is_none() && only.socket.lends()).cloned()
        };
        (0..port.opened.device.queues()).map(zero_copy_socket).collect()
    }

    /// Whether frames may be received into applications' memory (`XDP_ZEROCOPY`). The port must
    /// receive into frames that it is given, and all its programs must check each access at run
    /// time. Such memory does not leave the worker that receives, so that ports with spread flows
    /// and members of bonds are excluded.
    pub fn can_zero_copy(&self, id: PortId) -> bool {
        let Some(port) = self.ports.get(&id) else { return false };
        let chain = self.chain(id, port);
        port.opened.device.features().zero_copy
            && self.spread_of(port).is_none()
            && self.membership(id, port).is_none()
            && chain.iter().all(|chain| chain.checks_accesses())
    }

    /// By worker: the sockets whose packets it sends. The worker that polls a queue also sends the
    /// packets of sockets bound to it.
    pub(super) fn collects(&self) -> Vec<Vec<Collect>> {
        let mut collects = vec![Vec::new(); self.workers];
        for served in self.sockets.iter().filter(|served| served.socket.transmits()) {
            let Some(QueueId { ifindex, queue }) = served.socket.bound_to() else { continue };
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
        let id = self.index.with_ifindex(ifindex)?;
        Some((id, self.ports.get(&id)?))
    }
}
