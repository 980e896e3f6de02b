//! `bench/offload`: a program that a guest runs itself beside the same program at its host: the
//! table of the proposal of 2019 (case 1: frames are passed to the guest's port; case 2: they come
//! through a bridge), and the cost of an unused hook.
//!
//! There are two guests, each on a core of its own: a driver of ours that runs the same compiled
//! program on its ring's own buffers, and DPDK's testpmd over `virtio_user`, which does the same
//! without a program. In "host" the guest's hook of the port runs the program.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod dpdk;
mod driver;
mod guest;

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser;
use towpath_bench::testpmd::Testpmd;
use towpath_bench::{Turns, spread};
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions, UpperName, WorkerOptions};
use towpath_ports::generator::{self, Generator};
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_workload::small;
use towpath_xdp::{Exec, LoadOptions, Program, Trust};

use guest::{Duty, Machine};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 500)]
    window: u64,
    /// Only cases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

/// What the program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// `XDP_DROP`: xdp1 of the proposal.
    Drop,
    /// Addresses swapped, `XDP_TX`: xdp2.
    Tx,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let window = Duration::from_millis(args.window);
    println!("Mpps, 64-byte frames, one worker, one core for the guest: median (least .. most)\n");
    let has_dpdk = Testpmd::is_installed();
    if !has_dpdk {
        println!("virtio_user skipped: dpdk-testpmd is missing (Debian: dpdk-dev)\n");
    }
    for (case, is_bridged) in [("case 1, passed", false), ("case 2, bridged", true)] {
        for verdict in [Verdict::Drop, Verdict::Tx] {
            let name = format!("{case}, {verdict:?}");
            if !name.contains(&args.only) {
                continue;
            }
            let host = || Ok(measure(is_bridged, verdict, true, window)? / 1e6);
            let own = || Ok(measure(is_bridged, verdict, false, window)? / 1e6);
            let turns = Turns::take(args.rounds, host, own)?;
            print(&name, "our driver", &turns);
            if has_dpdk {
                let dpdk = || Ok(dpdk::measure(is_bridged, verdict, window)? / 1e6);
                print(&name, "virtio_user", &Turns::take(args.rounds, host, dpdk)?);
            }
        }
    }
    if !args.only.is_empty() {
        return Ok(());
    }
    let rate = |had_program| Ok(plain(had_program, window)? / 1e6);
    let turns = Turns::take(args.rounds, || rate(true), || rate(false))?;
    println!(
        "\n  plain traffic to the guest: no program ever {}, attached and detached {}   {:.3}x",
        spread(&turns.other),
        spread(&turns.one),
        turns.ratio()
    );
    Ok(())
}

/// A line: the host, beside a guest.
fn print(case: &str, who: &str, turns: &Turns) {
    let (host, guest) = (spread(&turns.one), spread(&turns.other));
    println!("  {case:22} {who:11} {guest}   host {host}   {:.2}x", turns.ratio());
}

/// A generator, the guest's port, and a bridge between them if that is wanted.
struct Scene {
    engine: Arc<Engine>,
    vm: PortId,
    path: std::path::PathBuf,
}

impl Scene {
    fn new(is_bridged: bool) -> anyhow::Result<Scene> {
        let workers = vec![WorkerOptions { cpu: Some(0), ..WorkerOptions::default() }];
        let engine = Arc::new(Engine::start(&Options { workers, frames: 8192 })?);
        let path = std::env::temp_dir().join(format!("towpath-bench-off-{}", std::process::id()));
        let device = VhostUser::new(vhost_user::Options::new(&path))?;
        let vm = engine.add_port(PortOptions::new("vm"), Box::new(device))?;
        let options = generator::Options::new(frame());
        let down = PortOptions { up: false, ..PortOptions::new("gen") };
        let source = engine.add_port(down, Box::new(Generator::new(options)?))?;
        engine.change(|config| {
            let upper = if is_bridged { "br" } else { "vm" };
            if is_bridged {
                config.add_bridge("br", Duration::from_secs(300))?;
                config.set_upper(vm, UpperName::Named("br".to_owned()))?;
            }
            config.set_upper(source, UpperName::Named(upper.to_owned()))
        })?;
        Ok(Scene { engine, vm, path })
    }

    fn start(&self) -> anyhow::Result<()> {
        self.engine.change(|config| {
            let source = config.find("gen")?;
            config.set_up(source, true)
        })?;
        Ok(())
    }

    fn set_program(&self, program: Option<&Program>) -> anyhow::Result<()> {
        let links = program.map(|program| Link::new(program.clone(), 1, 1)).into_iter().collect();
        self.engine.change(|config| config.set_links(self.vm, Hook::GuestRx, links))?;
        Ok(())
    }

    /// Frames that the guest's port received, and those that its guest's program judged.
    fn counted(&self) -> (u64, u64) {
        self.engine.read(|config, snapshot| {
            let port = snapshot.port(self.vm);
            let received = port
                .map_or(0, |port| port.opened.counters.iter().map(|it| it.rx_packets.get()).sum());
            let links = config.links(self.vm, Hook::GuestRx).unwrap_or_default();
            let runs = links
                .first()
                .map_or(0, |link| link.counters().iter().map(|it| it.runs.get()).sum());
            (received, runs)
        })
    }
}

/// Frames a second that are judged, or that come back.
fn measure(
    is_bridged: bool,
    verdict: Verdict,
    is_offloaded: bool,
    window: Duration,
) -> anyhow::Result<f64> {
    let scene = Scene::new(is_bridged)?;
    let program = match verdict {
        Verdict::Drop => small::returns(XDP_DROP),
        Verdict::Tx => small::reflect(),
    };
    let trust = if is_offloaded { Trust::Guest } else { Trust::Verified };
    let mut options = LoadOptions { workers: 1, exec: Exec::Jit, ..LoadOptions::default() };
    options.jit.trust = trust;
    let program = Program::from_linked(program, &options)?;
    let duty = if is_offloaded {
        scene.set_program(Some(&program))?;
        Duty::Receive
    } else {
        Duty::Judge(program)
    };
    let machine = Machine::start(&scene.path, duty)?;
    scene.start()?;
    std::thread::sleep(window / 4);
    let count = |scene: &Scene| match (verdict, is_offloaded) {
        (Verdict::Tx, _) => scene.counted().0,
        (Verdict::Drop, true) => scene.counted().1,
        (Verdict::Drop, false) => machine.judged(),
    };
    let (before, start) = (count(&scene), std::time::Instant::now());
    std::thread::sleep(window);
    let (after, time) = (count(&scene), start.elapsed());
    let result = (after - before) as f64 / time.as_secs_f64();
    scene.engine.stop();
    machine.stop()?;
    let conservation = scene.engine.conservation();
    ensure!(conservation.missing() == 0, "{conservation:?}");
    ensure!(result > 0.0, "nothing came through");
    Ok(result)
}

/// Frames a second that reach a guest that runs no program: it never had one, or had one before.
fn plain(had_program: bool, window: Duration) -> anyhow::Result<f64> {
    let scene = Scene::new(false)?;
    let machine = Machine::start(&scene.path, Duty::Receive)?;
    if had_program {
        let program = Program::from_linked(small::returns(XDP_DROP), &LoadOptions::default())?;
        scene.set_program(Some(&program))?;
        scene.set_program(None)?;
    }
    scene.start()?;
    std::thread::sleep(window / 4);
    let (before, start) = (machine.judged(), std::time::Instant::now());
    std::thread::sleep(window);
    let rate = (machine.judged() - before) as f64 / start.elapsed().as_secs_f64();
    scene.engine.stop();
    machine.stop()?;
    Ok(rate)
}

/// To the guest, from the generator.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..6].copy_from_slice(&guest::ADDRESS);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame
}

const XDP_DROP: i32 = 1;
