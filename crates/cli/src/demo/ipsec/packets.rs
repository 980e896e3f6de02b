//! Packets of the demo: datagrams whose payload is text.

/// Datagrams from the host behind gateway A to the host behind gateway B, of several lengths, as
/// Ethernet frames. Some go to services that one of the programs blocks.
pub(super) fn datagrams(count: usize, blocked: [u16; 2]) -> Vec<Vec<u8>> {
    let datagram = |number: usize| {
        let port = match number % 32 {
            7 => blocked[0],
            23 => blocked[1],
            _ => SERVICE,
        };
        datagram(port, &text(number, PAYLOADS[number % PAYLOADS.len()]))
    };
    (0..count).map(datagram).collect()
}

/// A datagram with this payload, as an Ethernet frame.
pub(super) fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 28) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 8, 0, 0x45, 0];
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
    let words =
        frame[ETHERNET..].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(SERVICE.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((len - 20).to_be_bytes());
    // No checksum.
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// The UDP port of a datagram to which it goes.
pub(super) fn port_of(frame: &[u8]) -> u16 {
    let at = ETHERNET + 22;
    frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// SPI and sequence number of an ESP packet after an IPv4 header without options.
pub(super) fn esp_header(frame: &[u8]) -> (u32, u32) {
    let word = |at: usize| {
        let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    (word(ETHERNET + 20), word(ETHERNET + 24))
}

/// Text of this length that begins with a packet's number.
fn text(number: usize, len: usize) -> Vec<u8> {
    format!("Packet {number} is not for everyone. ")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(len)
        .collect()
}

/// Bytes of the Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// Text in each packet, and on no wire.
pub(super) const SECRET: &[u8] = b" is not for everyone.";
const SERVICE: u16 = 7000;
/// Lengths of payloads, in turn.
const PAYLOADS: [usize; 5] = [52, 200, 512, 1000, 1386];
