//! Queues go from one worker to another while frames move: none is lost, and none overtakes
//! another one.

use towpath_bpf::program::MapType;
use towpath_engine::{BALANCE_PERIOD, Error, PortId, PortOptions};
use towpath_workload::small;

use crate::numbered::{InOrder, Numbered};
use crate::{Lab, Sends, load, set_entry, wait_for};

/// A lab with sources that pass to one target.
fn sources<const COUNT: usize>() -> (Lab, [(PortId, Numbered); COUNT], InOrder) {
    let (lab, target) = (Lab::new(), InOrder::default());
    lab.add("to", 100, Box::new(Sends(target.clone())));
    let sources = std::array::from_fn(|number| {
        let source = Numbered::new(number as u8);
        let from = lab.add(&format!("from{number}"), 1 + number as u32, Box::new(source.clone()));
        lab.upper(from, "to");
        (from, source)
    });
    (lab, sources, target)
}

/// The worker that polls a port's only queue.
fn worker_of(lab: &Lab, port: PortId) -> usize {
    let polls = |polls: &Vec<(PortId, u32)>| polls.contains(&(port, 0));
    lab.engine.read(|_, snapshot| snapshot.polls.iter().position(polls)).unwrap()
}

fn check_all(lab: &Lab, sources: &[(PortId, Numbered)], target: &InOrder) {
    sources.iter().for_each(|(_, source)| source.run(false));
    for (name, (_, source)) in sources.iter().enumerate() {
        wait_for("the last frame", || target.count(name as u8) == source.sent());
    }
    lab.check_conservation();
}

#[test]
fn a_queue_that_moves_loses_nothing_and_keeps_its_order() {
    // To the wire, and by a cpumap to a worker that may be either.
    for is_handed_over in [false, true] {
        let (lab, sources, target) = sources::<2>();
        if is_handed_over {
            let program = load(small::redirect_map(MapType::Cpumap, 1, 0, 0));
            set_entry(&program, 0, [4096, 0]);
            sources.iter().for_each(|(from, _)| lab.attach(*from, &program));
        }
        sources.iter().for_each(|(_, source)| source.run(true));
        for round in 0..500 {
            let (from, source) = &sources[round % 3 % 2];
            let to = 1 - worker_of(&lab, *from);
            let before = source.sent();
            lab.engine.change(|config| config.move_queue(*from, 0, to)).unwrap();
            assert_eq!(worker_of(&lab, *from), to);
            // Sooner or later it goes on there.
            if round % 4 == 0 {
                wait_for("frames after a move", || source.sent() > before);
            }
        }
        check_all(&lab, &sources, &target);
    }
}

#[test]
fn ports_spread_before_there_is_traffic() {
    let lab = Lab::new();
    let idle = || Box::new(Numbered::new(0));
    let ports: Vec<PortId> =
        (0..10).map(|number| lab.add(&format!("p{number}"), 1 + number, idle())).collect();
    let counts = |lab: &Lab| {
        lab.engine.read(|_, snapshot| snapshot.polls.iter().map(Vec::len).collect::<Vec<_>>())
    };
    assert_eq!(counts(&lab), [5, 5]);
    let on_first: Vec<PortId> =
        ports.iter().copied().filter(|&port| worker_of(&lab, port) == 0).collect();
    on_first.iter().for_each(|&port| lab.engine.remove_port(port).unwrap());
    // The next ports are placed where others were removed.
    (0..5).for_each(|number| {
        lab.add(&format!("q{number}"), 50 + number, idle());
    });
    assert_eq!(counts(&lab), [5, 5]);
    lab.engine.stop();
}

#[test]
fn a_busy_worker_gives_one_away_and_keeps_what_is_pinned() {
    let (lab, sources, target) = sources::<3>();
    let pinned = Numbered::new(3);
    let options = PortOptions { workers: vec![0], ifindex: Some(50), ..PortOptions::new("pinned") };
    let port = lab.engine.add_port(options, Box::new(pinned.clone())).unwrap();
    lab.upper(port, "to");
    let refused = lab.engine.change(|config| config.move_queue(port, 0, 1));
    assert!(matches!(refused, Err(Error::Queue { .. })), "{refused:?}");
    let nowhere = lab.engine.change(|config| config.move_queue(sources[0].0, 0, 2));
    assert!(matches!(nowhere, Err(Error::NoWorker(2, 2))), "{nowhere:?}");
    for (from, _) in &sources {
        lab.engine.change(|config| config.move_queue(*from, 0, 0)).unwrap();
    }
    sources.iter().map(|(_, source)| source).chain([&pinned]).for_each(|it| it.run(true));
    let mut moved = None;
    wait_for("a move", || {
        moved = lab.engine.balance();
        moved.is_some()
    });
    let moved = moved.unwrap();
    assert_eq!((moved.queue, moved.from.0, moved.to.0), (0, 0, 1));
    assert!(moved.from.1 > 0.8 && moved.to.1 < moved.from.1 / 2.0, "{moved:?}");
    let from = lab.engine.read(|config, _| config.find(&moved.port)).unwrap();
    assert_eq!(worker_of(&lab, from), 1);
    // As many frames as there is time for come from each source: now both workers are busy.
    std::thread::sleep(BALANCE_PERIOD);
    assert_eq!(lab.engine.balance(), None);
    assert_eq!(worker_of(&lab, port), 0);
    pinned.run(false);
    check_all(&lab, &sources, &target);
}
