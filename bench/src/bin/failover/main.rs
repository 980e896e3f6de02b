//! `bench/failover`: which frames are lost when a member of a bond fails.
//!
//! A generator sends at a steady rate to a bond whose monitor looks at links every 10 ms; then a
//! cable is cut. Lost is what was queued to the failed member, and what was sent to it until the
//! monitor looked: nothing else, and that is checked to the frame.
//!
//! On a machine that others use, too, the worker must not stand still meanwhile: `chrt -r 1`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod cable;
mod plot;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use serde_json::json;
use towpath_bench::{median, received};
use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};
use towpath_engine::{Engine, Mode, Options, PortOptions, UpperName, WorkerOptions};
use towpath_ports::bond::Controller;
use towpath_ports::bond::settings::Settings;
use towpath_ports::generator::{self, Change, Field, Generator};

use cable::{Cable, Log};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Failures in each mode.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Frames a second.
    #[arg(long, default_value_t = 200_000)]
    rate: u64,
    /// How often the monitor looks at links, in milliseconds.
    #[arg(long, default_value_t = 10)]
    miimon: u64,
    /// Only this mode.
    #[arg(long)]
    mode: Option<BondMode>,
    /// Writes the timeline as a picture into this folder, too.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Prints figures as JSON instead.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut report = Vec::new();
    for mode in [BondMode::ActiveBackup, BondMode::BalanceXor] {
        if args.mode.is_some_and(|only| only != mode) {
            continue;
        }
        let mut failures: Vec<Failure> = Vec::new();
        for round in 0..args.rounds.max(1) {
            failures.push(fail(&args, mode, round)?);
        }
        failures.sort_by_key(|failure| failure.detection);
        let typical = &failures[failures.len() / 2];
        if !args.json {
            print(&args, mode, typical, &failures);
        }
        if let Some(folder) = &args.svg {
            let file = folder.join(format!("failover-{mode}.svg"));
            std::fs::write(&file, plot::svg(&typical.timeline(), &title(&args, mode)))
                .with_context(|| file.display().to_string())?;
        }
        report.push(json!({
            "mode": mode.name(),
            "frames_per_s": args.rate,
            "miimon_ms": args.miimon,
            "failures": failures.iter().map(Failure::json).collect::<Vec<_>>(),
        }));
    }
    if args.json {
        println!("{:#}", json!(report));
    }
    Ok(())
}

/// A member failed, and this became of frames.
struct Failure {
    cut: Instant,
    /// From the cut until the last frame was sent to the dead member.
    detection: Duration,
    dead: Log,
    other: Log,
    /// Frames that the engine dropped: a worker that stood still has too many to send at once.
    dropped: u64,
    sent: u64,
}

impl Failure {
    /// Frames that the failure cost.
    fn lost(&self) -> u64 {
        (self.dead.lost_queued.len() + self.dead.lost_late.len()) as u64
    }

    /// Frames that did not arrive.
    fn missing(&self) -> u64 {
        self.sent - (self.dead.arrived.len() + self.other.arrived.len()) as u64
    }

    /// Frames sent and lost in each millisecond around the cut.
    fn timeline(&self) -> Vec<plot::Millisecond> {
        let all = |log: &Log| {
            let lost = log.lost_queued.iter().chain(&log.lost_late).map(|&at| (at, true));
            log.arrived.iter().map(|&at| (at, false)).chain(lost).collect::<Vec<_>>()
        };
        plot::timeline(self.cut, all(&self.dead).into_iter().chain(all(&self.other)))
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "sent": self.sent,
            "lost": self.lost(),
            "queued": self.dead.lost_queued.len(),
            "sent_to_dead": self.dead.lost_late.len(),
            "dropped": self.dropped,
            "detection_ms": self.detection.as_secs_f64() * 1000.0,
        })
    }
}

/// Sends, cuts one of two cables, and sees what arrived.
fn fail(args: &Args, mode: BondMode, round: usize) -> anyhow::Result<Failure> {
    let cpu = std::thread::available_parallelism()?.get() - 1;
    let workers =
        vec![WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() }];
    let engine = Arc::new(Engine::start(&Options { workers, frames: 8192 })?);
    // A member can take all there is, and what comes late; bursts wait for it.
    let wire = args.rate as f64 * 2.0;
    let cables = [Cable::new(1, wire), Cable::new(2, wire)];
    let mut members = Vec::new();
    for (index, cable) in cables.iter().enumerate() {
        let options = PortOptions::new(&format!("m{index}"));
        members.push(engine.add_port(options, Box::new(cable.clone()))?);
    }
    let options = BondOptions { mode, policy: XmitPolicy::Layer34, ..BondOptions::default() };
    let bond = engine.change(|config| {
        let bond = config.add_bond(PortOptions::new("bond0"), options.clone(), None)?;
        members.iter().try_for_each(|&member| config.enslave(bond, member))?;
        Ok(bond)
    })?;
    let miimon = Duration::from_millis(args.miimon);
    let settings = Settings { options, miimon, ..Settings::default() };
    let _controller = Controller::start(&engine, bond, settings, Box::new(|_| ()))?;
    let count = args.rate / 8;
    let options = PortOptions { up: false, ..PortOptions::new("gen") };
    let generator = engine.add_port(options, Box::new(generator(args.rate, count)?))?;
    engine.change(|config| {
        config.set_upper(generator, UpperName::Named("bond0".to_owned()))?;
        config.set_up(generator, true)
    })?;
    // Not always at the same time between two looks of the monitor.
    std::thread::sleep(Duration::from_millis(40) + miimon * round as u32 / args.rounds as u32);
    let cut = cables[0].cut();
    let end = Instant::now() + Duration::from_secs(10);
    while received(&engine, generator) < count {
        anyhow::ensure!(Instant::now() < end, "the generator does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(20));
    let conservation = engine.conservation();
    anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
    let [dead, other] = [cables[0].finish(), cables[1].finish()];
    let last = dead.lost_late.last().copied().unwrap_or(cut);
    let detection = last - cut;
    let failure =
        Failure { cut, detection, dead, other, dropped: conservation.dropped, sent: count };
    let (missing, lost, dropped) = (failure.missing(), failure.lost(), failure.dropped);
    anyhow::ensure!(missing == lost + dropped, "{missing} missing, {lost} lost, {dropped} dropped");
    Ok(failure)
}

/// UDP of 64 bytes and many flows.
fn generator(rate: u64, count: u64) -> anyhow::Result<Generator> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.extend([0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
    packet.resize(64, 0);
    let flows = Field {
        offset: 26,
        width: 4,
        min: 0x0a01_0000,
        max: 0x0a01_ffff,
        change: Change::Count,
        checksum: None,
    };
    let options = generator::Options {
        rate: Some(rate),
        burst: 64,
        count: Some(count),
        fields: vec![flows],
        ..generator::Options::new(packet)
    };
    Ok(Generator::new(options)?)
}

fn title(args: &Args, mode: BondMode) -> String {
    let Args { rate, miimon, .. } = args;
    format!("{mode}, {rate} frames a second, miimon {miimon} ms: a member fails at 0")
}

fn print(args: &Args, mode: BondMode, typical: &Failure, failures: &[Failure]) {
    println!("{}\n", title(args, mode));
    print!("{}", plot::text(&typical.timeline()));
    let [queued, late] = [&typical.dead.lost_queued, &typical.dead.lost_late].map(Vec::len);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "\n  lost {} of {} = {queued} queued + {late} sent in {:.2} ms until it was noticed",
        typical.lost(),
        typical.sent,
        ms(typical.detection)
    );
    let times: Vec<f64> = failures.iter().map(|it| ms(it.detection)).collect();
    let lost: Vec<f64> = failures.iter().map(|it| it.lost() as f64).collect();
    let ((time, shortest, longest), (count, least, most)) = (median(&times), median(&lost));
    println!(
        "  of {} failures: noticed after {time:.2} ms ({shortest:.2} .. {longest:.2}), \
         lost {count:.0} frames ({least:.0} .. {most:.0})",
        failures.len()
    );
    let queued = failures.iter().map(|it| it.dead.lost_queued.len()).max().unwrap_or(0);
    let dropped: u64 = failures.iter().map(|it| it.dropped).sum();
    println!(
        "  up to {queued} of them queued; {dropped} more were dropped because a ring was full\n"
    );
}
