//! LACPDUs and marker PDUs: parsing and building of frames.
//!
//! IEEE 802.1AX-2020 sections 6.4.2 and 6.5.3. As both require, and as the kernel does, a receiver
//! takes the fields at their fixed places and validates neither version nor TLV types and lengths.

/// Length of the frames that are sent, in bytes: an Ethernet header and 110 bytes.
pub const FRAME_BYTES: usize = 124;

/// The slow protocols' group address, which no bridge forwards.
pub const GROUP_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x02];

/// The slow protocols' EtherType.
pub const ETHERTYPE: u16 = 0x8809;

/// A port's state as a set of bits (IEEE 802.1AX-2020 section 6.4.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State(pub u8);

impl State {
    /// Sends periodically, whether or not it hears a partner.
    pub const ACTIVITY: State = State(0x01);
    /// Wants a LACPDU every second, and gives up after three.
    pub const SHORT_TIMEOUT: State = State(0x02);
    /// May be one of several in an aggregate.
    pub const AGGREGATION: State = State(0x04);
    /// Is in the right aggregate.
    pub const SYNCHRONISATION: State = State(0x08);
    /// Accepts frames.
    pub const COLLECTING: State = State(0x10);
    /// Sends frames.
    pub const DISTRIBUTING: State = State(0x20);
    /// Has heard no partner and assumes one.
    pub const DEFAULTED: State = State(0x40);
    /// Has not heard its partner for too long.
    pub const EXPIRED: State = State(0x80);

    /// Whether all of these bits are set.
    pub fn has(self, bits: State) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// The union of both sets.
    #[must_use]
    pub fn with(self, bits: State) -> State {
        State(self.0 | bits.0)
    }

    pub(super) fn set(&mut self, bits: State, on: bool) {
        if on {
            self.0 |= bits.0;
        } else {
            self.0 &= !bits.0;
        }
    }

    /// Whether both have the same values of these bits.
    pub(super) fn agrees(self, other: State, bits: State) -> bool {
        (self.0 ^ other.0) & bits.0 == 0
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = ["act", "short", "aggr", "sync", "coll", "dist", "def", "exp"];
        let set = names.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 != 0);
        f.debug_set().entries(set.map(|(_, name)| name)).finish()
    }
}

/// Information about an end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PortInfo {
    /// Lower is better.
    pub system_priority: u16,
    /// MAC address of the system; zero when no partner is known.
    pub system: [u8; 6],
    /// Ports with the same key may be aggregated.
    pub key: u16,
    /// Lower is better.
    pub port_priority: u16,
    /// Number of the port within its system.
    pub port: u16,
    /// State bits.
    pub state: State,
}

/// A LACPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacpdu {
    /// The sender.
    pub actor: PortInfo,
    /// The sender's information about the receiver.
    pub partner: PortInfo,
}

/// A slow-protocol frame that concerns bonds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu<'a> {
    /// A LACPDU.
    Lacp(Lacpdu),
    /// A marker, which asks whether all frames before it have arrived: the 110 bytes behind the
    /// header.
    Marker(&'a [u8; PDU_BYTES]),
    /// The answer to a marker; this side sends no markers.
    MarkerResponse,
    /// Subtype 2 with an undefined type.
    MarkerUnknown,
}

/// Parses a frame from its Ethernet header on.
///
/// Returns `None` for any other destination or type, another slow protocol, and a frame that is too
/// short.
pub fn parse(frame: &[u8]) -> Option<Pdu<'_>> {
    let (header, rest) = frame.split_first_chunk::<HEADER_BYTES>()?;
    if header[..6] != GROUP_ADDRESS || header[12..] != ETHERTYPE.to_be_bytes() {
        return None;
    }
    let pdu = rest.first_chunk::<PDU_BYTES>()?;
    match (pdu[0], pdu[2]) {
        (SUBTYPE_LACP, _) => {
            let [actor, partner] = [ACTOR_AT, PARTNER_AT].map(|at| read_info(&pdu[at..]));
            Some(Pdu::Lacp(Lacpdu { actor, partner }))
        }
        (SUBTYPE_MARKER, MARKER_INFORMATION) => Some(Pdu::Marker(pdu)),
        (SUBTYPE_MARKER, MARKER_RESPONSE) => Some(Pdu::MarkerResponse),
        (SUBTYPE_MARKER, _) => Some(Pdu::MarkerUnknown),
        _ => None,
    }
}

/// The frame of a LACPDU; `source` is the member's own address, not the bond's.
pub fn build(source: [u8; 6], lacpdu: &Lacpdu) -> [u8; FRAME_BYTES] {
    let mut frame = begin(source);
    let pdu = &mut frame[HEADER_BYTES..];
    pdu[..2].copy_from_slice(&[SUBTYPE_LACP, VERSION]);
    for (at, kind, info) in [(ACTOR_AT, 1, &lacpdu.actor), (PARTNER_AT, 2, &lacpdu.partner)] {
        pdu[at..at + 2].copy_from_slice(&[kind, INFO_BYTES as u8]);
        write_info(&mut pdu[at..], info);
    }
    // Collector information: a maximum delay of 0. The terminator is zeros like the rest.
    pdu[COLLECTOR_AT..COLLECTOR_AT + 2].copy_from_slice(&[3, 16]);
    frame
}

/// The response to a marker: the same bytes with another type.
pub fn build_marker_response(source: [u8; 6], marker: &[u8; PDU_BYTES]) -> [u8; FRAME_BYTES] {
    let mut frame = begin(source);
    frame[HEADER_BYTES..].copy_from_slice(marker);
    frame[HEADER_BYTES + 2] = MARKER_RESPONSE;
    frame
}

fn begin(source: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&GROUP_ADDRESS);
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame
}

/// Reads a TLV of at least [`INFO_BYTES`] bytes.
fn read_info(tlv: &[u8]) -> PortInfo {
    let u16_at = |at: usize| u16::from_be_bytes([tlv[at], tlv[at + 1]]);
    PortInfo {
        system_priority: u16_at(2),
        system: [tlv[4], tlv[5], tlv[6], tlv[7], tlv[8], tlv[9]],
        key: u16_at(10),
        port_priority: u16_at(12),
        port: u16_at(14),
        state: State(tlv[16]),
    }
}

fn write_info(tlv: &mut [u8], info: &PortInfo) {
    let PortInfo { system_priority, system, key, port_priority, port, state } = info;
    tlv[2..4].copy_from_slice(&system_priority.to_be_bytes());
    tlv[4..10].copy_from_slice(system);
    tlv[10..12].copy_from_slice(&key.to_be_bytes());
    tlv[12..14].copy_from_slice(&port_priority.to_be_bytes());
    tlv[14..16].copy_from_slice(&port.to_be_bytes());
    tlv[16] = state.0;
}

/// Bytes after the Ethernet header.
pub const PDU_BYTES: usize = FRAME_BYTES - HEADER_BYTES;

const HEADER_BYTES: usize = 14;
const SUBTYPE_LACP: u8 = 1;
const SUBTYPE_MARKER: u8 = 2;
const VERSION: u8 = 1;
const MARKER_INFORMATION: u8 = 1;
const MARKER_RESPONSE: u8 = 2;

/// Where the TLVs are within the PDU, and how long an information TLV is.
const ACTOR_AT: usize = 2;
const PARTNER_AT: usize = ACTOR_AT + INFO_BYTES;
const COLLECTOR_AT: usize = PARTNER_AT + INFO_BYTES;
const INFO_BYTES: usize = 20;
const _: () =
    assert!(PDU_BYTES == 110 && HEADER_BYTES + PDU_BYTES == FRAME_BYTES, "IEEE 802.1AX, 6.4.2.3");
const _: () = assert!(COLLECTOR_AT < PDU_BYTES, "the collector is inside");

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Lacpdu {
        let actor = PortInfo {
            system_priority: 0xffff,
            system: [2, 0, 0, 0, 0, 1],
            key: 15,
            port_priority: 255,
            port: 1,
            state: State(0x3d),
        };
        let partner = PortInfo { system: [2, 0, 0, 0, 0, 2], port: 2, ..actor };
        Lacpdu { actor, partner }
    }

    #[test]
    fn a_frame_has_the_bytes_that_the_standard_says() {
        let frame = build([2, 0, 0, 0, 0, 0x11], &example());
        let mut expected = Vec::new();
        expected.extend([1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 0x11, 0x88, 0x09, 1, 1]);
        expected.extend([1, 20, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0, 15, 0, 255, 0, 1, 0x3d, 0, 0, 0]);
        expected.extend([2, 20, 0xff, 0xff, 2, 0, 0, 0, 0, 2, 0, 15, 0, 255, 0, 2, 0x3d, 0, 0, 0]);
        expected.extend([3, 16]);
        expected.resize(FRAME_BYTES, 0);
        assert_eq!(frame[..], expected);
        assert_eq!(parse(&frame), Some(Pdu::Lacp(example())));
    }

    #[test]
    fn every_prefix_and_other_destinations_are_not_ours() {
        let frame = build([2; 6], &example());
        for len in 0..FRAME_BYTES {
            assert_eq!(parse(&frame[..len]), None, "{len} bytes");
        }
        for (at, value) in [(0, 0), (5, 3), (12, 8), (13, 0), (14, 3), (14, 10)] {
            let mut other = frame;
            other[at] = value;
            assert_eq!(parse(&other), None, "byte {at}");
        }
    }

    #[test]
    fn version_and_types_are_not_validated() {
        let mut frame = build([2; 6], &example());
        for at in [15, 16, 17, 36, 37, 56, 57] {
            frame[at] = 0xee;
        }
        assert_eq!(parse(&frame), Some(Pdu::Lacp(example())));
    }

    #[test]
    fn a_marker_is_answered_with_its_own_bytes() {
        let mut asked = begin([2, 0, 0, 0, 0, 9]);
        let fields = [2, 1, 1, 22, 0, 7, 2, 0, 0, 0, 0, 9, 0xde, 0xad, 0xbe, 0xef];
        asked[14..30].copy_from_slice(&fields);
        let Some(Pdu::Marker(marker)) = parse(&asked) else { panic!("no marker") };
        let answer = build_marker_response([2, 0, 0, 0, 0, 1], marker);
        assert_eq!(answer[6..12], [2, 0, 0, 0, 0, 1]);
        assert_eq!(answer[16], 2);
        assert_eq!(answer[17..], asked[17..]);
        assert_eq!(parse(&answer), Some(Pdu::MarkerResponse));
        asked[16] = 9;
        assert_eq!(parse(&asked), Some(Pdu::MarkerUnknown));
    }
}
