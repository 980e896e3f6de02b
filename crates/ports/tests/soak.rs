//! Nothing is lost while everything changes under load.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::{Duration, Instant};

use towpath_engine::{
    Engine, Hook, Link, Mode, Options, PortId, PortOptions, UpperName, WorkerOptions,
};
use towpath_ports::generator::{self, Generator};
use towpath_ports::pair::{self, Pair};
use towpath_ports::sink::Sink;
use towpath_workload::small;
use towpath_xdp::{Exec, LoadOptions, Program};

/// Seconds each part lasts; the benchmark of the same name in `bench/` runs for longer.
const LASTS: Duration = Duration::from_millis(1500);

fn start() -> Engine {
    let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
    Engine::start(&Options { workers: vec![worker; 2], frames: 16384 }).unwrap()
}

fn load(verdict: i32) -> Program {
    let options = LoadOptions { workers: 2, exec: Exec::Jit, ..LoadOptions::default() };
    Program::from_linked(small::returns(verdict), &options).unwrap()
}

fn generator(queues: u32) -> Box<Generator> {
    let options = generator::Options { queues, ..generator::Options::new(vec![2; 64]) };
    Box::new(Generator::new(options).unwrap())
}

fn port(engine: &Engine, name: &str, device: Box<dyn towpath_engine::port::Device>) -> PortId {
    engine.add_port(PortOptions::new(name), device).unwrap()
}

#[test]
fn replacing_programs_loses_no_frame() {
    let engine = start();
    port(&engine, "sink", Box::new(Sink));
    let source = port(&engine, "source", generator(2));
    let upper = UpperName::Named("sink".to_owned());
    engine.change(|config| config.set_upper(source, upper)).unwrap();
    let programs = [load(1), load(2), load(3)];
    let (start, mut replaced) = (Instant::now(), 0);
    while start.elapsed() < LASTS {
        let program = &programs[replaced % programs.len()];
        let links = vec![Link::new(program.clone(), 1, engine.workers())];
        engine.change(|config| config.set_links(source, Hook::Rx, links)).unwrap();
        replaced += 1;
    }
    engine.stop();
    let conservation = engine.conservation();
    assert_eq!((conservation.missing(), conservation.in_flight), (0, 0), "{conservation:?}");
    assert!(replaced > 5 && conservation.received > 1000, "{replaced} {conservation:?}");
    let arena = std::sync::Arc::clone(engine.arena());
    drop(engine);
    assert_eq!(arena.free(), arena.total(), "every frame is back");
}

#[test]
fn ports_come_and_go_under_load() {
    let engine = start();
    let source = port(&engine, "source", generator(2));
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < LASTS {
        let (a, b) = Pair::new(pair::Options { queues: 2, ..pair::Options::default() });
        let (a, b) = (port(&engine, "a", Box::new(a)), port(&engine, "b", Box::new(b)));
        engine
            .change(|config| {
                config.set_upper(source, UpperName::Named("a".to_owned()))?;
                let links = vec![Link::new(load(3), 1, 2)];
                config.set_links(b, Hook::Rx, links)
            })
            .unwrap();
        std::thread::sleep(Duration::from_millis(2));
        engine.change(|config| config.set_upper(source, UpperName::None)).unwrap();
        engine.remove_port(a).unwrap();
        engine.remove_port(b).unwrap();
        rounds += 1;
    }
    engine.stop();
    let conservation = engine.conservation();
    assert_eq!(conservation.missing(), 0, "{conservation:?}");
    assert!(rounds > 3, "{rounds}");
    let arena = std::sync::Arc::clone(engine.arena());
    drop(engine);
    assert_eq!(arena.free(), arena.total(), "frames in the rings of removed pairs are back, too");
}
