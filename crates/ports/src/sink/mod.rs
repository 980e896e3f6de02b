//! `sink`: takes every frame and forgets it. Nothing arrives.

mod tx;

use std::io;
use std::sync::Arc;

use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::Arena;

/// Where frames end.
#[derive(Debug, Default)]
pub struct Sink;

impl Device for Sink {
    fn kind(&self) -> &'static str {
        "sink"
    }

    fn queues(&self) -> u32 {
        0
    }

    fn features(&self) -> Features {
        Features { rx_frags: false, ..Features::IN_PROCESS }
    }

    /// Anything fits.
    fn mtu(&self) -> u32 {
        65535
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "nothing arrives from a sink"))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(tx::Transmitter))
    }
}
