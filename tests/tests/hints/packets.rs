//! Numbered packets of many flows, every third one with a VLAN tag.

use std::ops::Range;

/// A number of packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packets {
    pub(crate) count: usize,
}

impl Packets {
    pub(crate) fn new(count: usize) -> Packets {
        Packets { count }
    }

    /// The tag of a packet, if it has one.
    pub(crate) fn tag(number: usize) -> Option<u16> {
        number.is_multiple_of(3).then_some((number % 4000) as u16 + 1)
    }

    pub(crate) fn range(self, numbers: Range<usize>) -> impl Iterator<Item = Vec<u8>> {
        numbers.map(|number| packet(number, Packets::tag(number)))
    }
}

/// A UDP packet.
pub(crate) fn packet(number: usize, tag: Option<u16>) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if let Some(tag) = tag {
        bytes.extend([0x81, 0]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend((number as u16).to_be_bytes());
    bytes.extend([0, 7, 0, 26, 0, 0]);
    bytes.extend(MAGIC);
    bytes.extend((number as u64).to_be_bytes());
    bytes.resize(bytes.len() + 2, 0);
    bytes
}

/// Its number, of a packet whose tag was taken off; `None` of what others send.
pub(crate) fn number_of(packet: &[u8]) -> Option<usize> {
    let (magic, number) = packet.get(MAGIC_AT..)?.split_first_chunk::<8>()?;
    let number = number.first_chunk().filter(|_| *magic == MAGIC)?;
    Some(u64::from_be_bytes(*number) as usize)
}

/// Offset of the number.
pub(crate) const NUMBER_AT: usize = MAGIC_AT + 8;
const MAGIC_AT: usize = 42;
const MAGIC: [u8; 8] = *b"towpath!";
