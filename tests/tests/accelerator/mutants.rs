//! A source of packets: those of peers and our own, half of them mutated.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use towpath_engine::port::{Device, Features, Rx, Tx, Wake};
use towpath_ipsec::{AwsLc, Buffer, OwnedBuffer, Sa};
use towpath_xdp::{Arena, Frame, Pool};

use super::packets::{PEERS, packet, sender};
use super::witness::Nowhere;

/// A port that receives packets until it is stopped.
#[derive(Debug, Clone)]
pub(crate) struct Mutants {
    runs: Arc<AtomicBool>,
    seed: u64,
}

impl Mutants {
    pub(crate) fn new(seed: u64) -> Mutants {
        Mutants { runs: Arc::new(AtomicBool::new(true)), seed }
    }

    pub(crate) fn stop(&self) {
        self.runs.store(false, Ordering::SeqCst);
    }
}

impl Device for Mutants {
    fn kind(&self) -> &'static str {
        "mutants"
    }

    fn queues(&self) -> u32 {
        1
    }

    fn features(&self) -> Features {
        Features::default()
    }

    fn open_rx(&self, _queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(Queue {
            runs: Arc::clone(&self.runs),
            random: Rng::with_seed(self.seed),
            senders: (0..PEERS).map(sender).collect(),
            sent: Vec::new(),
            number: 0,
        }))
    }

    fn open_tx(&self, _worker: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(Nowhere))
    }
}

struct Queue {
    runs: Arc<AtomicBool>,
    random: Rng,
    /// The peers' SAs.
    senders: Vec<Arc<Sa>>,
    /// Packets of peers, to be sent again.
    sent: Vec<Vec<u8>>,
    number: u32,
}

impl Queue {
    fn next(&mut self) -> Vec<u8> {
        self.number += 1;
        let peer = self.random.u8(..PEERS + 2);
        let mut packet = match self.random.u8(..10) {
            0..6 => self.peers_packet(peer % PEERS),
            6..9 => packet(peer, self.number),
            _ => (0..self.random.usize(14..200)).map(|_| self.random.u8(..)).collect(),
        };
        if self.random.bool() {
            self.mutate(&mut packet);
        }
        packet
    }

    /// A new ESP packet, or an old one.
    fn peers_packet(&mut self, peer: u8) -> Vec<u8> {
        if self.sent.len() == SENT_MAX && self.random.u8(..4) == 0 {
            return self.sent[self.random.usize(..SENT_MAX)].clone();
        }
        let mut buffer = OwnedBuffer::new(&packet(peer, self.number));
        let sa = &self.senders[usize::from(peer)];
        sa.lock(0).encap_at_once::<AwsLc>(&mut buffer).unwrap();
        let packet = buffer.bytes().to_vec();
        if self.sent.len() == SENT_MAX {
            self.sent.swap_remove(self.random.usize(..SENT_MAX));
        }
        self.sent.push(packet.clone());
        packet
    }

    fn mutate(&mut self, packet: &mut Vec<u8>) {
        let at = self.random.usize(..packet.len());
        match self.random.u8(..6) {
            0..3 => packet[at] ^= 1 << self.random.u8(..8),
            3 => packet[at] = self.random.u8(..),
            4 => packet.truncate(at.max(14)),
            _ => packet.extend(0..self.random.u8(..60)),
        }
    }
}

impl Rx for Queue {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        if self.runs.load(Ordering::SeqCst) {
            for _ in 0..limit {
                let packet = self.next();
                let Some(frame) = pool.frame(&packet).unwrap() else { break };
                frames.push(frame);
            }
        }
        Ok(frames.len() - start)
    }

    fn arm(&mut self) -> Wake<'_> {
        match self.runs.load(Ordering::SeqCst) {
            true => Wake::Now,
            false => Wake::At(Instant::now() + Duration::from_millis(1)),
        }
    }
}

/// Number of old packets to send again.
const SENT_MAX: usize = 256;
