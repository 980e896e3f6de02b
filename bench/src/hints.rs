//! A port as a NIC is one: of each frame it tells hash, timestamp and VLAN tag.

use std::io;
use std::sync::Arc;

use towpath_engine::Waker;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_xdp::frame::rx_metadata::{RxChecksum, RxHash, RxMetadata, VlanTag};
use towpath_xdp::{Arena, Frame, Pool};

/// Any port, with that.
#[derive(Debug)]
pub struct Hinting<D>(pub D);

impl<D: Device> Device for Hinting<D> {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn queues(&self) -> u32 {
        self.0.queues()
    }

    fn features(&self) -> Features {
        self.0.features()
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(Receiver { inner: self.0.open_rx(queue, arena)?, count: 0 }))
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        self.0.open_tx(worker, arena)
    }
}

struct Receiver {
    inner: Box<dyn Rx>,
    count: u32,
}

impl Rx for Receiver {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        let result = self.inner.receive(pool, frames, limit);
        for frame in &mut frames[start..] {
            self.count = self.count.wrapping_add(1);
            frame.set_rx_metadata(&RxMetadata {
                hash: Some(RxHash { value: self.count, kind: 9 }),
                timestamp_ns: Some(u64::from(self.count)),
                vlan: Some(VlanTag { protocol: 0x8100, tci: 5 }),
                checksum: RxChecksum::Unnecessary,
            });
        }
        result
    }

    fn arm(&mut self) -> Wake<'_> {
        self.inner.arm()
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.inner.set_waker(waker);
    }
}
