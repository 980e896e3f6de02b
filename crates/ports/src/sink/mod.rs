//! `sink`: accepts and discards every frame; never receives any.

mod tx;

use std::io;
use std::sync::Arc;

use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::Arena;

/// A port that discards all frames.
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

    /// The largest value, so that every frame fits.
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
