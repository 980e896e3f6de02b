//! Delivery of control frames to a bond's control plane.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::dissect::solicits_or_advertises;
use crate::numbers::PortId;

/// Selects the frames passing on a member that the bond's control plane wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taps {
    /// LACPDUs and marker PDUs (EtherType 0x8809). Only the control plane gets them.
    pub slow: bool,
    /// ARP. The bond's upper gets them, too.
    pub arp: bool,
    /// ICMPv6 neighbour solicitations and advertisements. The bond's upper gets them, too.
    pub neighbours: bool,
}

impl Taps {
    /// Whether no frames are selected.
    #[inline]
    pub fn is_empty(self) -> bool {
        !(self.slow || self.arp || self.neighbours)
    }

    /// Whether a packet is selected, and if so, whether the control plane alone gets it.
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

/// Fate of a packet that the control plane gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Only the control plane gets it.
    Consumed,
    /// The control plane gets a copy; the packet continues.
    Copied,
}

/// A packet that arrived on a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The member.
    pub port: PortId,
    /// The packet, from its Ethernet header on, at most 256 bytes.
    pub packet: Box<[u8]>,
}

/// Queue of packets for the control plane. Packets beyond its capacity are lost, as on a wire.
#[derive(Debug, Default)]
pub struct Mailbox {
    inside: Mutex<Inside>,
    arrives: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    letters: VecDeque<Mail>,
    /// [`Mailbox::ring`] was called since the last [`Mailbox::wait`].
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

    /// Ends a [`Mailbox::wait`] as if a packet had arrived.
    pub fn ring(&self) {
        self.inside.lock().is_rung = true;
        self.arrives.notify_all();
    }

    /// Takes all queued packets; if there are none, waits up to `limit` for one. May return earlier
    /// without packets.
    pub fn wait(&self, limit: Duration) -> Vec<Mail> {
        let mut inside = self.inside.lock();
        if inside.letters.is_empty() && !inside.is_rung && !limit.is_zero() {
            self.arrives.wait_for(&mut inside, limit);
        }
        inside.is_rung = false;
        inside.letters.drain(..).collect()
    }
}

/// Destination address of LACPDUs and marker PDUs (IEEE 802.3, annex 57A).
const SLOW_PROTOCOLS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 2];
/// Most packets queued, far above the normal rate of PDUs.
const LETTERS_MAX: usize = 256;
/// Bytes kept of each packet, enough for the headers of all kinds; an LACPDU has 124 bytes.
const BYTES_MAX: usize = 256;
