//! Frames for the control side of a bond, and which they are.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::dissect::solicits_or_advertises;
use crate::numbers::PortId;

/// Which frames that pass on a member its bond's control side wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taps {
    /// LACPDUs and marker PDUs (ethertype 0x8809). Nobody else gets them.
    pub slow: bool,
    /// ARP. The bond's upper gets them, too.
    pub arp: bool,
    /// ICMPv6 neighbour solicitations and advertisements. The bond's upper gets them, too.
    pub neighbours: bool,
}

impl Taps {
    /// Whether there is nothing to look for.
    #[inline]
    pub fn is_empty(self) -> bool {
        !(self.slow || self.arp || self.neighbours)
    }

    /// Whether this packet is wanted, and if so, whether it is for nobody else.
    #[inline]
    pub(crate) fn find(self, packet: &[u8]) -> Option<Found> {
        match packet.get(12..14)? {
            [0x88, 0x09] if self.slow && packet[..6] == SLOW_PROTOCOLS => Some(Found::Consumed),
            [0x08, 0x06] if self.arp => Some(Found::Copied),
            [0x86, 0xdd] if self.neighbours && solicits_or_advertises(packet) => {
                Some(Found::Copied)
            }
            _ => None,
        }
    }
}

/// What becomes of a packet that the control side gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It ends there.
    Consumed,
    /// It goes on.
    Copied,
}

/// A packet that arrived on a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The member.
    pub port: PortId,
    /// The packet from its Ethernet header on.
    pub packet: Box<[u8]>,
}

/// Packets that wait for the control side. More than it can work on are lost, as on a wire.
#[derive(Debug, Default)]
pub struct Mailbox {
    inside: Mutex<Inside>,
    arrives: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    letters: VecDeque<Mail>,
    /// Somebody rang, and nobody has noticed yet.
    is_rung: bool,
}

impl Mailbox {
    pub(crate) fn put(&self, port: PortId, packet: &[u8]) {
        let mut inside = self.inside.lock();
        if inside.letters.len() < LETTERS_MAX {
            let packet = packet[..packet.len().min(BYTES_MAX)].into();
            inside.letters.push_back(Mail { port, packet });
            drop(inside);
            self.arrives.notify_one();
        }
    }

    /// Ends a [`Mailbox::wait`] as if something had come.
    pub fn ring(&self) {
        self.inside.lock().is_rung = true;
        self.arrives.notify_all();
    }

    /// Takes everything that is there; waits up to `limit` for something to come. May come back
    /// earlier, with nothing.
    pub fn wait(&self, limit: Duration) -> Vec<Mail> {
        let mut inside = self.inside.lock();
        if inside.letters.is_empty() && !inside.is_rung && !limit.is_zero() {
            self.arrives.wait_for(&mut inside, limit);
        }
        inside.is_rung = false;
        inside.letters.drain(..).collect()
    }
}

/// Where LACPDUs and marker PDUs go (IEEE 802.3, annex 57A).
const SLOW_PROTOCOLS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 2];
/// Some hundred PDUs a second would be an attack.
const LETTERS_MAX: usize = 256;
/// Enough for the headers of all of them; an LACPDU has 124 bytes.
const BYTES_MAX: usize = 256;
