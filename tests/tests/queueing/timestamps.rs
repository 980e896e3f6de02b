//! Programs that want to know when packets were sent: each request is told once, whatever becomes
//! of its packet.

use std::time::Duration;

use towpath_engine::counters::DropReason;
use towpath_engine::{Hook, PortOptions, UpperName};
use towpath_ports::pair::{self, Pair};
use towpath_xdp::{Exec, tai_now};

use super::{Lab, packet, wait_for};

const EXECS: [Exec; 3] = [Exec::Interp, Exec::Jit, Exec::Llvm];

/// A record of the ring: cookie, time, port.
type Told = (u64, u64, u32);

impl Lab {
    /// Records in the programs' ring since the last call.
    fn told(&self) -> Vec<Told> {
        let map = self.programs[0].maps().by_name("sent").unwrap();
        let ring = map.ringbuf().unwrap();
        let word = |bytes: &[u8]| u64::from_ne_bytes(*bytes.first_chunk().unwrap());
        std::iter::from_fn(|| ring.read())
            .map(|it| (word(&it), word(&it[8..]), word(&it[16..]) as u32))
            .collect()
    }

    fn lost(&self) -> u64 {
        self.programs[0].maps().by_name("sent").unwrap().ringbuf().unwrap().lost()
    }

    /// The return value of a program's call.
    fn answer(&self, key: u32) -> i64 {
        let map = self.programs[0].maps().by_name("answers").unwrap();
        let towpath_maps::Value::One(bytes) = map.user().lookup(&key.to_ne_bytes(), 0).unwrap()
        else {
            panic!("one value");
        };
        i64::from_ne_bytes(*bytes.first_chunk().unwrap())
    }

    fn pending(&self) -> usize {
        self.engine.arena().tx_timestamps().pending()
    }
}

#[test]
fn the_time_of_sending_is_told() {
    for (exec, workers) in [(Exec::Interp, 1), (Exec::Jit, 1), (Exec::Jit, 2), (Exec::Llvm, 1)] {
        for (rx, dequeue) in [("stamp", None), ("put", Some("stamps_all"))] {
            let Some(lab) = Lab::new("timestamps", exec, workers, &[]) else { return };
            lab.attach_some(rx, dequeue);
            lab.output.allow(usize::MAX / 2);
            let start = tai_now();
            lab.input.receive((0..50).map(packet));
            wait_for("all", || lab.output.count() == 50 && lab.pending() == 0);
            let (told, end) = (lab.told(), tai_now());
            assert_eq!(lab.answer(0), 0);
            assert!(told.iter().map(|it| it.0).eq(0..50), "{exec:?} {rx}: {told:?}");
            assert!(told.iter().all(|it| it.2 == 12 && (start..=end).contains(&it.1)), "{told:?}");
            assert!(told.is_sorted_by_key(|it| it.1), "in the order they left: {told:?}");
            lab.check_conservation();
        }
    }
}

#[test]
fn what_is_not_sent_is_told_as_well() {
    for exec in EXECS {
        let Some(lab) = Lab::new("timestamps", exec, 1, &[]) else { return };
        lab.attach_some("stamp_and_drop", None);
        lab.input.receive((0..5).map(packet));
        wait_for("drops", || lab.drops(DropReason::Verdict) == 5 && lab.pending() == 0);
        assert!(lab.told().into_iter().eq((0..5).map(|cookie| (cookie, 0, 0))), "{exec:?}");
        // A ring of one place, from which nothing leaves: all but one are lost at the port.
        lab.attach_some("stamp", None);
        lab.input.receive((0..10).map(packet));
        wait_for("drops", || lab.drops(DropReason::RingFull) == 9 && lab.pending() == 0);
        let told = lab.told();
        assert!(told.iter().map(|it| it.0).eq(0..10));
        let sent: Vec<_> = told.iter().filter(|it| it.1 > 0).map(|it| (it.0, it.2)).collect();
        assert_eq!(sent, [(0, 12)]);
        lab.check_conservation();
    }
}

#[test]
fn a_frame_has_one_request_and_others_of_its_burst_have_none() {
    for exec in EXECS {
        let Some(lab) = Lab::new("timestamps", exec, 1, &[]) else { return };
        lab.output.allow(1000);
        lab.attach_some("stamp_twice", None);
        lab.input.receive([packet(7)]);
        wait_for("it", || lab.output.count() == 1 && lab.pending() == 0);
        assert_eq!((lab.answer(0), lab.answer(1)), (0, -16), "EBUSY");
        assert_eq!(lab.told().iter().map(|it| it.0).collect::<Vec<_>>(), [7]);
        lab.attach_some("stamp_some", None);
        lab.input.receive((0..100).map(packet));
        wait_for("all", || lab.output.count() == 101 && lab.pending() == 0);
        assert!(lab.told().iter().map(|it| it.0).eq((1..100).step_by(2)));
        assert!(lab.ranks()[1..].is_sorted(), "in order");
        lab.check_conservation();
    }
}

#[test]
fn with_a_launch_time_it_is_the_time_it_left() {
    let Some(lab) = Lab::new("timestamps", Exec::Jit, 1, &[]) else { return };
    lab.output.allow(1000);
    lab.attach_some("stamp_later", None);
    let start = tai_now();
    lab.input.receive((0..20).map(packet));
    wait_for("all", || lab.output.count() == 20 && lab.pending() == 0);
    let wait = |at: u64| Duration::from_nanos(at.saturating_sub(start));
    assert!(lab.told().iter().all(|it| wait(it.1) >= Duration::from_millis(30)));
    // A packet that waits for its time when its port is removed counts as not sent.
    lab.input.receive((0..7).map(packet));
    wait_for("them to wait", || lab.engine.conservation().in_flight == 7);
    assert_eq!((lab.told(), lab.pending()), (vec![], 7));
    lab.engine.remove_port(lab.to).unwrap();
    wait_for("them to be told", || lab.pending() == 0);
    assert!(lab.told().into_iter().eq((0..7).map(|cookie| (cookie, 0, 0))));
    assert_eq!(lab.engine.conservation().missing(), 0);
}

#[test]
fn nobody_has_to_read() {
    let Some(lab) = Lab::new("timestamps", Exec::Jit, 1, &[]) else { return };
    lab.output.allow(1000);
    lab.attach_some("stamp", None);
    lab.input.receive((0..250).map(packet));
    wait_for("all", || lab.output.count() == 250 && lab.pending() == 0);
    let kept = lab.told().len() as u64;
    assert_eq!(kept + lab.lost(), 250, "{kept} fit");
    assert!(kept > 100);
    // A program that takes the other's place, and then none at all: what waits in the queue goes
    // with its map, and so do both rings.
    lab.attach_some("put", Some("stamps_all"));
    lab.engine.change(|config| config.set_links(lab.to, Hook::Dequeue, Vec::new())).unwrap();
    lab.input.receive((0..5).map(packet));
    wait_for("them to be queued", || lab.queue(|queue| queue.status().counts.depth) == 5);
    let Lab { engine, programs, .. } = lab;
    engine.change(|config| config.set_links(lab.from, Hook::Rx, Vec::new())).unwrap();
    drop(programs);
    let frames = engine.conservation();
    assert_eq!((frames.in_flight, frames.missing()), (0, 0));
    assert_eq!(engine.arena().tx_timestamps().pending(), 0);
}

/// Copies of a frame are frames of their own, and a frame that is handed to another worker, or over
/// a pair, is told of once.
#[test]
fn one_of_several_ways_is_told() {
    let Some(lab) = Lab::new("timestamps", Exec::Jit, 2, &[]) else { return };
    lab.engine.remove_port(lab.to).unwrap();
    let (near, far) = Pair::new(pair::Options::default());
    let add = |name: &str, ifindex, end| {
        let options = PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) };
        lab.engine.add_port(options, Box::new(end)).unwrap()
    };
    add("near", 12, near);
    let far = add("far", 13, far);
    lab.engine.change(|config| config.set_upper(far, UpperName::Named("from".into()))).unwrap();
    lab.input.allow(100);
    lab.attach_rx("stamp");
    lab.input.receive((0..9).map(packet));
    wait_for("all", || lab.input.count() == 9 && lab.pending() == 0);
    let told = lab.told();
    assert!(told.iter().map(|it| (it.0, it.2)).eq((0..9).map(|cookie| (cookie, 12))), "{told:?}");
    lab.check_conservation();
}
