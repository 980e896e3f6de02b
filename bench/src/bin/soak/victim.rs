//! An application that is killed at any moment: two sockets on one queue over common memory, which
//! receive, send back what some packets brought, and sleep when there is nothing.

use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Signal, set_parent_process_death_signal};
use towpath_ring::{Consumer, Desc, Entry, Mapped, Memory, OFFSETS, Producer};
use towpath_xsk_client::abi::{
    AF_XDP, Address, COPY, PGOFF_COMPLETION, PGOFF_FILL, PGOFF_RX, PGOFF_TX, RX_RING, SHARED_UMEM,
    TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, USE_NEED_WAKEUP, UmemReg,
};
use towpath_xsk_client::{Area, Connection};

/// Lives until it is killed, or its parent is gone.
pub(crate) fn run(path: &Path, port: &str, queue: u32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut victim = loop {
        match Victim::open(path, port, queue) {
            Ok(victim) => break victim,
            // The one before is dead, and its connections are about to be closed.
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    };
    loop {
        if victim.turn()? == 0 {
            victim.sleep()?;
        }
    }
}

/// The application.
struct Victim {
    sockets: [Ends; 2],
    /// They belong to the queue.
    fill: Producer<Mapped<u64>>,
    completion: Consumer<Mapped<u64>>,
    count: u32,
    _area: Area,
}

/// What each socket has of its own.
struct Ends {
    rx: Consumer<Mapped<Desc>>,
    tx: Producer<Mapped<Desc>>,
    connection: Connection,
}

impl Victim {
    fn open(path: &Path, port: &str, queue: u32) -> std::io::Result<Victim> {
        let area = Area::new(ENTRIES as usize * CHUNK_BYTES as usize)?;
        let first = Connection::open(path)?;
        let (addr, len) = (area.addr(), area.len() as u64);
        let reg = UmemReg { addr, len, chunk_size: CHUNK_BYTES as u32, ..UmemReg::default() };
        first.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)))?;
        for name in [UMEM_FILL_RING, UMEM_COMPLETION_RING] {
            first.set_option(name, &ENTRIES.to_ne_bytes(), None)?;
        }
        let mut fill = Producer::new(ring(&first, PGOFF_FILL)?);
        fill.write_burst(
            ENTRIES as usize,
            (0..ENTRIES).map(|number| u64::from(number) * CHUNK_BYTES),
        );
        fill.submit();
        let completion = Consumer::new(ring(&first, PGOFF_COMPLETION)?);
        let ifindex = first.ifindex(port)?;
        let address = Address { family: AF_XDP, ifindex, queue, ..Address::default() };
        let first = Ends::new(first, |first| {
            first.bind(&Address { flags: COPY | USE_NEED_WAKEUP, ..address }, None)
        })?;
        let second = Ends::new(Connection::open(path)?, |second| {
            let with = first.connection.rings();
            second.bind(&Address { flags: SHARED_UMEM, ..address }, Some(with))
        })?;
        let sockets = [first, second];
        for (key, socket) in (2 * queue..).zip(&sockets) {
            socket.connection.insert("targets", key)?;
        }
        Ok(Victim { sockets, fill, completion, count: 0, _area: area })
    }

    /// One burst of each socket; gives the number of packets.
    fn turn(&mut self) -> std::io::Result<usize> {
        let Self { sockets, fill, completion, count, .. } = self;
        let mut seen = 0;
        for Ends { rx, tx, connection } in sockets {
            let mut packets = [Desc::default(); BURST];
            let came = rx.peek_burst(&mut packets);
            // There are as many chunks as places for them, once it is known what was taken.
            fill.free(ENTRIES);
            for packet in &packets[..came] {
                *count = count.wrapping_add(1);
                if count.is_multiple_of(SENT_BACK_ONE_IN) && tx.free(1) > 0 {
                    tx.write(*packet);
                } else {
                    fill.write(packet.addr & !(CHUNK_BYTES - 1));
                }
            }
            rx.advance(came as u32);
            rx.release();
            tx.submit();
            if tx.waiting() > 0 && tx.needs_wakeup() {
                kick(connection)?;
            }
            seen += came;
        }
        let mut sent = [0; BURST];
        let done = completion.peek_burst(&mut sent);
        fill.free(ENTRIES);
        sent[..done].iter().for_each(|addr| fill.write(addr & !(CHUNK_BYTES - 1)));
        completion.advance(done as u32);
        completion.release();
        fill.submit();
        Ok(seen + done)
    }

    /// Until something comes, or for a while.
    fn sleep(&mut self) -> std::io::Result<()> {
        let mut is_empty = true;
        for Ends { rx, connection, .. } in &mut self.sockets {
            while let Ok((_, 1..)) = recv(connection.bell(), &mut [0; 8], RecvFlags::DONTWAIT) {}
            is_empty &= rx.arm();
        }
        if !is_empty {
            return Ok(());
        }
        let bells = self.sockets.each_ref().map(|ends| ends.connection.bell());
        let mut polls = bells.each_ref().map(|bell| PollFd::new(bell, PollFlags::IN));
        let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        poll(&mut polls, Some(&timeout))?;
        Ok(())
    }
}

impl Ends {
    /// Makes the rings, then binds.
    fn new(
        connection: Connection,
        bind: impl FnOnce(&Connection) -> std::io::Result<()>,
    ) -> std::io::Result<Ends> {
        for name in [RX_RING, TX_RING] {
            connection.set_option(name, &ENTRIES.to_ne_bytes(), None)?;
        }
        let rx = Consumer::new(ring(&connection, PGOFF_RX)?);
        let tx = Producer::new(ring(&connection, PGOFF_TX)?);
        bind(&connection)?;
        Ok(Ends { rx, tx, connection })
    }
}

fn ring<T: Entry>(connection: &Connection, at: u64) -> std::io::Result<Mapped<T>> {
    let memory = Memory::map::<T>(connection.rings(), at, &OFFSETS, ENTRIES)?;
    Mapped::new(&memory, &OFFSETS, ENTRIES)
}

fn kick(connection: &Connection) -> std::io::Result<()> {
    match send(connection.bell(), &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

const ENTRIES: u32 = 512;
const CHUNK_BYTES: u64 = 2048;
const BURST: usize = 64;
const SENT_BACK_ONE_IN: u32 = 16;
