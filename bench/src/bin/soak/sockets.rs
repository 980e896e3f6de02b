//! Applications with AF_XDP sockets are killed and started again under load.
//!
//! Four queues have two sockets each, of one process. Frames come for each of the eight, on every
//! queue: in runs that make whole bursts, and mixed; for sockets that are there, that are another
//! queue's, and that are not.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use towpath_bench::sockets::Serving;
use towpath_bench::{attach, load};
use towpath_bpf::program::MapType;
use towpath_engine::{Engine, Options, PortId, PortOptions, WorkerOptions};
use towpath_ports::generator::{self, Generator};
use towpath_workload::random::Random;
use towpath_workload::small;

use crate::{Args, finish, resident_kib};

/// Processes killed at random moments.
pub(crate) fn killings(args: &Args) -> anyhow::Result<()> {
    let workers = vec![WorkerOptions::default(); args.workers];
    let engine = Arc::new(Engine::start(&Options { workers, frames: 16384 })?);
    let source = engine.add_port(PortOptions::new(PORT), Box::new(generator(args.frame_rate)?))?;
    let keys = 2 * QUEUES;
    let program = load(small::redirect_map_by_bytes(MapType::Xskmap, keys), args.workers)?;
    let map = program.maps().by_name("targets").cloned().context("the program's map")?;
    engine.change(|config| attach(config, source, &[program], args.workers, 0))?;
    let mut serving = Serving::start(&engine, &map)?;
    let mut crowd = Crowd { serving: &serving, children: Vec::new(), killed: 0, most: 0 };
    crowd.children.resize_with(QUEUES as usize, || None);
    // Whatever is made once is there after the first tenth.
    let seconds = Duration::from_secs(args.seconds);
    crowd.live(seconds / 10)?;
    crowd.end_all()?;
    let open = descriptors()?;
    let before = (resident_kib()?, open);
    crowd.live(seconds - seconds / 10)?;
    crowd.end_all()?;
    let open = descriptors()?;
    let after = (resident_kib()?, open);
    let (killed, most) = (crowd.killed, crowd.most);
    drop(crowd);
    serving.stop();
    println!("applications killed: {killed}, at most {most} sockets at a time");
    println!("  descriptors: {} before, {} after", before.1, after.1);
    engine.stop();
    let (to_sockets, sent) = (serving.delivered(), sent(&engine, source));
    println!("  {to_sockets} frames delivered to sockets, {sent} sent by them");
    drop(serving);
    let delivered = engine.conservation().delivered;
    let engine = Arc::into_inner(engine).context("nobody else has the engine")?;
    finish(engine, before.0)?;
    ensure!(delivered == to_sockets + sent, "{delivered} delivered in all");
    ensure!(killed > 0 && most == keys as usize, "{killed} killed, {most} sockets");
    ensure!(to_sockets > 0 && sent > 0, "sockets were idle");
    ensure!(before.1 == after.1, "descriptors are left open");
    let grown = after.0.saturating_sub(before.0);
    ensure!(grown < GROWN_KIB_MAX, "memory grew by {grown} KiB");
    Ok(())
}

/// The processes and who serves them.
struct Crowd<'a> {
    serving: &'a Serving,
    /// By queue.
    children: Vec<Option<Child>>,
    killed: u64,
    /// Sockets there were at one time.
    most: usize,
}

impl Crowd<'_> {
    /// Starts and kills for a while.
    fn live(&mut self, time: Duration) -> anyhow::Result<()> {
        let (end, mut random) = (Instant::now() + time, Random::new(self.killed + 1));
        for queue in 0..self.children.len() {
            self.start(queue)?;
        }
        // All of them work for a moment.
        self.wait_for(2 * self.children.len())?;
        while Instant::now() < end {
            let queue = random.below(self.children.len());
            match &self.children[queue] {
                Some(_) => self.kill(queue)?,
                None => self.start(queue)?,
            }
            std::thread::sleep(Duration::from_micros(random.below(30_000) as u64));
            self.most = self.most.max(self.serving.sockets().len());
        }
        Ok(())
    }

    fn start(&mut self, queue: usize) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--victim-queue", &queue.to_string(), "--victim"]).arg(self.serving.path());
        self.children[queue] = Some(command.spawn().context("an application")?);
        Ok(())
    }

    fn kill(&mut self, queue: usize) -> anyhow::Result<()> {
        let Some(mut child) = self.children[queue].take() else { return Ok(()) };
        // One that gave up says why itself.
        ensure!(child.try_wait()?.is_none(), "the application of queue {queue} ended");
        child.kill()?;
        child.wait()?;
        self.killed += 1;
        Ok(())
    }

    /// Kills all; their sockets are gone when this returns.
    fn end_all(&mut self) -> anyhow::Result<()> {
        for queue in 0..self.children.len() {
            self.kill(queue)?;
        }
        self.wait_for(0)
    }

    fn wait_for(&mut self, count: usize) -> anyhow::Result<()> {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let open = self.serving.sockets().len();
            self.most = self.most.max(open);
            if open == count {
                return Ok(());
            }
            ensure!(Instant::now() < patience, "{open} sockets, not {count}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Processes end with the benchmark, also when it fails.
impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _killed = child.kill();
            let _status = child.wait();
        }
    }
}

/// Frames for each key in turn: flags 0 or `XDP_PASS` in byte 14, the key in byte 15.
fn generator(rate: u64) -> anyhow::Result<Generator> {
    let frame = |key: u32, flags: u8| {
        let mut frame = vec![2; 64];
        (frame[14], frame[15]) = (flags, key as u8);
        frame
    };
    let runs = (0..2 * QUEUES).flat_map(|key| vec![frame(key, 2 * (key as u8 & 1)); RUN]);
    let mixed = (0..RUN as u32).map(|number| frame(number % (2 * QUEUES), 0));
    let templates = runs.chain(mixed).collect();
    let options = generator::Options {
        templates,
        queues: QUEUES,
        rate: (rate > 0).then_some(rate / u64::from(QUEUES)),
        burst: 64,
        ..generator::Options::new(Vec::new())
    };
    Ok(Generator::new(options)?)
}

/// Frames that left by a port.
fn sent(engine: &Engine, port: PortId) -> u64 {
    engine.read(|_, snapshot| {
        let slot = snapshot.port(port);
        slot.map_or(0, |slot| slot.opened.counters.iter().map(|c| c.tx_packets.get()).sum())
    })
}

/// Open descriptors, once those of the sockets that went last are closed.
fn descriptors() -> anyhow::Result<usize> {
    let count = || Ok::<_, anyhow::Error>(std::fs::read_dir("/proc/self/fd")?.count());
    let (mut last, mut same) = (count()?, 0);
    while same < 5 {
        std::thread::sleep(Duration::from_millis(20));
        let now = count()?;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}

pub(crate) const PORT: &str = "source";
const QUEUES: u32 = 4;
/// Frames for one key behind each other: whole bursts, and parts of some.
const RUN: usize = 160;
/// What the allocator may keep.
const GROWN_KIB_MAX: u64 = 4096;
