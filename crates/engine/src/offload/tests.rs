use std::sync::Arc;

use fastrand::Rng;
use towpath_xdp::Arena;

use super::*;

fn some(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}

/// RFC 1071, word by word: 0 says that a packet's own checksum is right.
fn rest(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u64::from(high) << 8 | u64::from(low),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Description of a packet to build.
#[derive(Debug, Clone, Copy)]
struct Shape {
    is_v6: bool,
    protocol: u8,
    tags: usize,
    /// Bytes of IPv4 options or of IPv6 destination options; a multiple of 8.
    options: usize,
    /// Bytes of TCP options; a multiple of 4.
    tcp_options: usize,
}

impl Shape {
    fn random(random: &mut Rng) -> Shape {
        let protocol = [IPPROTO_TCP, IPPROTO_UDP][random.usize(..2)];
        Shape {
            is_v6: random.usize(..2) == 1,
            protocol,
            tags: random.usize(..3),
            options: random.usize(..4) * 8,
            tcp_options: random.usize(..4) * 4,
        }
    }

    fn kind(self) -> GsoKind {
        match (self.protocol, self.is_v6) {
            (IPPROTO_UDP, _) => GsoKind::UdpL4,
            (_, false) => GsoKind::Tcp4,
            (_, true) => GsoKind::Tcp6,
        }
    }

    fn network(self) -> usize {
        14 + 4 * self.tags
    }

    fn transport(self) -> usize {
        self.network() + if self.is_v6 { 40 } else { 20 } + self.options
    }

    fn payload(self) -> usize {
        self.transport() + if self.protocol == IPPROTO_TCP { 20 + self.tcp_options } else { 8 }
    }

    /// Where the transport's checksum is.
    fn check(self) -> usize {
        self.transport() + if self.protocol == IPPROTO_TCP { 16 } else { 6 }
    }

    /// A packet as a stack hands it to a device with segmentation and checksum offload: lengths of
    /// the whole packet, and the pseudo-header sum in the checksum field.
    fn packet(self, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![2; 12];
        for _ in 0..self.tags {
            packet.extend([0x81, 0, 0, 5]);
        }
        let transport_bytes = self.payload() - self.transport() + payload.len();
        match self.is_v6 {
            false => {
                let ip_bytes = (20 + self.options + transport_bytes) as u16;
                packet.extend([0x08, 0x00, 0x45 + (self.options / 4) as u8, 0]);
                packet.extend(ip_bytes.to_be_bytes());
                packet.extend([0xff, 0xfe, 0x40, 0, 64, self.protocol, 0, 0]);
                packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
                packet.extend(vec![1; self.options]);
            }
            true => {
                let ip_bytes = (self.options + transport_bytes) as u16;
                let next = if self.options > 0 { 60 } else { self.protocol };
                packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                packet.extend(ip_bytes.to_be_bytes());
                packet.extend([next, 64]);
                packet.extend([0xfd; 32]);
                if self.options > 0 {
                    packet.extend([self.protocol, (self.options / 8 - 1) as u8]);
                    packet.extend(vec![0; self.options - 2]);
                }
            }
        }
        match self.protocol {
            IPPROTO_TCP => {
                let words = (20 + self.tcp_options) as u8 / 4;
                packet.extend([0, 80, 0x80, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1]);
                packet.extend([words << 4, TCP_CWR | 0x10 | TCP_PSH | TCP_FIN, 1, 0, 0, 0, 0, 0]);
                packet.extend(vec![1; self.tcp_options]);
            }
            _ => {
                packet.extend([0, 80, 0x80, 0]);
                packet.extend((transport_bytes as u16).to_be_bytes());
                packet.extend([0, 0]);
            }
        }
        packet.extend(payload);
        let pseudo = self.pseudo(&packet);
        let check = self.check();
        packet[check..check + 2].copy_from_slice(&(!rest(&pseudo)).to_be_bytes());
        packet
    }

    fn pseudo(self, packet: &[u8]) -> Vec<u8> {
        let network = self.network();
        let addresses =
            if self.is_v6 { network + 8..network + 40 } else { network + 12..network + 20 };
        let mut pseudo = packet[addresses].to_vec();
        pseudo.extend((packet.len() as u32 - self.transport() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, self.protocol]);
        pseudo
    }

    /// Checks lengths and checksums of a packet, as a receiver does.
    fn check_packet(self, packet: &[u8]) {
        let (network, transport) = (self.network(), self.transport());
        let ip_bytes = if self.is_v6 {
            usize::from(be16(packet, network + 4).unwrap()) + 40
        } else {
            assert_eq!(rest(&packet[network..network + 20 + self.options]), 0, "IP header");
            usize::from(be16(packet, network + 2).unwrap())
        };
        assert_eq!(ip_bytes, packet.len() - network, "{self:?}");
        let mut summed = self.pseudo(packet);
        summed.extend(&packet[transport..]);
        assert_eq!(rest(&summed), 0, "{self:?}: checksum of {} bytes", packet.len());
        if self.protocol == IPPROTO_UDP {
            let len = usize::from(be16(packet, transport + 4).unwrap());
            assert_eq!(len, packet.len() - transport);
            assert_ne!(be16(packet, transport + 6), Some(0), "0 would mean that there is none");
        }
    }

    fn offload(self, size: u16) -> Offload {
        let start = self.transport();
        let checksum = Checksum { start: start as u16, offset: (self.check() - start) as u16 };
        let gso = Gso { kind: self.kind(), size, header: self.payload() as u16, ecn: false };
        Offload { checksum: Some(checksum), gso: Some(gso) }
    }
}

const PLAIN: Features = Features {
    rx_frags: false,
    tx_frags: false,
    tx_checksum: false,
    tx_tso: false,
    tx_uso: false,
    rx_checksum: false,
    zero_copy: false,
    rx_hints: crate::port::RxHints::NONE,
    rx_offloads: false,
};

fn pool() -> (Arc<Arena>, Pool) {
    let arena = Arena::new(256).unwrap();
    let pool = Pool::new(&arena);
    (arena, pool)
}

#[test]
fn sums_do_not_depend_on_pieces() {
    let mut random = Rng::with_seed(1);
    for _ in 0..500 {
        let len = random.usize(..3000);
        let bytes = some(&mut random, len);
        let mut sum = Sum::default();
        let mut left = &bytes[..];
        while !left.is_empty() {
            let (piece, others) = left.split_at((1 + random.usize(..300)).min(left.len()));
            sum.add(piece);
            left = others;
        }
        assert_eq!(!sum.fold(), rest(&bytes), "{len} bytes");
    }
    let mut ones = Sum::default();
    ones.add(&[0xff; 60000]);
    assert_eq!(ones.fold(), 0xffff);
}

#[test]
fn segments_are_packets_that_add_up() {
    let mut random = Rng::with_seed(2);
    let (_arena, mut pool) = pool();
    for _ in 0..300 {
        let shape = Shape::random(&mut random);
        let (size, len) = (1 + random.usize(..4000), 1 + random.usize(..60_000));
        // Another test covers more segments than the arena has frames.
        let size = size.max(len / 100);
        let payload = some(&mut random, len);
        let mut frame = pool.frame(&shape.packet(&payload)).unwrap().unwrap();
        frame.set_offload(Some(shape.offload(size as u16)));
        frame.rx.ifindex = 7;
        let mut out = Vec::new();
        let has_frags = random.usize(..2) == 1;
        let features = Features { tx_frags: has_frags, ..PLAIN };
        assert!(prepare_xmit(frame, &features, &mut pool, &mut out).unwrap(), "it was cut");
        assert_eq!(out.len(), len.div_ceil(size));
        let mut joined = Vec::new();
        for (index, piece) in out.iter().enumerate() {
            let bytes = piece.to_vec();
            shape.check_packet(&bytes);
            check_numbers(shape, &bytes, index, joined.len(), index + 1 == out.len());
            assert_eq!((piece.rx.ifindex, piece.offload()), (7, None));
            assert!(has_frags || !piece.has_frags());
            joined.extend_from_slice(&bytes[shape.payload()..]);
        }
        assert_eq!(joined, payload, "{shape:?}");
        pool.give_all(&mut out);
    }
}

/// Identification, sequence number and flags of a segment.
fn check_numbers(shape: Shape, bytes: &[u8], index: usize, offset: usize, is_last: bool) {
    if !shape.is_v6 {
        let id = be16(bytes, shape.network() + 4).unwrap();
        assert_eq!(id, 0xfffe_u16.wrapping_add(index as u16));
    }
    if shape.protocol == IPPROTO_TCP {
        let tcp = &bytes[shape.transport()..];
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(offset as u32));
        assert_eq!(tcp[13] & (TCP_FIN | TCP_PSH) != 0, is_last);
        assert_eq!(tcp[13] & TCP_CWR != 0, index == 0);
    }
}

#[test]
fn checksums_are_completed_across_buffers() {
    let mut random = Rng::with_seed(3);
    let (_arena, mut pool) = pool();
    for _ in 0..300 {
        let shape = Shape::random(&mut random);
        let len = random.usize(..9000);
        let mut frame = pool.frame(&shape.packet(&some(&mut random, len))).unwrap().unwrap();
        frame.set_offload(Some(Offload { gso: None, ..shape.offload(1) }));
        let mut out = Vec::new();
        let features = Features { tx_frags: random.usize(..2) == 1, ..PLAIN };
        assert!(!prepare_xmit(frame, &features, &mut pool, &mut out).unwrap(), "nothing was cut");
        if !shape.is_v6 {
            // The IP header's checksum is complete, as from every stack.
            let (network, transport) = (shape.network(), shape.transport());
            let sum = rest(&out[0].to_vec()[network..transport]);
            out[0].copy_to(network + 10, &sum.to_be_bytes());
        }
        shape.check_packet(&out[0].to_vec());
        assert_eq!((out.len(), out[0].offload()), (1, None));
        assert!(features.tx_frags || !out[0].has_frags());
        pool.give_all(&mut out);
    }
}

#[test]
fn what_a_port_does_itself_is_left_alone() {
    let (_arena, mut pool) = pool();
    let shape = Shape { is_v6: false, protocol: 6, tags: 0, options: 0, tcp_options: 12 };
    let packet = shape.packet(&[7; 20_000]);
    let all = Features { tx_frags: true, tx_checksum: true, tx_tso: true, ..PLAIN };
    for (features, is_cut) in [
        (all, false),
        (Features { tx_frags: false, ..all }, false),
        (Features { tx_checksum: false, ..all }, true),
        (Features { tx_tso: false, tx_uso: true, ..all }, true),
    ] {
        let mut frame = pool.frame(&packet).unwrap().unwrap();
        frame.set_offload(Some(shape.offload(1448)));
        let mut out = Vec::new();
        assert_eq!(prepare_xmit(frame, &features, &mut pool, &mut out).unwrap(), is_cut);
        if !is_cut {
            assert_eq!(out[0].to_vec(), packet);
            assert_eq!(out[0].offload(), Some(shape.offload(1448)));
            assert_eq!(out[0].has_frags(), features.tx_frags);
        }
        pool.give_all(&mut out);
    }
}

#[test]
fn contradictions_give_the_frame_back() {
    let mut random = Rng::with_seed(4);
    let (arena, mut pool) = pool();
    for _ in 0..3000 {
        let shape = Shape::random(&mut random);
        let len = 1 + random.usize(..400);
        let mut packet = shape.packet(&some(&mut random, len));
        // Truncated, or with some header bytes replaced.
        packet.truncate(14 + random.usize(..packet.len() - 13));
        for _ in 0..random.usize(..4) {
            let at = random.usize(..packet.len().min(120));
            packet[at] = random.usize(..256) as u8;
        }
        let mut offload = shape.offload(random.usize(..300) as u16);
        if random.usize(..4) == 0 {
            let (start, offset) = (random.usize(..70_000) as u16, random.usize(..70_000) as u16);
            offload.checksum = Some(Checksum { start, offset });
        }
        if random.usize(..2) == 0 {
            offload.gso = None;
        }
        let mut frame = pool.frame(&packet).unwrap().unwrap();
        frame.set_offload(Some(offload));
        let mut out = Vec::new();
        match prepare_xmit(frame, &PLAIN, &mut pool, &mut out) {
            Ok(_) => pool.give_all(&mut out),
            Err((frame, _why)) => {
                assert!(out.is_empty(), "nothing of it is sent");
                pool.give(frame);
            }
        }
    }
    drop(pool);
    assert_eq!(arena.free(), arena.total(), "no frame is lost");
}

#[test]
fn without_memory_nothing_is_sent() {
    let arena = Arena::new(20).unwrap();
    let mut pool = Pool::new(&arena);
    let shape = Shape { is_v6: true, protocol: 17, tags: 1, options: 8, tcp_options: 0 };
    let mut frame = pool.frame(&shape.packet(&[1; 30_000])).unwrap().unwrap();
    frame.set_offload(Some(shape.offload(1000)));
    let mut out = Vec::new();
    let (frame, why) = prepare_xmit(frame, &PLAIN, &mut pool, &mut out).unwrap_err();
    assert_eq!((why, out.len()), (DropReason::NoMemory, 0));
    pool.give(frame);
    drop(pool);
    assert_eq!(arena.free(), arena.total());
}
