//! An application in a process of its own: the worker has one core, it has another.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Signal, set_parent_process_death_signal};
use towpath_bench::sockets::Serving;
use towpath_bench::world::pin;
use towpath_bench::{attach, load};
use towpath_engine::{Engine, Mode, Options, PortOptions, WorkerOptions};

use crate::application::{Application, Shape};
use crate::paths::{PORT, generator, steering, targets};

/// Frames a second that the application receives while a worker makes them as fast as it can.
pub(crate) fn rate(window: Duration, shape: Shape) -> anyhow::Result<f64> {
    let workers =
        vec![WorkerOptions { cpu: Some(WORKER_CPU), mode: Mode::Busy, ..WorkerOptions::default() }];
    let engine = Arc::new(Engine::start(&Options { workers, frames: 8192 })?);
    let port = engine.add_port(PortOptions::new(PORT), Box::new(generator()?))?;
    let program = load(steering(), 1)?;
    engine.change(|config| attach(config, port, std::slice::from_ref(&program), 1, 0))?;
    let serving = Serving::start(&engine, &targets(&program)?)?;
    let application = Running::start(serving.path(), shape)?;
    let patience = Instant::now() + PATIENCE;
    while received(&serving) == 0 {
        anyhow::ensure!(Instant::now() < patience, "the application receives nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(SETTLE);
    let (start, before) = (Instant::now(), received(&serving));
    std::thread::sleep(window);
    let rate = (received(&serving) - before) as f64 / start.elapsed().as_secs_f64();
    drop(application);
    drop(serving);
    engine.stop();
    let conservation = engine.conservation();
    anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
    Ok(rate)
}

/// What was delivered and the application took.
fn received(serving: &Serving) -> u64 {
    let taken = |statistics: towpath_xsk::Statistics| {
        statistics.rx_packets.saturating_sub(u64::from(statistics.levels[0]))
    };
    serving.sockets().iter().map(|socket| taken(socket.statistics())).sum()
}

/// The other process; killed when dropped.
struct Running(Child);

impl Running {
    fn start(path: &Path, shape: Shape) -> anyhow::Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--application").arg(path).args(["--entries", &shape.entries.to_string()]);
        if shape.is_spread {
            command.arg("--spread");
        }
        Ok(Running(command.spawn().context("the application")?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The application, until it is killed or its parent is gone.
pub(crate) fn be_application(path: &Path, shape: Shape) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    pin(APPLICATION_CPU);
    let mut application = Application::open(path, PORT, shape)?;
    loop {
        if application.turn() == 0 {
            std::hint::spin_loop();
        }
    }
}

const WORKER_CPU: usize = 0;
const APPLICATION_CPU: usize = 1;
const SETTLE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
