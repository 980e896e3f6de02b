//! Whatever an application says to the daemon, and whatever it writes into the memory that they
//! share, the daemon neither panics nor loses a frame.

use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use towpath_engine::{QueueId, Socket as _};
use towpath_ring::{Desc, Mapped, Memory, OFFSETS, Shared as _};
use towpath_xdp::{Arena, Frame, Pool};
use towpath_xsk::abi::{
    AF_XDP, Address, RX_RING, TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, UmemReg,
};
use towpath_xsk::rings::Which;
use towpath_xsk::{Device, Host, Shared, Socket, Sockets, answer};
use towpath_xsk_client::protocol::Request;

#[derive(Debug)]
struct OnePort;

impl Host for OnePort {
    fn device(&self, ifindex: u32) -> Option<Device> {
        (ifindex == 1).then_some(Device { queues: 1, zero_copy: false })
    }
}

fn memory() -> OwnedFd {
    let file = memfd_create("xsk-fuzz", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, BYTES).expect("memory");
    file
}

/// Delivers, collects and gives everything back.
fn work(socket: &Socket, pool: &mut Pool) {
    let place = QueueId { ifindex: 1, queue: 0 };
    let lens = [60, 5000];
    let mut frames: Vec<Frame> =
        lens.iter().filter_map(|&len| pool.frame(&vec![1; len]).ok()?).collect();
    socket.deliver(place, &mut frames, pool);
    socket.flush();
    let count = socket.collect(pool, &mut frames, 8);
    socket.sent(count / 2);
    pool.give_all(&mut frames);
    let _asleep = socket.arm();
    socket.disarm();
    let _statistics = socket.statistics();
}

#[test]
fn any_requests() {
    let arena = AssertUnwindSafe(Arena::new(64).expect("memory"));
    bolero::check!().with_type::<Vec<(u8, u8, u32, Vec<u8>)>>().for_each(|requests| {
        let sockets = Sockets::new(Arc::new(OnePort));
        let socket = sockets.open().expect("a socket");
        let mut pool = Pool::new(&arena);
        for (operation, name, number, rest) in requests {
            // Mostly requests that are nearly good, so that some get far.
            let mut bytes = u32::from(operation % 10).to_ne_bytes().to_vec();
            bytes.extend(u32::from(name % 11).to_ne_bytes());
            bytes.extend(u64::from(number % 2 * 4096).to_ne_bytes());
            match operation / 64 {
                0 => bytes.extend(rest),
                1 => bytes.extend((1u32 << (number % 32)).to_ne_bytes()),
                2 => bytes.extend(
                    UmemReg { len: BYTES, chunk_size: 2048 << (number % 2), ..UmemReg::default() }
                        .to_bytes(),
                ),
                _ => bytes.extend(
                    Address { family: AF_XDP, flags: *number as u16 % 32, ifindex: 1, ..NOWHERE }
                        .to_bytes(),
                ),
            }
            let Some(request) = Request::from_bytes(&bytes) else { continue };
            answer(&sockets, &socket, request, vec![memory()]);
            work(&socket, &mut pool);
        }
        socket.close();
        drop(pool);
        assert_eq!(arena.free(), arena.total(), "a frame is lost");
    });
}

#[test]
fn any_rings() {
    let arena = AssertUnwindSafe(Arena::new(64).expect("memory"));
    let input = bolero::check!().with_type::<(u8, Vec<(u64, u32, u8)>, Vec<u64>, [u32; 4])>();
    input.for_each(|(kind, descs, addrs, indices)| {
        let sockets = Sockets::new(Arc::new(OnePort));
        let socket = sockets.open().expect("a socket");
        let flags = u32::from(kind & 1);
        let reg = UmemReg { len: BYTES, chunk_size: 2048, flags, ..UmemReg::default() };
        socket.set_option(UMEM_REG, &reg.to_bytes(), Some((memory(), 0))).expect("good");
        for name in [RX_RING, TX_RING, UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            socket.set_option(name, &ENTRIES.to_ne_bytes(), None).expect("good");
        }
        let flags = if kind & 2 == 0 { 0 } else { 16 };
        let address = Address { family: AF_XDP, flags, ifindex: 1, ..NOWHERE };
        socket.bind(&address.to_bytes(), &Shared::NoSocket).expect("good");
        let (tx, fill) = (ring::<Desc>(&socket, Which::Tx), ring::<u64>(&socket, Which::Fill));
        let rx = ring::<Desc>(&socket, Which::Rx);
        let completion = ring::<u64>(&socket, Which::Completion);
        for (index, &(addr, len, options)) in descs.iter().enumerate() {
            let addr = if options & 16 == 0 { addr % (2 * BYTES) } else { addr };
            let len = if options & 32 == 0 { len % 4096 } else { len };
            tx.write(index as u32, Desc { addr, len, options: u32::from(options & 15) });
        }
        addrs.iter().enumerate().for_each(|(index, &addr)| fill.write(index as u32, addr));
        let mut pool = Pool::new(&arena);
        for round in 0..4 {
            let index = |which: usize| if kind & 4 == 0 { indices[which] } else { round * 3 };
            tx.producer().store(index(0), Ordering::Release);
            fill.producer().store(index(1), Ordering::Release);
            rx.consumer().store(index(2), Ordering::Release);
            completion.consumer().store(index(3), Ordering::Release);
            work(&socket, &mut pool);
        }
        socket.close();
        drop(pool);
        assert_eq!(arena.free(), arena.total(), "a frame is lost");
    });
}

fn ring<T: towpath_ring::Entry>(socket: &Socket, which: Which) -> Mapped<T> {
    let at = which.page_offset();
    let memory = Memory::map::<T>(socket.rings(), at, &OFFSETS, ENTRIES).expect("a ring");
    Mapped::new(&memory, &OFFSETS, ENTRIES).expect("a ring")
}

const BYTES: u64 = 64 << 10;
const ENTRIES: u32 = 8;
const NOWHERE: Address = Address { family: 0, flags: 0, ifindex: 0, queue: 0, shared_umem_fd: 0 };
