//! Packets that can be told apart, and moving many of them.

use std::time::{Duration, Instant};

use towpath_ring::Desc;

use crate::socket::Socket;

/// Packet `number` of `len` bytes: a broadcast that no stack answers.
pub(crate) fn packet(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (number as usize + at) as u8).collect();
    let mut header = [0xff; 18];
    header[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    header[14..].copy_from_slice(&number.to_be_bytes());
    let there = header.len().min(len);
    bytes[..there].copy_from_slice(&header[..there]);
    bytes
}

/// The number of a packet that arrived as it was sent.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.get(14..)?.first_chunk()?);
    (packet(number, bytes.len()) == bytes).then_some(number)
}

impl Socket {
    /// Puts a packet into memory; gives its descriptor.
    pub(crate) fn place(&self, addr: u64, packet: &[u8]) -> Desc {
        self.area().bytes_mut(addr, packet.len()).unwrap().copy_from_slice(packet);
        Desc { addr, len: packet.len() as u32, options: 0 }
    }

    /// The bytes of a descriptor.
    pub(crate) fn bytes(&self, desc: &Desc) -> Vec<u8> {
        self.area().bytes_mut(location(desc.addr), desc.len as usize).unwrap().to_vec()
    }

    /// Gives half of the chunks to receive into.
    pub(crate) fn fill_half(&mut self, count: u64) {
        let chunk = self.chunk;
        self.fill((0..count).map(|number| number * chunk));
    }

    /// The other half is to send from.
    pub(crate) fn chunk_to_send(&self, number: u32, count: u32) -> u64 {
        (u64::from(SENT_FROM) + u64::from(number % count)) * self.chunk
    }

    /// Sends and waits until all is out of the ring.
    #[track_caller]
    pub(crate) fn send_all(&mut self, descs: &[Desc]) {
        let mut left = descs;
        let until = Instant::now() + PATIENCE;
        while !left.is_empty() || self.unsent() > 0 {
            let count = self.transmit(left);
            left = &left[count..];
            self.kick();
            assert!(Instant::now() < until, "{} descriptors stay", self.unsent());
        }
    }

    /// Receives until no more packets arrive.
    pub(crate) fn receive_all(&mut self) -> Vec<Desc> {
        let mut came = self.receive();
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let more = self.receive();
            if !more.is_empty() {
                last = Instant::now();
                came.extend(more);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        came
    }

    /// Reads completions until no more come.
    pub(crate) fn complete_all(&mut self) -> Vec<u64> {
        let mut done = self.completed();
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let more = self.completed();
            if !more.is_empty() {
                last = Instant::now();
                done.extend(more);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        done
    }
}

/// Sends one more packet and waits for it; gives what came before.
#[track_caller]
pub(crate) fn flush(from: &mut Socket, to: &mut Socket) -> Vec<Desc> {
    const LAST: u32 = u32::MAX;
    let desc = from.place(from.chunk_to_send(400, 512), &packet(LAST, 66));
    from.send_all(&[desc]);
    let mut came = Vec::new();
    let until = Instant::now() + PATIENCE;
    loop {
        for desc in to.receive() {
            to.fill([location(desc.addr)]);
            if number(&to.bytes(&desc)) == Some(LAST) {
                return came;
            }
            came.push(desc);
        }
        assert!(Instant::now() < until, "{} came, but not the last one", came.len());
    }
}

/// Sends numbered packets from one socket to the other, some at a time; gives what arrived, in
/// order: numbers, or `None` for an unknown packet.
#[track_caller]
pub(crate) fn stream(from: &mut Socket, to: &mut Socket, count: u32) -> Vec<Option<u32>> {
    let mut arrived = Vec::new();
    let (mut sent, mut done) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while (arrived.len() as u32) < count || done < count {
        assert!(Instant::now() < until, "{} of {sent} arrived, {done} done", arrived.len());
        while sent < count && sent - done < WINDOW && sent - (arrived.len() as u32) < WINDOW {
            let bytes = packet(sent, 64 + sent as usize * 7 % 1400);
            let desc = from.place(from.chunk_to_send(sent, WINDOW), &bytes);
            if from.transmit(&[desc]) == 0 {
                break;
            }
            sent += 1;
        }
        from.kick();
        done += from.completed().len() as u32;
        arrived.extend(take(to));
    }
    arrived
}

/// Receives what is there and gives the chunks back.
pub(crate) fn take(to: &mut Socket) -> Vec<Option<u32>> {
    let came = to.receive();
    let numbers = came.iter().map(|desc| number(&to.bytes(desc))).collect();
    to.fill(came.iter().map(|desc| location(desc.addr)));
    numbers
}

/// Says what arrived of packets numbered from 0 on.
pub(crate) fn summary(arrived: &[Option<u32>]) -> String {
    let wrong = arrived.iter().zip(0..).find(|(seen, number)| **seen != Some(*number));
    match wrong {
        None => format!("{} packets, in order and whole", arrived.len()),
        Some((seen, number)) => format!("instead of packet {number}: {seen:?}"),
    }
}

/// Start of a packet: in unaligned mode, the upper bits of an address are added.
pub(crate) fn location(addr: u64) -> u64 {
    (addr & ((1 << 48) - 1)) + (addr >> 48)
}

/// Packets on their way at a time; a queue of either world holds more.
pub(crate) const WINDOW: u32 = 64;
/// The first chunk that is sent from.
pub(crate) const SENT_FROM: u32 = 512;
/// Whatever takes longer will never come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// After that long nothing more comes.
const QUIET: Duration = Duration::from_millis(150);
