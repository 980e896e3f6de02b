//! Calls of programs: what they make of frames, and why frames are refused.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_bpf::Errno;
use towpath_engine::port::{Device, Rx, Tx};
use towpath_ipsec::{
    Action, Aead, Cipher, Config, Hmac, Keys, Lifetime, Limits, Policy, Prefix, Refusal, Replay,
    Sa, Selector, Suite, Table, TableLimits,
};
use towpath_ports::ipsec::{Direction, EspMeta, Ipsec, Options, Status, now};
use towpath_xdp::frame::offload::{Checksum, Gso, GsoKind, Offload};
use towpath_xdp::frame::rx_metadata::{RxHash, RxMetadata};
use towpath_xdp::host::{Esp, EspOperation};
use towpath_xdp::{Arena, Frame, Pool};

const GCM: Suite = Suite::Aead(Aead::Aes128Gcm);
const CBC: Suite = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
const SPI: u32 = 0x4321;

/// A UDP packet of `len` bytes to 10.0.0.2.
fn packet(len: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 99]);
    packet.extend((len - 20).to_be_bytes());
    packet.extend([0; 2]);
    packet.resize(14 + usize::from(len), 0x5a);
    let sum: u32 =
        packet[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// A port with both ends of an SA, and a policy.
struct Lab {
    port: Ipsec,
    table: Arc<Table>,
    esp: RefCell<Box<dyn Esp>>,
    out: Arc<Sa>,
    inbound: Arc<Sa>,
}

fn config(suite: Suite) -> Config {
    let ends = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
    let keys = |len, byte| vec![byte; len];
    let keys = Keys::new(keys(suite.encryption_key_len(), 7), keys(suite.integrity_key_len(), 9));
    Config { reqid: 1, ..Config::outbound(SPI, ends[0], ends[1], suite, keys) }
}

fn policy(destination: [u8; 4], action: Action) -> Policy {
    let prefix = |address, len| Prefix { address: IpAddr::from(address), len };
    let (protocol, source_port, destination_port) = (None, None, None);
    let (source, destination) = (prefix([0; 4], 0), prefix(destination, 32));
    let selector = Selector { source, destination, protocol, source_port, destination_port };
    Policy { selector, priority: 1, action }
}

impl Lab {
    fn new(suite: Suite) -> Lab {
        Lab::of(config(suite))
    }

    fn of(config: Config) -> Lab {
        let table = Arc::new(Table::new(TableLimits::default()));
        let direction = towpath_ipsec::Direction::Inbound;
        let lifetime = Lifetime::default();
        let other = Config { direction, lifetime, pmtu: 0, ..config.clone() };
        let out = table.add(config, now()).expect("it fits");
        let inbound = table.add(other, now()).expect("it fits");
        table.add_policy(policy([10, 0, 0, 2], Action::Protect(1))).expect("it fits");
        let port = Ipsec::new(Options::default(), Arc::clone(&table));
        let esp = RefCell::new(port.esp().expect("it has SAs"));
        Lab { port, table, esp, out, inbound }
    }

    /// Runs an operation as worker 0 with a record of zeros; returns the result and the record.
    fn run(&self, operation: EspOperation, frame: &mut Frame) -> (Result<(), Errno>, [u8; 16]) {
        self.run_as(operation, frame, EspMeta::default(), 0)
    }

    fn run_as(
        &self,
        operation: EspOperation,
        frame: &mut Frame,
        meta: EspMeta,
        worker: u32,
    ) -> (Result<(), Errno>, [u8; 16]) {
        let mut record = meta.to_bytes();
        let result = self.esp.borrow_mut().run(operation, frame, &mut record, worker);
        (result, record)
    }

    fn encap(&self, packet: &[u8]) -> Vec<u8> {
        let mut frame = Frame::new(packet).expect("it fits");
        let (result, _) = self.run(EspOperation::Encap, &mut frame);
        assert_eq!(result, Ok(()));
        frame.to_vec()
    }

    /// Decapsulates a packet; returns the result, the status in the record and the bytes after it.
    fn decap(&self, packet: &[u8]) -> (Result<(), Errno>, u8, Vec<u8>) {
        let mut frame = Frame::new(packet).expect("it fits");
        let (result, record) = self.run(EspOperation::Decap, &mut frame);
        (result, record[9], frame.to_vec())
    }

    fn refusals(&self) -> Vec<&'static str> {
        let mut all: Vec<&str> = self.port.refused().iter().map(|(why, _)| why.name()).collect();
        for sa in [&self.out, &self.inbound] {
            all.extend(sa.statistics().refused.iter().map(|(why, _)| why.name()));
        }
        all
    }
}

#[test]
fn one_call_encapsulates_and_another_decapsulates() {
    for suite in [GCM, CBC] {
        let lab = Lab::new(suite);
        for len in [28, 29, 64, 576, 1414, 3000] {
            let plain = packet(len);
            let mut frame = Frame::new(&plain).expect("it fits");
            frame.adjust_meta(-8).expect("there is room");
            let mark = RxHash { value: 5, kind: 9 };
            let known =
                RxMetadata { hash: Some(mark), timestamp_ns: Some(11), ..Default::default() };
            frame.set_rx_metadata(&known);
            frame.rx.ifindex = 42;
            let (result, record) = lab.run(EspOperation::Encap, &mut frame);
            assert_eq!(result, Ok(()), "{len}");
            let grown = frame.to_vec();
            assert_eq!((frame.metadata_len(), grown[23]), (8, 50), "the program's metadata stays");
            let moved = -(20 + 8 + if suite == GCM { 8 } else { 16 });
            let expected = EspMeta {
                sa: lab.out.id(),
                spi: SPI,
                direction: Direction::Out,
                moved,
                ingress_ifindex: 42,
                ..EspMeta::default()
            };
            assert_eq!(record, expected.to_bytes());
            let hints = frame.rx_metadata().expect("the timestamp");
            assert_eq!((hints.hash, hints.timestamp_ns), (None, Some(11)));
            let (result, record) = lab.run(EspOperation::Decap, &mut frame);
            assert_eq!(result, Ok(()), "{len}");
            let expected = EspMeta {
                sa: lab.inbound.id(),
                direction: Direction::In,
                moved: -moved,
                ..expected
            };
            assert_eq!(record, expected.to_bytes());
            assert_eq!(frame.to_vec(), plain);
        }
        assert_eq!(lab.inbound.statistics().packets, 6);
        assert!(lab.refusals().is_empty(), "{:?}", lab.refusals());
    }
}

#[test]
fn each_refusal_has_a_status_and_an_error_number() {
    let lab = Lab::new(CBC);
    let sent = lab.encap(&packet(100));
    assert_eq!(lab.decap(&sent).0, Ok(()));
    let (result, status, bytes) = lab.decap(&sent);
    assert_eq!((result, status), (Err(Errno::EALREADY), Status::Replayed as u8));
    assert_eq!(bytes, sent, "it was refused before the cryptography");
    // A flipped bit: nothing of the plain text is left.
    let mut changed = lab.encap(&packet(100));
    *changed.last_mut().expect("a byte") ^= 1;
    let (result, status, bytes) = lab.decap(&changed);
    assert_eq!((result, status), (Err(Errno::EBADMSG), Status::BadIcv as u8));
    assert!(bytes[14 + 20 + 8 + 16..bytes.len() - 12].iter().all(|byte| *byte == 0));
    // No SA, no policy, and what is no IP packet.
    let mut unknown = sent.clone();
    unknown[34] ^= 0x80;
    assert_eq!(lab.decap(&unknown).0, Err(Errno::ENOENT));
    let mut frame = Frame::new(&packet(100)).expect("it fits");
    frame.shared_linear_mut().part(33..34).write(&[3]);
    let (result, record) = lab.run(EspOperation::Encap, &mut frame);
    assert_eq!((result, record[9]), (Err(Errno::EACCES), Status::NoPolicy as u8));
    lab.table.add_policy(policy([10, 0, 0, 3], Action::Discard)).expect("it fits");
    assert_eq!(lab.run(EspOperation::Encap, &mut frame).0, Err(Errno::EACCES));
    assert_eq!(lab.decap(&[0xff; 60]).0, Err(Errno::EINVAL));
    // Any UDP packet looks like ESP.
    assert_eq!(lab.decap(&packet(100)).0, Err(Errno::ENOENT));
    let mut tcp = packet(100);
    (tcp[23], tcp[25]) = (6, tcp[25] + 11);
    assert_eq!(lab.decap(&tcp).0, Err(Errno::EINVAL), "it is not ESP");
    let wanted = ["replayed", "bad_icv", "unknown_spi", "no_policy", "policy_discard"];
    let refusals = lab.refusals();
    for why in wanted.into_iter().chain(["not_ip", "not_esp"]) {
        assert!(refusals.contains(&why), "{why} in {refusals:?}");
    }
    // A bypass policy leaves the packet alone.
    lab.table.remove_policy(&policy([10, 0, 0, 3], Action::Discard));
    lab.table.add_policy(policy([10, 0, 0, 3], Action::Bypass)).expect("it fits");
    let before = frame.to_vec();
    let (result, record) = lab.run(EspOperation::Encap, &mut frame);
    assert_eq!((result, record[8], record[9]), (Ok(()), Direction::Bypass as u8, 0));
    assert_eq!(frame.to_vec(), before);
}

#[test]
fn packets_that_were_cut_anywhere_are_refused() {
    for suite in [GCM, CBC] {
        let lab = Lab::new(suite);
        let sent = lab.encap(&packet(80));
        for len in 14..sent.len() {
            let (result, status, _) = lab.decap(&sent[..len]);
            assert_eq!((result, status), (Err(Errno::EINVAL), Status::Refused as u8), "{len}");
        }
        // The same with an IP length that fits, so that ESP itself is cut.
        for len in 34..sent.len() {
            let mut cut = sent[..len].to_vec();
            cut[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
            cut[24..26].fill(0);
            let sum: u32 = cut[14..34]
                .chunks(2)
                .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
                .sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            cut[24..26].copy_from_slice(&sum.to_be_bytes());
            let (result, _, _) = lab.decap(&cut);
            assert!(matches!(result, Err(Errno::EINVAL | Errno::EBADMSG)), "{len}: {result:?}");
        }
        assert_eq!(lab.inbound.statistics().packets, 0);
        assert_eq!(lab.decap(&sent).0, Ok(()), "none of them used the sequence number");
    }
}

#[test]
fn limits_of_an_sa_are_kept() {
    let hard = Limits { packets: Some(2), ..Limits::default() };
    let lifetime = Lifetime { hard, ..Lifetime::default() };
    let lab = Lab::of(Config { lifetime, pmtu: 200, ..config(GCM) });
    let mut frame = Frame::new(&packet(180)).expect("it fits");
    let (result, record) = lab.run(EspOperation::Encap, &mut frame);
    assert_eq!((result, record[9]), (Err(Errno::EMSGSIZE), Status::TooBig as u8));
    assert_eq!(frame.to_vec(), packet(180));
    lab.encap(&packet(60));
    lab.encap(&packet(60));
    // The policy's SA is gone; a program that names it learns why.
    let mut frame = Frame::new(&packet(60)).expect("it fits");
    assert_eq!(lab.run(EspOperation::Encap, &mut frame).0, Err(Errno::ENOENT));
    let meta = EspMeta { sa: lab.out.id(), spi: SPI, status: Status::Chosen, ..EspMeta::default() };
    let (result, record) = lab.run_as(EspOperation::Encap, &mut frame, meta, 0);
    assert_eq!((result, record[9]), (Err(Errno::EKEYEXPIRED), Status::Expired as u8));
    // The last sequence number.
    let replay = Replay { last: u32::MAX.into(), ..Replay::default() };
    let lab = Lab::of(Config { replay, ..config(GCM) });
    assert_eq!(lab.run(EspOperation::Encap, &mut frame).0, Err(Errno::EKEYEXPIRED));
}

#[test]
fn a_chosen_sa_is_used_or_the_frame_is_refused() {
    let lab = Lab::new(GCM);
    let choose =
        |sa: &Sa, spi| EspMeta { sa: sa.id(), spi, status: Status::Chosen, ..EspMeta::default() };
    let mut frame = Frame::new(&packet(60)).expect("it fits");
    let wrong = lab.run_as(EspOperation::Encap, &mut frame, choose(&lab.out, SPI + 1), 0);
    assert_eq!(wrong.0, Err(Errno::ENOENT));
    let wrong = lab.run_as(EspOperation::Encap, &mut frame, choose(&lab.inbound, SPI), 0);
    assert_eq!(wrong.0, Err(Errno::EINVAL), "the other direction");
    let right = lab.run_as(EspOperation::Encap, &mut frame, choose(&lab.out, SPI), 0);
    assert_eq!(right.0, Ok(()));
    let wrong = lab.run_as(EspOperation::Decap, &mut frame, choose(&lab.out, SPI), 0);
    assert_eq!(wrong.0, Err(Errno::EINVAL), "the other direction");
    lab.table.remove(lab.inbound.id());
    let gone = lab.run_as(EspOperation::Decap, &mut frame, choose(&lab.inbound, SPI), 0);
    assert_eq!(gone.0, Err(Errno::ENOENT));
    assert_eq!(lab.run(EspOperation::Decap, &mut frame).0, Err(Errno::ENOENT));
}

#[test]
fn one_worker_or_the_queue_takes_sequence_numbers() {
    let lab = Lab::new(GCM);
    let encap = |worker| {
        let mut frame = Frame::new(&packet(60)).expect("it fits");
        let (result, record) =
            lab.run_as(EspOperation::Encap, &mut frame, EspMeta::default(), worker);
        (result, record[9], frame.to_vec())
    };
    assert_eq!(encap(0).0, Ok(()));
    let (result, status, bytes) = encap(1);
    assert_eq!((result, status), (Err(Errno::EBUSY), Status::Busy as u8));
    assert_eq!(bytes, packet(60));
    // A frame that waits in the queue of the port takes its number later.
    let arena = Arena::new(64).expect("there is memory");
    let (mut tx, mut rx) = (lab.port.open_tx(0, &arena), lab.port.open_rx(0, &arena));
    let (Ok(tx), Ok(rx)) = (&mut tx, &mut rx) else { panic!("they open") };
    let mut pool = Pool::new(&arena);
    let send = |tx: &mut Box<dyn Tx>, pool: &mut Pool| {
        let mut frames = vec![pool.frame(&packet(60)).expect("it fits").expect("there is one")];
        tx.transmit(&mut frames, pool).expect("it never fails");
    };
    let arrive = |rx: &mut Box<dyn Rx>, pool: &mut Pool| {
        let mut frames = Vec::new();
        rx.receive(pool, &mut frames, 64).expect("it never fails");
        frames.len()
    };
    send(tx, &mut pool);
    assert_eq!(encap(0).0, Ok(()), "the frame waits");
    assert_eq!(arrive(rx, &mut pool), 1);
    assert_eq!(encap(0).0, Err(Errno::EBUSY), "the queue has the SA");
    assert_eq!(lab.out.statistics().sequence, 3);
    assert_eq!(lab.refusals(), ["busy"]);
    // The SA goes away while a frame waits.
    send(tx, &mut pool);
    lab.table.remove(lab.out.id());
    assert_eq!(encap(0).0, Err(Errno::ENOENT));
    assert_eq!(arrive(rx, &mut pool), 0);
    assert_eq!(lab.port.refused().get(Refusal::NoSa), 2);
}

#[test]
fn a_flow_follows_changes_of_the_table() {
    let lab = Lab::new(GCM);
    let used = || {
        let mut frame = Frame::new(&packet(60)).expect("it fits");
        let (result, record) = lab.run(EspOperation::Encap, &mut frame);
        result.map(|()| u32::from_ne_bytes(*record.first_chunk().expect("4 bytes")))
    };
    assert_eq!([used(), used()], [Ok(lab.out.id()); 2]);
    let newer = Config { spi: SPI + 1, ..config(GCM) };
    let newer = lab.table.add(newer, now()).expect("it fits");
    assert_eq!([used(), used()], [Ok(newer.id()); 2], "the newest SA");
    lab.table.remove(newer.id());
    assert_eq!(used(), Ok(lab.out.id()));
    let protect = policy([10, 0, 0, 2], Action::Protect(1));
    lab.table.remove_policy(&protect);
    assert_eq!(used(), Err(Errno::EACCES));
    lab.table.add_policy(protect).expect("it fits");
    assert_eq!(used(), Ok(lab.out.id()));
    lab.table.flush();
    assert_eq!(used(), Err(Errno::ENOENT));
}

#[test]
fn frames_of_several_buffers_and_offload_work() {
    let lab = Lab::new(GCM);
    // The linear part has 3,520 bytes; the rest is pulled as long as there is room.
    let mut frame = Frame::new(&packet(3600)).expect("it fits");
    assert!(frame.has_frags());
    let (result, _) = lab.run(EspOperation::Encap, &mut frame);
    assert_eq!(result, Ok(()), "the packet moves to make room");
    assert!(!frame.has_frags());
    assert_eq!(lab.run(EspOperation::Decap, &mut frame).0, Ok(()));
    assert_eq!(frame.to_vec(), packet(3600));
    let mut long = Frame::new(&packet(9000)).expect("it fits");
    let (result, record) = lab.run(EspOperation::Encap, &mut long);
    assert_eq!((result, record[9]), (Err(Errno::EOPNOTSUPP), Status::Refused as u8));
    assert_eq!(long.to_vec(), packet(9000));
    // Several packets in one.
    let mut large = Frame::new(&packet(1400)).expect("it fits");
    let gso = Gso { kind: GsoKind::UdpL4, size: 100, header: 42, ecn: false };
    large.set_offload(Some(Offload { checksum: None, gso: Some(gso) }));
    assert_eq!(lab.run(EspOperation::Encap, &mut large).0, Err(Errno::EOPNOTSUPP));
    // A missing checksum is completed before the packet is encrypted.
    let mut frame = Frame::new(&packet(60)).expect("it fits");
    let checksum = Some(Checksum { start: 34, offset: 6 });
    frame.set_offload(Some(Offload { checksum, gso: None }));
    assert_eq!(lab.run(EspOperation::Encap, &mut frame).0, Ok(()));
    assert_eq!(frame.offload(), None);
    assert_eq!(lab.run(EspOperation::Decap, &mut frame).0, Ok(()));
    let plain = frame.to_vec();
    let sum: u32 =
        plain[34..].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the sum over UDP");
}

#[test]
fn states_are_those_of_the_sas() {
    let soft = Limits { packets: Some(1000), ..Limits::default() };
    let lifetime = Lifetime { soft, ..Lifetime::default() };
    let lab = Lab::of(Config { lifetime, ..config(GCM) });
    let to = lab.out.destination();
    lab.encap(&packet(60));
    lab.encap(&packet(60));
    let state = lab.esp.borrow().state(SPI, to).expect("it is there");
    assert!(state.is_inbound && state.is_tunnel, "the inbound SA comes first");
    lab.table.remove(lab.inbound.id());
    let state = lab.esp.borrow().state(SPI, to).expect("the other one");
    assert_eq!((state.is_inbound, state.sent, state.received), (false, 2, 0));
    assert_eq!((state.packets, state.bytes, state.reqid), (2, 120, 1));
    assert_eq!(state.soft.packets, Some(1000));
    let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(today - state.added < 60 && today - state.used < 60, "{state:?}");
    assert_eq!(lab.esp.borrow().state(SPI + 1, to), None);
    assert_eq!(lab.esp.borrow().state(SPI, lab.out.source()), None);
}
