//! Frames through accelerators: out of one end of a tunnel and into the other.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::net::IpAddr;
use std::sync::Arc;

use towpath_engine::{Engine, PortId, PortOptions};
use towpath_ipsec::{
    Action, Aead, Cipher, Config, Direction, Esp, Hmac, Keys, Lifetime, Limits, Mode, Policy,
    Prefix, Selector, Suite, Table, TableLimits, Tunnel,
};
use towpath_ports::ipsec::{EspMeta, Ipsec, Options, Status, now};
use towpath_workload::small;

use crate::wire::{Wire, attach, engine, load, settled, wait_for};
use crate::{PASS, upper};

const NEAR: &str = "192.0.2.1";
const FAR: &str = "192.0.2.2";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Everything of IPv4, by the SAs with this reqid.
fn protect(reqid: u32) -> Policy {
    let all = Prefix { address: address("0.0.0.0"), len: 0 };
    let selector = Selector {
        source: all,
        destination: all,
        protocol: None,
        source_port: None,
        destination_port: None,
    };
    Policy { selector, priority: 1, action: Action::Protect(reqid) }
}

fn suites() -> [(Suite, Keys); 2] {
    let cbc = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
    [
        (Suite::Aead(Aead::Aes128Gcm), Keys::new(vec![7; 20], Vec::new())),
        (cbc, Keys::new(vec![7; 16], vec![9; 20])),
    ]
}

fn config(direction: Direction, spi: u32, (suite, keys): (Suite, Keys)) -> Config {
    let config = match direction {
        Direction::Outbound => Config::outbound(spi, address(NEAR), address(FAR), suite, keys),
        Direction::Inbound => Config::inbound(spi, address(NEAR), address(FAR), suite, keys),
    };
    Config { mode: Mode::Tunnel(Tunnel::default()), ..config }
}

/// A packet of UDP from one flow to another, with a number.
fn packet(number: u16, len: usize) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend((len as u16).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0x30, 0x39, 0, 99]);
    packet.extend((len as u16 - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(number.to_be_bytes());
    packet.resize(14 + len, 0x5a);
    let sum: u32 =
        packet[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A port `plain` whose frames go to `esp`, and from there to `out`.
struct Lab {
    engine: Engine,
    plain: Wire,
    esp: PortId,
    out: Wire,
    table: Arc<Table>,
}

impl Lab {
    fn new(workers: usize, options: Options) -> Lab {
        let engine = engine(workers);
        let plain = Wire::new(&engine, "plain", 11);
        let out = Wire::new(&engine, "out", 12);
        let table = Arc::new(Table::new(TableLimits::default()));
        let port = PortOptions { ifindex: Some(13), ..PortOptions::new("esp") };
        let device = Ipsec::new(options, Arc::clone(&table));
        let esp = engine.add_port(port, Box::new(device)).unwrap();
        attach(&engine, plain.port, &[(&load(small::redirect(13)), PASS)]);
        upper(&engine, esp, "out");
        Lab { engine, plain, esp, out, table }
    }

    fn refused(&self, name: &str) -> String {
        self.engine.read(|_, snapshot| {
            let details = snapshot.port(self.esp).unwrap().opened.device.details();
            let found = details.into_iter().find(|detail| detail.0 == name);
            found.map_or_else(String::new, |detail| detail.1)
        })
    }

    fn through(&mut self, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.plain.send(packets);
        let mut got = Vec::new();
        wait_for("frames", || {
            got.extend(self.out.received());
            got.len() >= packets.len()
        });
        got
    }
}

#[test]
fn what_one_end_encapsulates_the_other_decapsulates() {
    for (suite, keys) in suites() {
        for queues in [1, 3] {
            let options = || Options { queues, ..Options::default() };
            let (mut near, mut far) = (Lab::new(2, options()), Lab::new(1, options()));
            let sender =
                Config { reqid: 5, ..config(Direction::Outbound, 0x1000, (suite, keys.clone())) };
            near.table.add(sender, now()).unwrap();
            near.table.add_policy(protect(5)).unwrap();
            far.table
                .add(config(Direction::Inbound, 0x1000, (suite, keys.clone())), now())
                .unwrap();
            let sent: Vec<_> =
                (0..300).map(|number| packet(number, 80 + usize::from(number) * 4)).collect();
            let wire = near.through(&sent);
            for (number, (frame, plain)) in wire.iter().zip(&sent).enumerate() {
                let esp = Esp::of_frame(frame).unwrap();
                assert_eq!((esp.spi(), esp.is_udp()), (0x1000, false));
                assert!(!frame.windows(20).any(|it| it == &plain[42..62]), "plaintext is sent");
                let sequence = u32::from_be_bytes(*frame[38..42].first_chunk().unwrap());
                assert_eq!(sequence, number as u32 + 1, "in order");
            }
            assert_eq!(far.through(&wire), sent);
            // The same ones again are replays.
            far.plain.send(&wire[250..]);
            settled(&far.engine, far.plain.port, 350);
            let sa = Arc::clone(&far.table.list()[0]);
            let replayed = || sa.statistics().refused.get(towpath_ipsec::Refusal::Replayed);
            wait_for("replays", || replayed() == 50);
            assert_eq!(far.out.received(), Vec::<Vec<u8>>::new());
        }
    }
}

/// The port's MTU leaves room for what ESP adds; ESP packets of full length are longer than it.
#[test]
fn packets_as_long_as_the_mtu_come_back() {
    let [suite, _] = suites();
    let options = || Options { mtu: 1400, ..Options::default() };
    let (mut near, mut far) = (Lab::new(1, options()), Lab::new(1, options()));
    let sender = Config { reqid: 5, ..config(Direction::Outbound, 0x1000, suite.clone()) };
    near.table.add(sender, now()).unwrap();
    near.table.add_policy(protect(5)).unwrap();
    far.table.add(config(Direction::Inbound, 0x1000, suite), now()).unwrap();
    let sent = [packet(1, 1400)];
    let wire = near.through(&sent);
    assert!(wire[0].len() > 14 + 1400 + 4, "longer than a frame of the MTU");
    assert_eq!(far.through(&wire), sent);
}

#[test]
fn frames_without_an_sa_are_dropped_by_name_and_never_sent_as_they_are() {
    let mut lab = Lab::new(1, Options::default());
    let count = |lab: &Lab, name: &str, count: &str| {
        wait_for(name, || lab.refused(name) == count);
    };
    // No policy at all.
    lab.plain.send(&[packet(1, 100)]);
    count(&lab, "no_policy", "1");
    // A policy without an SA.
    lab.table.add_policy(protect(5)).unwrap();
    lab.plain.send(&[packet(2, 100), packet(3, 100)]);
    count(&lab, "no_sa", "2");
    // No IP.
    let mut arp = packet(4, 100);
    arp[13] = 6;
    lab.plain.send(&[arp]);
    count(&lab, "not_ip", "1");
    // An SA that has ended.
    let [(suite, keys), _] = suites();
    let limit = Limits { packets: Some(1), ..Limits::default() };
    let lifetime = Lifetime { hard: limit, ..Lifetime::default() };
    let sa = Config { reqid: 5, lifetime, ..config(Direction::Outbound, 256, (suite, keys)) };
    let sa = lab.table.add(sa, now()).unwrap();
    assert_eq!(lab.through(&[packet(5, 100)]).len(), 1);
    lab.plain.send(&[packet(6, 100)]);
    wait_for("the end of the SA", || {
        let expired = sa.statistics().refused.get(towpath_ipsec::Refusal::Expired);
        expired == 1 || lab.refused("no_sa") == "3"
    });
    assert_eq!(lab.out.received(), Vec::<Vec<u8>>::new());
    assert_eq!(lab.engine.conservation().missing(), 0);
}

#[test]
fn a_flipped_bit_is_refused_and_shows_no_plaintext() {
    let [suite, _] = suites();
    let options = Options { deliver_refused: true, ..Options::default() };
    let (mut near, mut far) = (Lab::new(1, Options::default()), Lab::new(1, options));
    let sender = Config { reqid: 5, ..config(Direction::Outbound, 0x1000, suite.clone()) };
    near.table.add(sender, now()).unwrap();
    near.table.add_policy(protect(5)).unwrap();
    far.table.add(config(Direction::Inbound, 0x1000, suite), now()).unwrap();
    let plain = packet(7, 200);
    let wire = near.through(std::slice::from_ref(&plain));
    let mut flipped = Vec::new();
    for bit in 42 * 8..wire[0].len() * 8 {
        let mut frame = wire[0].clone();
        frame[bit / 8] ^= 1u8 << (bit % 8);
        flipped.push(frame);
    }
    for some in flipped.chunks(500) {
        let got = far.through(some);
        assert_eq!(got.len(), some.len());
        for frame in got {
            assert!(!frame.windows(16).any(|it| it == [0x5a; 16]), "plaintext");
        }
    }
    let sa = Arc::clone(&far.table.list()[0]);
    let refused = sa.statistics().refused.get(towpath_ipsec::Refusal::BadIcv);
    assert_eq!(refused, flipped.len() as u64);
    assert_eq!(far.through(&wire), [plain], "the packet itself is still good");
}

#[test]
fn records_have_the_layout_of_the_header() {
    let meta = EspMeta { sa: 1, spi: 2, moved: -54, ingress_ifindex: 3, ..EspMeta::default() };
    let bytes = EspMeta { status: Status::Chosen, ..meta }.to_bytes();
    assert_eq!(EspMeta::chosen(&bytes), Some((1, 2)));
    assert_eq!(EspMeta::chosen(&meta.to_bytes()), None, "nobody chose it");
    assert_eq!(EspMeta::chosen(&bytes[..12]), None);
    assert_eq!(bytes[10..12], (-54i16).to_ne_bytes());
}
