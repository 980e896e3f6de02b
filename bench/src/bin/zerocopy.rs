//! `bench/zerocopy`: what a packet costs that is copied into an application's memory, and one that
//! is received there.
//!
//! One thread does both sides, so that nothing but the work is measured: a queue's port puts
//! packets into frames, the socket gets them, the application takes the descriptors, reads one
//! word of each packet and gives the chunks back. Rounds of both kinds take turns; the table has
//! medians.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Parser;
use towpath_engine::{QueueId, Socket as _};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};
use towpath_xdp::{Arena, Frame, Pool};
use towpath_xsk::abi::*;
use towpath_xsk::rings::Which;
use towpath_xsk::{Device, Host, Shared, Socket, Sockets};
use towpath_xsk_client::Area;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Packets of each round.
    #[arg(long, default_value_t = 200_000)]
    packets: usize,
    /// Rounds of each kind.
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!("ns per packet, received and given back\n");
    println!("  {:>6} {:>8} {:>10} {:>6}", "bytes", "copied", "in place", "ratio");
    for len in [64, 256, 512, 1024, 1514, 3000] {
        let mut sides = [Side::new(COPY)?, Side::new(ZEROCOPY)?];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (side, times) in sides.iter_mut().zip(&mut times) {
                times.push(side.round(len, args.packets)?);
            }
        }
        let [copied, in_place] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!("  {len:>6} {copied:>8.1} {in_place:>10.1} {:>5.2}x", copied / in_place);
        let without_copy = sides.each_ref().map(|side| side.socket.statistics().rx_zero_copy);
        let all = sides[1].socket.statistics().rx_packets;
        ensure!(without_copy == [0, all], "each is what it is to be: {without_copy:?} of {all}");
    }
    Ok(())
}

/// A socket, the application that has it, and the worker of its queue.
struct Side {
    socket: Arc<Socket>,
    _sockets: Arc<Sockets>,
    area: Area,
    rx: Consumer<Mapped<Desc>>,
    fill: Producer<Mapped<u64>>,
    pool: Pool,
    frames: Vec<Frame>,
    lent: Vec<Frame>,
    sum: u64,
}

/// One port.
#[derive(Debug)]
struct Port;

impl Host for Port {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (ifindex == 1).then_some(Device { queues: 1, zero_copy: true })
    }
}

impl Side {
    fn new(flags: u16) -> anyhow::Result<Side> {
        let sockets = Sockets::new(Arc::new(Port));
        let socket = sockets.open()?;
        let area = Area::new(CHUNKS as usize * CHUNK_BYTES as usize)?;
        let reg = UmemReg {
            addr: area.addr(),
            len: area.len() as u64,
            chunk_size: CHUNK_BYTES as u32,
            ..UmemReg::default()
        };
        let file = area.fd().try_clone_to_owned()?;
        socket.set_option(UMEM_REG, &reg.to_bytes(), Some((file, 0)))?;
        for name in [RX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            socket.set_option(name, &ENTRIES.to_ne_bytes(), None)?;
        }
        let address = Address { family: AF_XDP, flags, ifindex: 1, ..Address::default() };
        socket.bind(&address.to_bytes(), &Shared::NoSocket)?;
        let mut fill = Producer::new(ring(&socket, Which::Fill)?);
        (0..CHUNKS).for_each(|chunk| fill.write(chunk * CHUNK_BYTES));
        fill.submit();
        Ok(Side {
            rx: Consumer::new(ring(&socket, Which::Rx)?),
            fill,
            pool: Pool::new(&Arena::new(4096)?),
            socket,
            _sockets: sockets,
            area,
            frames: Vec::new(),
            lent: Vec::new(),
            sum: 0,
        })
    }

    /// Nanoseconds a packet.
    fn round(&mut self, len: usize, count: usize) -> anyhow::Result<f64> {
        let packet = vec![0x5a; len];
        let start = Instant::now();
        for _ in 0..count / BURST {
            self.receive(&packet);
            self.consume().context("a packet outside of the memory")?;
        }
        let count = count / BURST * BURST;
        Ok(start.elapsed().as_nanos() as f64 / count as f64)
    }

    /// The worker's side.
    fn receive(&mut self, packet: &[u8]) {
        let Side { socket, pool, frames, lent, .. } = self;
        if socket.lends() {
            socket.lend(lent, BURST);
            pool.put_external(lent);
        }
        pool.take_many(BURST, frames);
        pool.take_external(lent);
        for frame in &mut *frames {
            frame.fill(packet);
            frame.rx.ifindex = 1;
            frame.rx.queue_index = 0;
        }
        socket.deliver(QueueId { ifindex: 1, queue: 0 }, frames, pool);
        socket.flush();
    }

    /// The application's.
    fn consume(&mut self) -> Option<()> {
        let count = self.rx.available(u32::MAX);
        // The fill ring holds all chunks there are.
        let _room = self.fill.free(count);
        for _ in 0..count {
            let desc = self.rx.read();
            let word = self.area.bytes_mut(desc.addr, 8)?;
            self.sum = self.sum.wrapping_add(u64::from_ne_bytes(word.try_into().ok()?));
            self.fill.write(desc.addr);
        }
        self.rx.release();
        self.fill.submit();
        Some(())
    }
}

fn ring<T: Entry>(socket: &Socket, which: Which) -> anyhow::Result<Mapped<T>> {
    let at = which.page_offset();
    let memory = Memory::map::<T>(socket.rings(), at, &OFFSETS, ENTRIES)?;
    Ok(Mapped::new(&memory, &OFFSETS, ENTRIES)?)
}

const BURST: usize = 64;
const ENTRIES: u32 = 2048;
const CHUNKS: u64 = 2048;
const CHUNK_BYTES: u64 = 4096;
