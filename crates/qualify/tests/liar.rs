//! A port that advertises what it can't do is found out, feature by feature.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use towpath_engine::Waker;
use towpath_engine::port::{Device, Features, Rx, RxHints, Tx, Wake};
use towpath_qualify::kinds::{Kind, Lab, Port};
use towpath_qualify::{
    Far, Feature, Maker, Outcome, Purpose, Row, Setup, Subject, Verdict, qualify,
};
use towpath_xdp::frame::rx_metadata::RxMetadata;
use towpath_xdp::{Arena, Frame, Pool};

/// A port that advertises everything, and works as an honest port of its kind, except for one
/// feature.
struct Liar {
    honest: Port,
    lie: Option<Feature>,
}

impl Liar {
    fn new(lab: &Rc<Lab>, kind: Kind, lie: Option<Feature>) -> Liar {
        let lab = Rc::clone(lab);
        let honest = Port { kind, has_software_hints: false, interfaces: None, lab };
        Liar { honest, lie }
    }
}

impl Maker for Liar {
    fn name(&self) -> String {
        "liar".to_owned()
    }

    fn make(&self, purpose: &Purpose) -> io::Result<Setup> {
        let Setup { device, far } = self.honest.make(purpose)?;
        let device = Box::new(Lying { inner: device, lie: self.lie });
        Ok(Setup { device, far })
    }
}

#[derive(Debug)]
struct Lying {
    inner: Box<dyn Device>,
    lie: Option<Feature>,
}

impl Device for Lying {
    fn kind(&self) -> &'static str {
        "lying"
    }

    fn queues(&self) -> u32 {
        self.inner.queues()
    }

    fn features(&self) -> Features {
        Features {
            rx_frags: true,
            tx_frags: true,
            tx_checksum: true,
            tx_tso: true,
            tx_uso: true,
            zero_copy: true,
            rx_hints: RxHints { timestamp: true, hash: true, vlan_tag: true, checksum: true },
            rx_offloads: true,
            ..self.inner.features()
        }
    }

    fn mtu(&self) -> u32 {
        self.inner.mtu()
    }

    fn link(&self) -> bool {
        self.inner.link()
    }

    fn set_up(&self, up: bool) {
        self.inner.set_up(up);
    }

    fn open_rx(&self, queue: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        let inner = self.inner.open_rx(queue, arena)?;
        Ok(Box::new(Receiver { inner, lie: self.lie, count: 0 }))
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        let inner = self.inner.open_tx(worker, arena)?;
        Ok(Box::new(Transmitter { inner, lie: self.lie }))
    }
}

struct Receiver {
    inner: Box<dyn Rx>,
    lie: Option<Feature>,
    count: u64,
}

impl Rx for Receiver {
    fn receive(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
        limit: usize,
    ) -> io::Result<usize> {
        let start = frames.len();
        self.inner.receive(pool, frames, limit)?;
        for mut frame in frames.split_off(start) {
            self.count += 1;
            if self.lie == Some(Feature::XskZerocopy) {
                pool.own(&mut frame);
            }
            match arrived(self.lie, &mut frame, self.count) {
                true => frames.push(frame),
                false => pool.give(frame),
            }
        }
        Ok(frames.len() - start)
    }

    fn arm(&mut self) -> Wake<'_> {
        self.inner.arm()
    }

    fn set_waker(&mut self, waker: &Arc<Waker>) {
        self.inner.set_waker(waker);
    }
}

/// Changes a frame that arrives as the lie demands; returns whether it still arrives.
fn arrived(lie: Option<Feature>, frame: &mut Frame, count: u64) -> bool {
    let told = frame.rx_metadata().unwrap_or_default();
    let (hash, timestamp_ns, checksum) = (told.hash, told.timestamp_ns, told.checksum);
    let nothing = RxMetadata::NOTHING;
    match lie {
        // XDP_PASS is for the third of the packets that it is tried with.
        Some(Feature::Basic) => count != 3,
        Some(Feature::Redirect | Feature::Xsk) => false,
        Some(Feature::RxSg | Feature::Linear) => !frame.has_frags(),
        Some(Feature::RxTimestamp) => {
            frame.set_rx_metadata(&RxMetadata { hash, checksum, ..nothing });
            true
        }
        Some(Feature::RxHash) => {
            frame.set_rx_metadata(&RxMetadata { timestamp_ns, checksum, ..nothing });
            true
        }
        Some(Feature::RxChecksum) => {
            frame.set_rx_metadata(&RxMetadata { hash, timestamp_ns, ..nothing });
            true
        }
        Some(Feature::RxVlanTag) => {
            frame.set_rx_metadata(&RxMetadata { hash, timestamp_ns, checksum, ..nothing });
            true
        }
        Some(Feature::Headroom) => {
            // The packet is moved to the start of its buffer.
            let (len, bytes) = (frame.linear_len(), frame.to_vec());
            frame.adjust_head(-200).is_ok_and(|()| {
                frame.shared_linear_mut().part(0..len).write(&bytes);
                frame.adjust_tail(-200).is_ok()
            })
        }
        Some(Feature::Metadata) => frame.adjust_meta(-216).is_ok(),
        Some(Feature::Tailroom) => {
            let room = 3520 - frame.linear_len();
            frame.adjust_tail(room as i32).is_ok()
        }
        Some(Feature::Mtu) => frame.len() < 1514,
        Some(Feature::RxCsumPartial | Feature::RxTso) => {
            frame.set_offload(None);
            true
        }
        _ => true,
    }
}

struct Transmitter {
    inner: Box<dyn Tx>,
    lie: Option<Feature>,
}

impl Tx for Transmitter {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        match self.lie {
            Some(Feature::NdoXmit | Feature::TxLaunchTime) => {
                frames.drain(..).for_each(|frame| pool.give(frame));
            }
            Some(Feature::NdoXmitSg) if frames.iter().any(|frame| frame.has_frags()) => {
                frames.drain(..).for_each(|frame| pool.give(frame));
            }
            // The offload is dropped.
            Some(Feature::TxChecksum | Feature::TxTso | Feature::TxUso) => {
                frames.iter_mut().for_each(|frame| frame.set_offload(None));
            }
            // It never takes anything, so nothing is ever sent.
            Some(Feature::TxTimestamp) => return Ok(()),
            _ => {}
        }
        self.inner.transmit(frames, pool)
    }

    fn credit(&mut self) -> usize {
        self.inner.credit()
    }
}

/// The kinds that the liar is made of, one in this process and one with a driver at its other end,
/// and the features that an honest one lacks as well, though this test's port advertises them.
const KINDS: [(Kind, &[Feature]); 2] = [
    (Kind::Pair, &[Feature::XskZerocopy]),
    (
        Kind::VhostUser,
        &[Feature::RxTimestamp, Feature::RxHash, Feature::RxVlanTag, Feature::RxChecksum],
    ),
];

fn row(subject: &dyn Subject, feature: Feature) -> Row {
    Row {
        feature,
        is_advertised: subject.advertised().unwrap().contains(&feature),
        outcome: subject.try_feature(feature).unwrap(),
        first_failure: None,
    }
}

#[test]
fn a_port_that_lies_about_a_feature_fails_it() {
    let lab = Lab::new(false).unwrap();
    for (kind, _) in KINDS {
        for &feature in Feature::ALL {
            let liar = row(&Liar::new(&lab, kind, Some(feature)), feature);
            let name = format!("{} {}", kind.name(), feature.name());
            assert!(liar.is_advertised, "{name}");
            assert_eq!(liar.verdict(), Verdict::Fails, "{name}: {:?}", liar.outcome);
            assert!(!liar.note().is_empty(), "{name}");
        }
    }
}

#[test]
fn a_port_that_does_not_lie_passes() {
    let lab = Lab::new(false).unwrap();
    for (kind, beyond) in KINDS {
        let honest = Liar::new(&lab, kind, None);
        for &feature in Feature::ALL.iter().filter(|feature| !beyond.contains(feature)) {
            let row = row(&honest, feature);
            assert_eq!(row.outcome, Outcome::Works, "{} {}", kind.name(), feature.name());
        }
    }
}

/// Results that cannot be seen at the other end are not made up.
#[test]
fn what_cannot_be_tried_is_said() {
    let lab = Lab::new(false).unwrap();
    let lab = &lab;
    let port =
        |kind| Port { kind, has_software_hints: false, interfaces: None, lab: Rc::clone(lab) };
    let sink = port(Kind::Sink);
    assert!(matches!(
        sink.make(&Purpose { mtu: 1500, arrivals: vec![] }).unwrap().far,
        Far::Nobody
    ));
    assert_eq!(row(&sink, Feature::Basic).verdict(), Verdict::Untried);
    assert_eq!(row(&sink, Feature::NdoXmit).verdict(), Verdict::Works);
    assert_eq!(row(&port(Kind::Pcap), Feature::RxTimestamp).verdict(), Verdict::Works);
    assert_eq!(row(&port(Kind::Pcap), Feature::RxHash).verdict(), Verdict::No);
    let software = Port { has_software_hints: true, ..port(Kind::Pcap) };
    for feature in [Feature::RxTimestamp, Feature::RxHash, Feature::RxVlanTag] {
        assert_eq!(row(&software, feature).verdict(), Verdict::Works, "{}", feature.name());
    }
    assert_eq!(row(&port(Kind::Pcap), Feature::XskZerocopy).verdict(), Verdict::Works);
}

/// A port on which each feature fails once, and one of them always.
struct Late(RefCell<Vec<Feature>>);

impl Subject for Late {
    fn name(&self) -> String {
        "late".to_owned()
    }

    fn advertised(&self) -> io::Result<Vec<Feature>> {
        Ok(Feature::ALL.to_vec())
    }

    fn try_feature(&self, feature: Feature) -> io::Result<Outcome> {
        let mut tried = self.0.borrow_mut();
        if !tried.contains(&feature) || feature == Feature::Mtu {
            tried.push(feature);
            return Ok(Outcome::Fails(format!("try {}", tried.len())));
        }
        Ok(Outcome::Works)
    }
}

#[test]
fn what_passes_at_the_second_try_says_so() {
    let report = qualify(&Late(RefCell::default())).unwrap();
    for row in report.rows {
        let name = row.feature.name();
        if row.feature == Feature::Mtu {
            assert_eq!((row.verdict(), row.first_failure), (Verdict::Fails, None), "{name}");
        } else {
            let first = row.first_failure.as_deref().unwrap_or_default();
            assert!(first.starts_with("try "), "{name}: {first}");
            assert_eq!(row.verdict(), Verdict::Works, "{name}");
        }
    }
}
