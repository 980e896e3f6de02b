//! Building a packet from the inside out: payload, transport, network, tunnels, link.

use crate::random::Random;

/// A packet being built: each layer puts its header in front of the bytes so far.
pub(super) struct Layers<'r> {
    random: &'r mut Random,
    bytes: Vec<u8>,
}

/// IP versions.
#[derive(Clone, Copy, PartialEq)]
enum Ip {
    V4,
    V6,
}

impl<'r> Layers<'r> {
    pub(super) fn new(random: &'r mut Random) -> Self {
        let count = *random.pick(&[0, 1, 7, 26, 64, 120, 512]);
        let bytes = random.bytes(count);
        Layers { random, bytes }
    }

    /// Replaces the payload by one of this size.
    pub(super) fn payload_bytes(&mut self, count: usize) {
        self.bytes = self.random.bytes(count);
    }

    /// The whole packet, Ethernet header first.
    pub(super) fn build(mut self) -> Vec<u8> {
        if self.random.one_in(16) {
            self.arp();
            return self.link(0x0806);
        }
        if self.random.one_in(20) {
            let ether_type = *self.random.pick(&[0x88cc, 0x8847, 0x8863, 0x1234, 0x0060]);
            return self.link(ether_type);
        }
        let mut version = self.version();
        let mut protocol = self.transport(version);
        self.network(version, protocol);
        // Up to two tunnels around it.
        while self.random.one_in(5) && self.bytes.len() < 1200 {
            let inner = version;
            version = self.version();
            protocol = self.tunnel(inner);
            self.network(version, protocol);
        }
        self.link(if version == Ip::V4 { 0x0800 } else { 0x86dd })
    }

    fn version(&mut self) -> Ip {
        if self.random.below(5) < 3 { Ip::V4 } else { Ip::V6 }
    }

    fn put(&mut self, header: &[u8]) {
        self.bytes.splice(0..0, header.iter().copied());
    }

    /// Adds a transport header; returns its protocol number.
    fn transport(&mut self, version: Ip) -> u8 {
        match self.random.below(8) {
            0..=2 => {
                self.tcp();
                6
            }
            3..=5 => {
                let port = self.port();
                self.udp(port);
                17
            }
            6 => {
                self.icmp(version);
                if version == Ip::V4 { 1 } else { 58 }
            }
            // ESP, SCTP, an unknown one: opaque to the generator.
            _ => *self.random.pick(&[50, 132, 253]),
        }
    }

    fn port(&mut self) -> u16 {
        let any = self.random.bits() as u16;
        *self.random.pick(&[53, 80, 443, 7, 4789, 12_345, any])
    }

    fn udp(&mut self, destination: u16) {
        let source = self.random.bits() as u16 | 1024;
        let length = (self.bytes.len() + 8) as u16;
        // A zero checksum is legal in IPv4; others are random, as no program can detect that.
        let checksum = if self.random.one_in(2) { 0 } else { self.random.bits() as u16 };
        let words = [source, destination, length, checksum];
        let header: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.put(&header);
    }

    fn tcp(&mut self) {
        let options = *self.random.pick(&[0usize, 0, 4, 12, 20, 40]);
        let mut header = vec![0; 20 + options];
        header[..2].copy_from_slice(&(self.random.bits() as u16 | 1024).to_be_bytes());
        let destination = self.port();
        header[2..4].copy_from_slice(&destination.to_be_bytes());
        header[4..12].copy_from_slice(&self.random.bits().to_be_bytes());
        header[12] = (((20 + options) / 4) as u8) << 4;
        header[13] = *self.random.pick(&[0x02, 0x10, 0x12, 0x18, 0x11, 0x04, 0xff]);
        header[14..16].copy_from_slice(&[0xff, 0xff]);
        if options >= 12 {
            // MSS, SACK permitted, window scale.
            header[20..32].copy_from_slice(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 0, 0]);
        }
        self.put(&header);
    }

    fn icmp(&mut self, version: Ip) {
        let kinds: &[[u8; 2]] = match version {
            Ip::V4 => &[[8, 0], [0, 0], [3, 4], [11, 0]],
            Ip::V6 => &[[128, 0], [129, 0], [2, 0], [135, 0]],
        };
        let [kind, code] = *self.random.pick(kinds);
        let mut header = vec![kind, code, 0, 0];
        header.extend(self.random.bytes(4));
        self.put(&header);
        if version == Ip::V4 {
            let sum = checksum(&self.bytes);
            self.bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Adds a tunnel header around an IP packet; returns the protocol number of the tunnel.
    fn tunnel(&mut self, inner: Ip) -> u8 {
        match self.random.below(4) {
            0 => {
                let ether_type: u16 = if inner == Ip::V4 { 0x0800 } else { 0x86dd };
                let [high, low] = ether_type.to_be_bytes();
                if self.random.one_in(2) {
                    // GRE with a key.
                    self.put(&[0x20, 0, high, low, 1, 2, 3, 4]);
                } else {
                    self.put(&[0, 0, high, low]);
                }
                47
            }
            1 => {
                let ether_type: u16 = if inner == Ip::V4 { 0x0800 } else { 0x86dd };
                self.ethernet(ether_type);
                self.put(&[8, 0, 0, 0, 0, 0, 42, 0]);
                self.udp(4789);
                17
            }
            _ => {
                if inner == Ip::V4 {
                    4
                } else {
                    41
                }
            }
        }
    }

    fn network(&mut self, version: Ip, protocol: u8) {
        match version {
            Ip::V4 => self.ipv4(protocol),
            Ip::V6 => self.ipv6(protocol),
        }
    }

    fn ipv4(&mut self, protocol: u8) {
        let options = if self.random.one_in(8) { 8 } else { 0 };
        let mut header = vec![0; 20 + options];
        header[0] = 0x40 | ((20 + options) / 4) as u8;
        header[1] = *self.random.pick(&[0, 0, 0x10, 0xb8, 3]);
        let total = (self.bytes.len() + header.len()) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&(self.random.bits() as u16).to_be_bytes());
        // "Don't fragment", no flag, first fragment, a later one.
        let fragment = *self.random.pick(&[0x4000, 0x4000, 0, 0x2000, 0x00b9]);
        header[6..8].copy_from_slice(&u16::to_be_bytes(fragment));
        header[8] = *self.random.pick(&[64, 255, 1, 0]);
        header[9] = protocol;
        let (source, destination) = (self.address4(), self.address4());
        header[12..16].copy_from_slice(&source);
        header[16..20].copy_from_slice(&destination);
        if options != 0 {
            header[20..28].copy_from_slice(&[0x94, 4, 0, 0, 1, 1, 1, 0]);
        }
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        self.put(&header);
    }

    /// An address that tables of the programs under test are likely to contain.
    fn address4(&mut self) -> [u8; 4] {
        let low = self.random.bits() as u8;
        *self.random.pick(&[
            [10, 0, 0, low],
            [192, 168, 1, low],
            [127, 0, 0, 1],
            [203, 0, 113, low],
            [224, 0, 0, 1],
        ])
    }

    fn ipv6(&mut self, protocol: u8) {
        let mut next = protocol;
        // Extension headers, innermost first: destination options, fragment, routing, hop-by-hop.
        for kind in [60, 44, 43, 0] {
            if self.random.one_in(6) {
                let length = if kind == 44 { 0 } else { self.random.below(2) as u8 };
                let mut header = vec![0; 8 + usize::from(length) * 8];
                header[0] = next;
                header[1] = length;
                header[2] = 1;
                header[3] = 4;
                self.put(&header);
                next = kind;
            }
        }
        let mut header = vec![0x60, 0, 0, 0, 0, 0, next, *self.random.pick(&[64, 1, 255])];
        header[1..4].copy_from_slice(&self.random.bytes(3));
        header[4..6].copy_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        for _ in 0..2 {
            let mut address = vec![0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            address.push(self.random.below(4) as u8);
            header.extend(address);
        }
        self.put(&header);
    }

    fn arp(&mut self) {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, self.random.below(2) as u8 + 1];
        body.extend(self.random.bytes(20));
        self.bytes = body;
    }

    fn ethernet(&mut self, ether_type: u16) {
        let mut header = self.random.bytes(12);
        header[0] &= 0xfe;
        header.extend(ether_type.to_be_bytes());
        self.put(&header);
    }

    /// Adds the Ethernet header, with none, one or two VLAN tags.
    fn link(mut self, ether_type: u16) -> Vec<u8> {
        let mut ether_type = ether_type;
        let tags = *self.random.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2, 3]);
        for tag in 0..tags {
            let [high, low] = ether_type.to_be_bytes();
            let id = self.random.below(4096) as u16 | (self.random.below(8) as u16) << 13;
            let [id_high, id_low] = id.to_be_bytes();
            self.put(&[id_high, id_low, high, low]);
            ether_type = if tag == 0 { 0x8100 } else { 0x88a8 };
        }
        self.ethernet(ether_type);
        self.bytes
    }
}

/// The Internet checksum (RFC 1071) of bytes in which the checksum field is 0.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
