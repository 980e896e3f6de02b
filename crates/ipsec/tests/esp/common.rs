//! Packets and SAs for the tests.

use std::net::IpAddr;
use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{
    Config, Direct, Direction, Encapsulation, Engine, Esp, Job, Keys, Mode, OwnedBuffer, Refusal,
    Refused, Sa, Suite, Table, TableLimits, Tunnel, finish,
};

pub(crate) const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
pub(crate) const SPI: u32 = 0x1234_5678;

/// What a pair of SAs is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) suite: Suite,
    pub(crate) is_tunnel: bool,
    pub(crate) is_outer_v6: bool,
    pub(crate) is_inner_v6: bool,
    pub(crate) is_udp: bool,
    pub(crate) esn: bool,
}

impl Case {
    /// Every combination of a suite with the rest; in transport mode the families are one.
    pub(crate) fn all(suite: Suite) -> impl Iterator<Item = Case> {
        (0..32u8).filter_map(move |bits| {
            let bit = |index: u8| bits >> index & 1 == 1;
            let case = Case {
                suite,
                is_tunnel: bit(0),
                is_outer_v6: bit(1),
                is_inner_v6: bit(2),
                is_udp: bit(3),
                esn: bit(4),
            };
            (case.is_tunnel || case.is_outer_v6 == case.is_inner_v6).then_some(case)
        })
    }

    pub(crate) fn config(&self, direction: Direction, keys: Keys) -> Config {
        let (source, destination) = outer(self.is_outer_v6);
        let mut config = Config::outbound(SPI, source, destination, self.suite, keys);
        config.direction = direction;
        config.mode = match self.is_tunnel {
            true => Mode::Tunnel(Tunnel::default()),
            false => Mode::Transport,
        };
        config.encapsulation =
            self.is_udp.then_some(Encapsulation { source_port: 4500, destination_port: 4501 });
        config.replay.esn = self.esn;
        config
    }

    /// Both ends of an SA.
    pub(crate) fn pair(&self, random: &mut Rng) -> (Arc<Sa>, Arc<Sa>) {
        let keys = keys(self.suite, random);
        let outbound = sa(self.config(Direction::Outbound, keys.clone()));
        (outbound, sa(self.config(Direction::Inbound, keys)))
    }
}

pub(crate) fn sa(config: Config) -> Arc<Sa> {
    Arc::new(Sa::new(1, config, 0).expect("a good description"))
}

pub(crate) fn outer(is_v6: bool) -> (IpAddr, IpAddr) {
    let texts = if is_v6 { ["2001:db8::1", "2001:db8::2"] } else { ["192.0.2.1", "192.0.2.2"] };
    let [source, destination] = texts.map(|text| text.parse().expect("an address"));
    (source, destination)
}

pub(crate) fn keys(suite: Suite, random: &mut Rng) -> Keys {
    let mut bytes = |len| (0..len).map(|_| random.u8(..)).collect();
    Keys::new(bytes(suite.encryption_key_len()), bytes(suite.integrity_key_len()))
}

/// An IP packet with the addresses of a case in transport mode, or others in tunnel mode.
pub(crate) fn ip(case: &Case, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = match case.is_tunnel {
        true if case.is_inner_v6 => ("fd00::1".parse(), "fd00::2".parse()),
        true => ("10.1.0.1".parse(), "10.2.0.2".parse()),
        false => {
            let (source, destination) = outer(case.is_outer_v6);
            (Ok(source), Ok(destination))
        }
    };
    ip_packet(source.expect("one"), destination.expect("one"), protocol, payload)
}

/// An IP packet. Its headers are written here and not by the crate under test.
pub(crate) fn ip_packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + payload.len()) as u16;
            let mut header = vec![0x45, 0, 0, 0, 0xab, 0xcd, 0, 0, 63, protocol, 0, 0];
            header[2..4].copy_from_slice(&total.to_be_bytes());
            header.extend(from.octets());
            header.extend(to.octets());
            let checksum = checksum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header.extend(payload);
            header
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let len = (payload.len() as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, len[0], len[1], protocol, 63];
            header.extend(from.octets());
            header.extend(to.octets());
            header.extend(payload);
            header
        }
        _ => panic!("two families"),
    }
}

/// RFC 1071, in its simplest form.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| u64::from(byte));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A UDP packet without checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::from(from.to_be_bytes());
    packet.extend(to.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

pub(crate) fn frame(ip: &[u8]) -> Vec<u8> {
    let ethertype = if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    [&MACS, &ethertype[..], ip].concat()
}

/// One packet by [`Locked::encap`](towpath_ipsec::Locked::encap).
pub(crate) fn encap(
    sa: &Arc<Sa>,
    buffer: OwnedBuffer,
    now: u64,
) -> Result<Job<OwnedBuffer>, Refused<OwnedBuffer>> {
    let mut jobs = Vec::new();
    sa.lock(now).encap(buffer, &mut jobs)?;
    Ok(jobs.remove(0))
}

/// One packet by [`Locked::decap`](towpath_ipsec::Locked::decap).
pub(crate) fn decap(
    sa: &Arc<Sa>,
    buffer: OwnedBuffer,
    esp: &Esp,
) -> Result<Job<OwnedBuffer>, Refused<OwnedBuffer>> {
    let mut jobs = Vec::new();
    sa.lock(0).decap(buffer, esp, &mut jobs)?;
    Ok(jobs.remove(0))
}

/// Runs a job.
pub(crate) fn run(job: Job<OwnedBuffer>) -> Job<OwnedBuffer> {
    let mut engine = Direct::new(1);
    let mut jobs = vec![job];
    engine.submit(&mut jobs);
    engine.complete(&mut jobs);
    jobs.remove(0)
}

/// Encapsulates a frame.
pub(crate) fn send(sa: &Arc<Sa>, frame: &[u8]) -> Result<Vec<u8>, Refusal> {
    send_from(sa, OwnedBuffer::new(frame))
}

pub(crate) fn send_from(sa: &Arc<Sa>, buffer: OwnedBuffer) -> Result<Vec<u8>, Refusal> {
    let job = encap(sa, buffer, 0).map_err(|refused| refused.reason)?;
    let done = finish(run(job), 0).map_err(|refused| refused.reason)?;
    Ok(done.buffer.as_ref().to_vec())
}

/// Decapsulates a frame.
pub(crate) fn receive(sa: &Arc<Sa>, frame: &[u8]) -> Result<Vec<u8>, Refusal> {
    open(sa, frame).map_err(|(reason, _)| reason)
}

/// As [`receive`]; with the contents of a refused buffer.
pub(crate) fn open(sa: &Arc<Sa>, frame: &[u8]) -> Result<Vec<u8>, (Refusal, Vec<u8>)> {
    let esp = Esp::of_frame(frame).map_err(|reason| (reason, frame.to_vec()))?;
    let buffer = OwnedBuffer::new(frame);
    let refused = |it: Refused<OwnedBuffer>| (it.reason, it.buffer.as_ref().into());
    let job = decap(sa, buffer, &esp).map_err(refused)?;
    let done = finish(run(job), 0).map_err(refused)?;
    Ok(done.buffer.as_ref().to_vec())
}

pub(crate) fn table() -> Table {
    Table::new(TableLimits { sas: 64, policies: 64 })
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("ASCII");
        u8::from_str_radix(text, 16).expect("digits")
    };
    digits.chunks(2).map(byte).collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
