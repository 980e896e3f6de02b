//! Ports that stay while their devices are closed and reopened: a port's upper, programs, bond and
//! counters do not belong to the device.

use std::io;
use std::sync::Arc;

use towpath_xdp::Arena;

use super::{Config, PortConfig};
use crate::error::Error;
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::options::PortOptions;
use crate::port::{Device, Features, Rx, Tx};

impl Config {
    /// Closes a port's device. The port stays as it is, and is down until [`Config::reopen_port`].
    pub fn close_port(&mut self, id: PortId) -> Result<(), Error> {
        let workers = self.workers;
        let port = self.port_mut(id)?;
        if !port.is_closed {
            let closed = Box::new(Closed::of(&*port.opened.device));
            port.replace(Opened::new(closed, Vec::new(), Vec::new(), workers));
            port.is_closed = true;
        }
        Ok(())
    }

    /// Gives a port another device ([`Engine::open`](crate::Engine::open)), and the device-related
    /// options: ifindex, workers, spread, and whether it starts up. The port's counters continue.
    pub fn reopen_port(
        &mut self,
        id: PortId,
        options: PortOptions,
        opened: Opened,
    ) -> Result<(), Error> {
        self.check_worker_numbers(&options)?;
        let before = self.port(id)?.ifindex;
        let ifindex = options.ifindex.or(opened.device.ifindex()).unwrap_or(before);
        self.set_ifindex(id, ifindex)?;
        let port = self.port_mut(id)?;
        port.options.ifindex = options.ifindex;
        port.options.workers = options.workers;
        port.options.spread = options.spread;
        port.options.up = options.up;
        port.replace(opened);
        port.is_closed = false;
        Ok(())
    }

    /// Whether a port's device is closed.
    pub fn is_closed(&self, id: PortId) -> Result<bool, Error> {
        Ok(self.port(id)?.is_closed)
    }

    /// A port's present options.
    pub fn options(&self, id: PortId) -> Result<&PortOptions, Error> {
        Ok(&self.port(id)?.options)
    }
}

impl PortConfig {
    /// Whether the port sends and receives.
    pub(super) fn is_up(&self) -> bool {
        self.options.up && !self.is_closed
    }

    fn replace(&mut self, mut opened: Opened) {
        opened.counters = Arc::clone(&self.opened.counters);
        self.opened = Arc::new(opened);
    }
}

/// The placeholder for a port's device while that is closed.
#[derive(Debug)]
struct Closed {
    kind: &'static str,
    mac: [u8; 6],
    ifindex: Option<u32>,
    mtu: u32,
}

impl Closed {
    fn of(device: &dyn Device) -> Closed {
        let (kind, mac) = (device.kind(), device.mac());
        Closed { kind, mac, ifindex: device.ifindex(), mtu: device.mtu() }
    }
}

impl Device for Closed {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn ifindex(&self) -> Option<u32> {
        self.ifindex
    }

    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn link(&self) -> bool {
        false
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::Error::new(io::ErrorKind::NotConnected, "its device is closed"))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Err(io::Error::new(io::ErrorKind::NotConnected, "its device is closed"))
    }
}
