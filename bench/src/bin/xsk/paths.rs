//! The ways of a frame to a socket, on one core.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use towpath_bench::sockets::{Delivery, Serving, dropped};
use towpath_bench::{attach, load, median};
use towpath_bpf::program::{Linked, MapType};
use towpath_engine::{Engine, Mode, Options, PortId, PortOptions, QueueId, WorkerOptions};
use towpath_maps::{Map, Value};
use towpath_ports::generator::{self, Generator};
use towpath_workload::small;
use towpath_xdp::Program;

use crate::application::{Application, Shape};
use crate::bare::{BareRing, drain, ring};
use crate::polled::{Polled, Shared};
use crate::tsc_unsafe::ticks;

/// A way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the XSKMAP's entry to a socket of ours.
    Socket(Delivery),
    /// The same burst, verdicts and memory; but only descriptors cross.
    BareRing,
    /// As before, and packets are copied to memory as large as the socket's.
    BareRingAndCopy,
    /// The program says `XDP_DROP`: what there is to pay without any delivery.
    Drop,
    /// No engine: bursts of descriptors through a ring and out again.
    RingAlone,
}

impl Way {
    pub(crate) const ALL: [Way; 6] = [
        Way::Socket(Delivery::Scalar),
        Way::Socket(Delivery::Batched),
        Way::BareRing,
        Way::BareRingAndCopy,
        Way::Drop,
        Way::RingAlone,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Socket(Delivery::Scalar) => "one by one",
            Way::Socket(Delivery::Batched) => "direct + batch",
            Way::BareRing => "bare ring",
            Way::BareRingAndCopy => "bare ring and a copy",
            Way::Drop => "no delivery (drop)",
            Way::RingAlone => "a ring without engine",
        }
    }

    /// Ticks for a frame.
    pub(crate) fn measure(self, window: Duration, shape: Shape) -> anyhow::Result<f64> {
        if self == Way::RingAlone {
            return ring_alone(window, shape.entries);
        }
        let program = match self {
            Way::Drop => small::returns(1),
            _ => steering(),
        };
        let mut setup = Setup::new(program)?;
        let serving = match self {
            Way::Socket(delivery) => Some(setup.serve(delivery, shape)?),
            Way::BareRing | Way::BareRingAndCopy => {
                setup.ring(shape, self == Way::BareRingAndCopy)?;
                None
            }
            Way::Drop | Way::RingAlone => {
                setup.shared.start(Box::new(|| {}));
                None
            }
        };
        let figure = setup.laps(window);
        setup.shared.stop();
        let lost = dropped(&setup.engine, setup.port);
        ensure!(self == Way::Drop || lost == 0, "{}: {lost} frames were lost", self.name());
        drop(serving);
        setup.engine.stop();
        let conservation = setup.engine.conservation();
        ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
        figure
    }
}

/// An engine with one worker and the port, whose program leads to a socket.
pub(crate) struct Setup {
    pub(crate) engine: Arc<Engine>,
    pub(crate) port: PortId,
    program: Program,
    shared: Arc<Shared>,
}

impl Setup {
    fn new(program: Linked) -> anyhow::Result<Setup> {
        // The last core first: the one that most machines interrupt least.
        let cpu = std::thread::available_parallelism()?.get() - 1;
        let workers =
            vec![WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() }];
        let engine = Arc::new(Engine::start(&Options { workers, frames: 8192 })?);
        let shared = Arc::new(Shared::default());
        let polled = Polled { generator: generator()?, shared: Arc::clone(&shared) };
        let options = PortOptions { ifindex: Some(HERE.ifindex), ..PortOptions::new(PORT) };
        let port = engine.add_port(options, Box::new(polled))?;
        let program = load(program, 1)?;
        engine.change(|config| attach(config, port, std::slice::from_ref(&program), 1, 0))?;
        Ok(Setup { engine, port, program, shared })
    }

    /// A socket of an application, which is part of the worker.
    fn serve(&mut self, delivery: Delivery, shape: Shape) -> anyhow::Result<Serving> {
        let serving = Serving::start_with(&self.engine, &targets(&self.program)?, delivery)?;
        let mut application = Application::open(serving.path(), PORT, shape)?;
        self.shared.start(Box::new(move || {
            application.turn();
        }));
        Ok(serving)
    }

    fn ring(&mut self, shape: Shape, copies: bool) -> anyhow::Result<()> {
        let (producer, mut consumer) = ring(shape.entries)?;
        let copies = if copies { Some((shape.area()?, shape.stride())) } else { None };
        let socket = Arc::new(BareRing::new(HERE, producer, copies));
        self.engine.change(|config| config.add_socket(socket))?;
        let value = Value::One(1u32.to_ne_bytes().to_vec());
        targets(&self.program)?.user().update(&0u32.to_ne_bytes(), &value, 0)?;
        self.shared.start(Box::new(move || {
            drain(&mut consumer);
        }));
        Ok(())
    }

    fn laps(&self, window: Duration) -> anyhow::Result<f64> {
        std::thread::sleep(SETTLE);
        self.shared.take_laps();
        std::thread::sleep(window);
        let laps = self.shared.take_laps();
        ensure!(!laps.is_empty(), "no frames moved in {window:?}");
        Ok(median(&laps).0)
    }
}

/// The map that leads to sockets.
pub(crate) fn targets(program: &Program) -> anyhow::Result<Arc<Map>> {
    program.maps().by_name("targets").cloned().context("the program's map")
}

/// `return bpf_redirect_map(&targets, 0, 0);`
pub(crate) fn steering() -> Linked {
    small::redirect_map(MapType::Xskmap, 4, 0, 0)
}

/// Frames of 64 bytes.
pub(crate) fn generator() -> anyhow::Result<Generator> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.resize(64, 0);
    Ok(Generator::new(generator::Options::new(packet))?)
}

/// Bursts of 64 through a ring, written and read by this thread.
fn ring_alone(window: Duration, entries: u32) -> anyhow::Result<f64> {
    let (mut producer, mut consumer) = ring(entries)?;
    let (start, mut laps) = (std::time::Instant::now(), Vec::new());
    while start.elapsed() < window {
        let before = ticks();
        for _ in 0..64 {
            let desc = |addr| towpath_ring::Desc { addr, len: 64, options: 0 };
            producer.write_burst(64, (0..64u32).map(|number| desc(u64::from(number))));
            producer.submit();
            drain(&mut consumer);
        }
        laps.push((ticks() - before) as f64 / (64.0 * 64.0));
    }
    Ok(median(&laps).0)
}

/// The port's name, and where its frames arrive.
pub(crate) const PORT: &str = "gen";
pub(crate) const HERE: QueueId = QueueId { ifindex: 7, queue: 0 };
/// Before the first look at the clock.
const SETTLE: Duration = Duration::from_millis(20);
