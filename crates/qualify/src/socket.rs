//! AF_XDP sockets on a device.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use towpath_engine::{QueueId, Socket as _, offload};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};
use towpath_xdp::{Frame, Pool, tai_now};
use towpath_xsk::abi::{
    AF_XDP, Address, COPY, RX_RING, TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG,
    UMEM_TX_METADATA_LEN, UmemReg,
};
use towpath_xsk::rings::Which;
use towpath_xsk::{Device, Host, Shared, Socket, Sockets};

use crate::checks::{NONE_ARRIVE, fails, untried};
use crate::line::Line;
use crate::packets::{self, Packet};
use crate::{Feature, Maker, Outcome, programs};

/// Tries one of the features that are about sockets.
pub(crate) fn try_feature(maker: &dyn Maker, feature: Feature) -> io::Result<Outcome> {
    let arriving = Packet::plain(packets::udp(1, 0, 100));
    let mut line = Line::new(maker, 1500, std::slice::from_ref(&arriving.bytes))?;
    let mut app = App::new()?;
    match feature {
        Feature::Xsk => {
            if !line.receives() {
                return untried(NONE_ARRIVE);
            }
            let mut frames = line.arrive(std::slice::from_ref(&arriving), None)?;
            if app.receive(&mut frames, &mut line.pool)? != [arriving.bytes] {
                return fails("a socket did not get it");
            }
            let sent = packets::udp(2, 0, 100);
            match app.send(&mut line, &sent, 0, 0)? {
                None => fails("it does not take a socket's frames"),
                Some(_) if !line.far.sees() => Ok(Outcome::Works),
                Some(got) if got.iter().any(|(bytes, _)| *bytes == sent) => Ok(Outcome::Works),
                Some(_) => fails("a socket's frame did not leave"),
            }
        }
        Feature::TxTimestamp => {
            let before = tai_now();
            if app.send(&mut line, &packets::udp(2, 0, 100), TIMESTAMP, 0)?.is_none() {
                return fails("it does not take a socket's frames");
            }
            let stamp = app.timestamp()?;
            match (before..=tai_now()).contains(&stamp) {
                true => programs::tx_timestamp(maker),
                false => fails(format!("the time of sending is {stamp}")),
            }
        }
        _ => fails("sockets do not decide that"),
    }
}

#[derive(Debug)]
struct OnePort;

impl Host for OnePort {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (ifindex == PLACE.ifindex).then_some(Device { queues: 1, zero_copy: false })
    }
}

/// A socket and its application.
pub(crate) struct App {
    pub(crate) socket: Arc<Socket>,
    _sockets: Arc<Sockets>,
    memory: OwnedFd,
    rx: Consumer<Mapped<Desc>>,
    tx: Producer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
}

/// Packets that came out, each with the time at which it was seen.
type Seen = Vec<(Vec<u8>, Instant)>;

impl App {
    pub(crate) fn new() -> io::Result<App> {
        let sockets = Sockets::new(Arc::new(OnePort));
        let socket = sockets.open()?;
        let memory = memfd_create("towpath-qualify", MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, u64::from(ENTRIES) * CHUNK)?;
        let reg = UmemReg {
            len: u64::from(ENTRIES) * CHUNK,
            chunk_size: CHUNK as u32,
            flags: UMEM_TX_METADATA_LEN,
            tx_metadata_len: METADATA as u32,
            ..UmemReg::default()
        };
        socket.set_option(UMEM_REG, &reg.to_bytes(), Some((memory.try_clone()?, 0)))?;
        for name in [RX_RING, TX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            socket.set_option(name, &ENTRIES.to_ne_bytes(), None)?;
        }
        let QueueId { ifindex, queue } = PLACE;
        let address = Address { family: AF_XDP, flags: COPY, ifindex, queue, shared_umem_fd: 0 };
        socket.bind(&address.to_bytes(), &Shared::NoSocket)?;
        Ok(App {
            rx: Consumer::new(ring(&socket, Which::Rx)?),
            tx: Producer::new(ring(&socket, Which::Tx)?),
            fill: Producer::new(ring(&socket, Which::Fill)?),
            socket,
            _sockets: sockets,
            memory,
        })
    }

    /// Packets that the application receives from these frames.
    fn receive(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<Vec<Vec<u8>>> {
        self.fill.free(1);
        self.fill.write(CHUNK);
        self.fill.submit();
        self.socket.deliver(PLACE, frames, pool);
        self.socket.flush();
        let mut packets = Vec::new();
        for _ in 0..self.rx.available(ENTRIES) {
            let desc = self.rx.read();
            let mut bytes = vec![0; desc.len as usize];
            pread(&self.memory, &mut bytes, desc.addr)?;
            packets.push(bytes);
        }
        self.rx.release();
        Ok(packets)
    }

    /// Sends a packet, with flags of `struct xsk_tx_metadata`; returns the packets that came out at
    /// the other end, `None` if the device did not take it.
    fn send(
        &mut self,
        line: &mut Line,
        packet: &[u8],
        flags: u64,
        launch_time: u64,
    ) -> io::Result<Option<Seen>> {
        self.put(packet, flags, launch_time)?;
        let mut frames = Vec::new();
        self.socket.collect(&mut line.pool, &mut frames, 1);
        let frame = frames.pop().ok_or_else(|| io::Error::other("the socket sends nothing"))?;
        let mut ready = Vec::new();
        let features = line.device.features();
        let prepared = offload::prepare_xmit(frame, &features, &mut line.pool, &mut ready);
        let _is_cut = prepared.map_err(|(_, why)| io::Error::other(format!("{why:?}")))?;
        let Some(frame) = ready.pop() else { return Ok(None) };
        let got = line.leave(frame, 1)?;
        self.socket.sent(usize::from(got.is_some()));
        let seen = |got: crate::far::Got| (got.packet.bytes, got.at);
        Ok(got.map(|got| got.into_iter().map(seen).collect()))
    }

    /// Puts a packet into the tx ring.
    pub(crate) fn put(&mut self, packet: &[u8], flags: u64, launch_time: u64) -> io::Result<()> {
        let mut metadata = [0; METADATA];
        metadata[..8].copy_from_slice(&flags.to_ne_bytes());
        metadata[16..].copy_from_slice(&launch_time.to_ne_bytes());
        pwrite(&self.memory, &metadata, SENT_AT - METADATA as u64)?;
        pwrite(&self.memory, packet, SENT_AT)?;
        self.tx.free(1);
        let options = if flags != 0 { Desc::METADATA } else { 0 };
        self.tx.write(Desc { addr: SENT_AT, len: packet.len() as u32, options });
        self.tx.submit();
        Ok(())
    }

    /// `completion.tx_timestamp` of the packet that was sent.
    fn timestamp(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        pread(&self.memory, &mut bytes, SENT_AT - METADATA as u64 + 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

fn ring<T: Entry>(socket: &Socket, which: Which) -> io::Result<Mapped<T>> {
    let memory = Memory::map::<T>(socket.rings(), which.page_offset(), &OFFSETS, ENTRIES)?;
    Mapped::new(&memory, &OFFSETS, ENTRIES)
}

const PLACE: QueueId = QueueId { ifindex: programs::DUT, queue: 0 };
const ENTRIES: u32 = 8;
const CHUNK: u64 = 2048;
const METADATA: usize = 24;
/// In the third chunk.
const SENT_AT: u64 = 2 * CHUNK + 256;
/// `XDP_TXMD_FLAGS_*`
const TIMESTAMP: u64 = 1;
pub(crate) const LAUNCH_TIME: u64 = 4;
