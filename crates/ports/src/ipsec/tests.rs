//! The port in isolation: the SA that a frame gets, and the record with which it arrives.

use std::net::IpAddr;

use towpath_engine::port::Wake;
use towpath_ipsec::{
    Action, Aead, Config, Direct, Fault, Faults, Keys, Policy, Prefix, Sa, Selector, Suite,
    TableLimits,
};
use towpath_xdp::{Frame, Pool};

use super::*;

/// A UDP packet of `len` bytes to this port of 10.0.0.2.
fn packet(destination_port: u16, len: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39]);
    packet.extend(destination_port.to_be_bytes());
    packet.extend((len - 20).to_be_bytes());
    packet.resize(14 + usize::from(len), 0x5a);
    packet
}

/// Adds an outbound SA, whose SPI is 0x1000 plus its reqid.
fn outbound(table: &Table, reqid: u32, pmtu: u16) -> Arc<Sa> {
    let ends = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
    let keys = Keys::new(vec![reqid as u8; 20], Vec::new());
    let suite = Suite::Aead(Aead::Aes128Gcm);
    let config = Config::outbound(0x1000 + reqid, ends[0], ends[1], suite, keys);
    table.add(Config { reqid, pmtu, ..config }, now()).expect("it can be")
}

fn policy(table: &Table, destination_port: Option<u16>, priority: u32, action: Action) {
    let all = Prefix { address: IpAddr::from([0, 0, 0, 0]), len: 0 };
    let (protocol, source_port) = (None, None);
    let selector =
        Selector { source: all, destination: all, protocol, source_port, destination_port };
    table.add_policy(Policy { selector, priority, action }).expect("it can be");
}

struct Lab {
    port: Ipsec,
    tx: Box<dyn Tx>,
    rx: Vec<Box<dyn Rx>>,
    pool: Pool,
}

impl Lab {
    fn new(options: Options) -> (Lab, Arc<Table>) {
        let table = Arc::new(Table::new(TableLimits::default()));
        (Lab::of(Ipsec::new(options, Arc::clone(&table))), table)
    }

    fn of(port: Ipsec) -> Lab {
        let arena = Arena::new(512).expect("there is memory");
        let rx = (0..port.queues()).map(|queue| port.open_rx(queue, &arena).expect("it opens"));
        let rx = rx.collect();
        let tx = port.open_tx(0, &arena).expect("it opens");
        Lab { tx, rx, pool: Pool::new(&arena), port }
    }

    /// Sends packets with their records, and returns the frames that arrive at each queue.
    fn through(&mut self, packets: &[(Vec<u8>, Option<EspMeta>)]) -> Vec<Vec<Frame>> {
        let frames = packets.iter().map(|(packet, meta)| {
            let mut frame = self.pool.frame(packet).expect("it fits").expect("there is one");
            frame.rx.ifindex = 7;
            if let Some(meta) = meta {
                frame.replace_metadata(&meta.to_bytes()).expect("there is room");
            }
            frame
        });
        let mut frames: Vec<Frame> = frames.collect();
        self.tx.transmit(&mut frames, &mut self.pool).expect("it never fails");
        assert!(frames.is_empty(), "there is room");
        let arrived = self.rx.iter_mut().map(|rx| {
            let mut frames = Vec::new();
            while rx.receive(&mut self.pool, &mut frames, 64).expect("it never fails") > 0 {}
            frames
        });
        arrived.collect()
    }

    fn one(&mut self, packet: Vec<u8>, meta: Option<EspMeta>) -> Option<Frame> {
        self.through(&[(packet, meta)]).remove(0).pop()
    }
}

fn record(frame: &Frame) -> Vec<u8> {
    frame.own().expect("it is ours").metadata().to_vec()
}

#[test]
fn a_program_chooses_the_sa_and_gets_no_other() {
    let (mut lab, table) = Lab::new(Options::default());
    let by_policy = outbound(&table, 1, 0);
    let chosen = outbound(&table, 2, 0);
    policy(&table, None, 1, Action::Protect(1));
    let request =
        |sa: u32, spi: u32| Some(EspMeta { sa, spi, status: Status::Chosen, ..EspMeta::default() });
    let sa_of = |frame: Option<Frame>| {
        frame.map(|frame| u32::from_ne_bytes(*record(&frame).first_chunk().expect("4 bytes")))
    };
    assert_eq!(sa_of(lab.one(packet(1, 100), None)), Some(by_policy.id()));
    let meta = request(chosen.id(), chosen.spi());
    assert_eq!(sa_of(lab.one(packet(1, 100), meta)), Some(chosen.id()));
    // Metadata with another status.
    let other = Some(EspMeta { sa: chosen.id(), spi: chosen.spi(), ..EspMeta::default() });
    assert_eq!(sa_of(lab.one(packet(1, 100), other)), Some(by_policy.id()));
    // The chosen SA is gone, or its number belongs to another SA now.
    assert_eq!(sa_of(lab.one(packet(1, 100), request(chosen.id(), 0x9999))), None);
    table.remove(chosen.id());
    assert_eq!(sa_of(lab.one(packet(1, 100), meta)), None);
    assert_eq!(lab.port.refused().get(Refusal::NoSa), 2);
}

#[test]
fn policies_bypass_and_discard() {
    let (mut lab, table) = Lab::new(Options::default());
    outbound(&table, 1, 0);
    policy(&table, Some(500), 1, Action::Bypass);
    policy(&table, Some(23), 1, Action::Discard);
    policy(&table, None, 2, Action::Protect(1));
    let frame = lab.one(packet(500, 100), None).expect("it passes");
    assert_eq!(frame.to_vec(), packet(500, 100), "as it is");
    let meta = EspMeta { ingress_ifindex: 7, ..EspMeta::default() };
    assert_eq!(record(&frame), meta.to_bytes());
    assert!(lab.one(packet(23, 100), None).is_none());
    assert_eq!(lab.port.refused().get(Refusal::PolicyDiscard), 1);
    let frame = lab.one(packet(80, 100), None).expect("it is encapsulated");
    assert_eq!(frame.to_vec()[23], 50, "ESP");
}

#[test]
fn refused_frames_arrive_as_they_were_if_the_port_delivers_them() {
    let options = || Options { deliver_refused: true, ..Options::default() };
    let (mut lab, table) = Lab::new(options());
    let sa = outbound(&table, 1, 500);
    policy(&table, Some(80), 1, Action::Protect(1));
    let frame = lab.one(packet(80, 600), None).expect("it is delivered");
    assert_eq!(frame.to_vec(), packet(80, 600));
    let meta = EspMeta {
        sa: sa.id(),
        spi: sa.spi(),
        direction: Direction::Out,
        status: Status::TooBig,
        moved: 0,
        ingress_ifindex: 7,
    };
    assert_eq!(record(&frame), meta.to_bytes());
    let frame = lab.one(packet(81, 600), None).expect("it is delivered");
    let meta = EspMeta { sa: 0, spi: 0, status: Status::NoPolicy, ..meta };
    assert_eq!(record(&frame), meta.to_bytes());
    // Frames of every length are refused, and none panics.
    for len in 14..200 {
        let frame = lab.one(packet(80, 600)[..len].to_vec(), None).expect("it is delivered");
        assert_ne!(record(&frame)[9], Status::Done as u8);
    }
}

#[test]
fn each_sa_has_one_queue() {
    let (mut lab, table) = Lab::new(Options { queues: 3, ..Options::default() });
    for number in 1..=6 {
        outbound(&table, number, 0);
        policy(&table, Some(number as u16), 1, Action::Protect(number));
    }
    let packets: Vec<_> = (0..60).map(|number| (packet(1 + number % 6, 100), None)).collect();
    let arrived = lab.through(&packets);
    assert!(arrived.iter().all(|frames| frames.len() == 20));
    for frames in &arrived {
        let sas: std::collections::BTreeSet<_> =
            frames.iter().map(|frame| record(frame)[..4].to_vec()).collect();
        assert_eq!(sas.len(), 2, "two of six");
    }
}

/// The SA of a frame is removed while the frame waits.
#[test]
fn a_frame_whose_sa_goes_is_refused() {
    let (mut lab, table) = Lab::new(Options::default());
    let sa = outbound(&table, 1, 0);
    policy(&table, None, 1, Action::Protect(1));
    let mut frames = vec![lab.pool.frame(&packet(1, 100)).expect("it fits").expect("there is one")];
    lab.tx.transmit(&mut frames, &mut lab.pool).expect("it never fails");
    table.remove(sa.id());
    let count = lab.rx[0].receive(&mut lab.pool, &mut frames, 64).expect("it never fails");
    assert_eq!((count, lab.rx[0].take_missed()), (0, 1));
    assert_eq!(lab.port.refused().get(Refusal::NoSa), 1);
}

/// Failed frames are counted, and all others arrive in order. The worker polls while the engine
/// holds frames, and sleeps afterwards.
#[test]
fn an_engine_may_return_frames_later() {
    let faults = Faults { fail_every: 5, delay_rounds_max: 3, ..Faults::default() };
    let table = Arc::new(Table::new(TableLimits::default()));
    let open = move |room| -> io::Result<FrameEngine> {
        Ok(Box::new(Fault::new(Direct::new(room), faults)))
    };
    let options = Options { ring: 16, ..Options::default() };
    let mut lab = Lab::of(Ipsec::with_engine(options, Arc::clone(&table), "fault", open));
    let sa = outbound(&table, 1, 0);
    policy(&table, None, 1, Action::Protect(1));
    let (mut arrived, mut waiting) = (Vec::new(), Vec::new());
    for _burst in 0..3 {
        let frame = |_| lab.pool.frame(&packet(1, 100)).expect("fits").expect("there is one");
        waiting.extend((0..16).map(frame));
        lab.tx.transmit(&mut waiting, &mut lab.pool).expect("it never fails");
        assert!(waiting.is_empty(), "there is room");
        while !matches!(lab.rx[0].arm(), Wake::Waker) {
            let before = arrived.len();
            let count = lab.rx[0].receive(&mut lab.pool, &mut arrived, 4).expect("never fails");
            assert!(count <= 4 && arrived.len() == before + count);
        }
    }
    let sequences: Vec<u32> = arrived
        .iter()
        .map(|frame| u32::from_be_bytes(*frame.to_vec()[38..].first_chunk().expect("ESP")))
        .collect();
    let expected: Vec<u32> = (1..=48).filter(|number| number % 5 != 0).collect();
    assert_eq!(sequences, expected);
    assert_eq!(sa.statistics().refused.get(Refusal::EngineFailed), 9);
    assert_eq!(lab.rx[0].take_missed(), 9);
}

/// A queue takes only as many frames as it has room for.
#[test]
fn a_full_queue_takes_no_more() {
    let (mut lab, table) = Lab::new(Options { ring: 8, ..Options::default() });
    outbound(&table, 1, 0);
    policy(&table, None, 1, Action::Protect(1));
    assert_eq!(lab.tx.credit(), 8);
    let frame = |pool: &mut Pool| pool.frame(&packet(1, 100)).expect("fits").expect("one");
    let mut frames: Vec<Frame> = (0..10).map(|_| frame(&mut lab.pool)).collect();
    lab.tx.transmit(&mut frames, &mut lab.pool).expect("it never fails");
    assert_eq!((frames.len(), lab.tx.credit()), (2, 0));
    frames.clear();
    assert_eq!(lab.rx[0].receive(&mut lab.pool, &mut frames, 5).expect("it never fails"), 5);
    assert_eq!(lab.tx.credit(), 5);
}

/// The C header and the record have the same numbers.
#[test]
fn the_header_has_the_numbers_of_the_record() {
    let header = include_str!("../../../../programs/include/towpath_esp.h");
    let number = |name: &str| {
        let at = header.find(&format!("{name} = ")).map(|at| &header[at + name.len() + 3..]);
        let text = at.and_then(|rest| rest.split([',', ' ']).next()).expect("it is there");
        text.strip_prefix("0x").map_or(text.parse(), |hex| u8::from_str_radix(hex, 16))
    };
    let known = [
        ("TOWPATH_ESP_BYPASS", Direction::Bypass as u8),
        ("TOWPATH_ESP_IN", Direction::In as u8),
        ("TOWPATH_ESP_OUT", Direction::Out as u8),
        ("TOWPATH_ESP_DONE", Status::Done as u8),
        ("TOWPATH_ESP_REFUSED", Status::Refused as u8),
        ("TOWPATH_ESP_TOO_BIG", Status::TooBig as u8),
        ("TOWPATH_ESP_NO_SA", Status::NoSa as u8),
        ("TOWPATH_ESP_NO_POLICY", Status::NoPolicy as u8),
        ("TOWPATH_ESP_EXPIRED", Status::Expired as u8),
        ("TOWPATH_ESP_REPLAYED", Status::Replayed as u8),
        ("TOWPATH_ESP_BAD_ICV", Status::BadIcv as u8),
        ("TOWPATH_ESP_ENGINE_FAILED", Status::EngineFailed as u8),
        ("TOWPATH_ESP_CHOSEN", Status::Chosen as u8),
    ];
    for (name, value) in known {
        assert_eq!(number(name), Ok(value), "{name}");
    }
}
