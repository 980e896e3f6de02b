//! Measuring one program: rounds in which the peer and every engine of ours run it in turn.

use std::time::Duration;

use towpath_xdp::Exec;

use super::choose::{Choice, Steady, choose, steady};
use super::feed::{Feed, Renewal};
use super::flows;
use super::profile::{ProfileLine, profile};
use super::result::{Class, Entry, TRIVIAL_NS, median};
use super::side::{Here, Side};
use super::subject::{Subject, empty_here, empty_peer};
use crate::args::{BenchArgs, Peer, RunExec};

/// A program that was measured.
#[derive(Debug)]
pub(super) struct Measured {
    /// One entry for each `--exec`.
    pub(super) entries: Vec<Entry>,
    /// Way in which the program's figures may be compared.
    pub(super) class: Class,
}

/// A program and an empty one in the same engine.
struct Pair<'a> {
    program: Box<dyn Side + 'a>,
    empty: Box<dyn Side + 'a>,
    /// Number of runs that fill a window.
    runs: u64,
    empty_runs: u64,
}

impl<'a> Pair<'a> {
    fn new(
        mut program: Box<dyn Side + 'a>,
        mut empty: Box<dyn Side + 'a>,
        window: Duration,
    ) -> Result<Self, String> {
        let runs = calibrate(&mut *program, window)?;
        let empty_runs = calibrate(&mut *empty, window)?;
        Ok(Pair { program, empty, runs, empty_runs })
    }

    /// Nanoseconds of the program's work, and its last return value.
    fn time(&mut self) -> Result<(f64, u32), String> {
        let empty = self.empty.time(self.empty_runs)?;
        let whole = self.program.time(self.runs)?;
        Ok(((whole.ns() - empty.ns()).max(LEAST_NS), whole.retval))
    }
}

/// Number of runs that fill a window. A call has a cost of its own (the kernel patches its
/// dispatcher, and waits), which must not be counted as that of runs: tries become longer until
/// they fill a good part of a window.
pub(super) fn calibrate(side: &mut dyn Side, window: Duration) -> Result<u64, String> {
    let mut runs = RUNS_FIRST;
    loop {
        let timed = side.time(runs)?;
        let wanted = timed.runs_in(window).max(RUNS_FIRST);
        if timed.is_longer_than(window / 8) || runs >= RUNS_MAX {
            return Ok(wanted);
        }
        runs = wanted.clamp(2 * runs, 32 * runs);
    }
}

/// One engine of ours under measurement.
struct Lane<'a> {
    pair: Pair<'a>,
    ours: Ours,
}

/// Times of a program in one of our engines.
pub(super) struct Ours {
    pub(super) exec: RunExec,
    pub(super) ran: Exec,
    pub(super) compile_us: f64,
    pub(super) profile: Vec<ProfileLine>,
    pub(super) times: Vec<f64>,
}

/// Chooses a frame and measures the program on it, with each number of flows.
pub(super) fn measure(mut subject: Subject<'_>) -> Result<Vec<Measured>, String> {
    let args = subject.args;
    // The candidates' changes to maps must not affect the measurement.
    let any = Feed::new(&[0; 64], Renewal::Kept);
    let mut chooser = subject.here(RunExec::Interp, &any)?;
    let choices = choose(&mut chooser, subject.candidates(), args.frame)?;
    let opponent = Opponent::of(&subject, &choices)?;
    for &exec in &args.exec {
        check(&mut subject.here(exec, &opponent.feed)?, &subject, &opponent.expected)?;
    }
    let mut measured: Vec<Measured> = Vec::new();
    for &flows in args.flows() {
        let feed = match flows {
            1 => Ok(opponent.feed.clone()),
            flows => opponent.feed.clone().with_flows(flows),
        };
        let feed = match feed {
            // A packet without an address has one flow: an error only if `--flows` asks for more.
            Err(_no_address) if args.flows.is_empty() && !measured.is_empty() => break,
            feed => feed?,
        };
        if args.cold {
            subject.fill_up(&feed)?;
        }
        let (ours, peer_times) = match flows {
            1 => steadily(&subject, &feed, Some(opponent.expected.retval()))?,
            // Each flow has a verdict of its own.
            _ if args.cold => steadily(&subject, &feed, None)?,
            _ => flows::measure(&subject, &feed)?,
        };
        let entry = |ours: &Ours| opponent.entry(&subject, &feed, ours, &peer_times);
        let entries: Vec<Entry> = ours.iter().map(entry).collect();
        let class = Class::of(&entries);
        measured.push(Measured { entries, class });
        if class == Class::Trivial {
            break;
        }
    }
    Ok(measured)
}

/// Measures over maps that stay; gives the times of each of our engines, and the peer's times.
fn steadily(
    subject: &Subject<'_>,
    feed: &Feed,
    retval: Option<u32>,
) -> Result<(Vec<Ours>, Vec<f64>), String> {
    let args = subject.args;
    let mut lanes = Vec::new();
    for &exec in &args.exec {
        lanes.push(lane(subject, exec, feed)?);
    }
    let empty = empty_peer(args, subject.opened, feed)?;
    let mut peer = Pair::new(subject.peer(feed)?.0, empty, peer_window(args))?;
    let peer_times = rounds(args, &mut peer, &mut lanes, retval)?;
    Ok((lanes.into_iter().map(|lane| lane.ours).collect(), peer_times))
}

fn lane<'a>(subject: &Subject<'_>, exec: RunExec, feed: &Feed) -> Result<Lane<'a>, String> {
    let (mut here, mut ours) = Ours::new(subject, exec, feed)?;
    if subject.args.profile {
        ours.profile = profile(&mut here, &subject.linked)?;
    }
    let empty = empty_here(subject.args, subject.opened, exec, feed)?;
    let pair = Pair::new(Box::new(here), Box::new(empty), own_window(subject.args))?;
    Ok(Lane { pair, ours })
}

impl Ours {
    /// A loaded program, without times so far.
    pub(super) fn new(
        subject: &Subject<'_>,
        exec: RunExec,
        feed: &Feed,
    ) -> Result<(Here, Ours), String> {
        let here = subject.here(exec, feed)?;
        // A program moves to LLVM's code at the first burst after it is ready.
        if exec == RunExec::Llvm {
            here.program.wait_for_tier2(TIER2_TIMEOUT);
        }
        let compile_time = here.program.compile_time().unwrap_or_default();
        let compile_us = compile_time.as_nanos() as f64 / 1000.0;
        let ran = here.program.exec();
        Ok((here, Ours { exec, ran, compile_us, profile: Vec::new(), times: Vec::new() }))
    }

    fn entry(&self, subject: &Subject<'_>, peer_times: &[f64]) -> Entry {
        let ratios: Vec<f64> =
            peer_times.iter().zip(&self.times).map(|(peer, ours)| peer / ours).collect();
        let differences: Vec<f64> =
            peer_times.iter().zip(&self.times).map(|(peer, ours)| ours - peer).collect();
        Entry {
            name: subject.linked.name.clone(),
            exec: Exec::from(self.exec).name(),
            ns: median(&self.times),
            peer_ns: median(peer_times),
            ratio: median(&ratios),
            difference_ns: median(&differences),
            compile_us: self.compile_us,
            object: subject.opened.path.display().to_string(),
            spread: [
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            ],
            insns: subject.linked.insns.len(),
            ran: self.ran.name(),
            profile: self.profile.clone(),
            ..Entry::default()
        }
    }
}

pub(super) fn own_window(args: &BenchArgs) -> Duration {
    Duration::from_millis(args.window.into()) / 4
}

fn peer_window(args: &BenchArgs) -> Duration {
    let longer = if args.against == Peer::Kernel { 4 } else { 1 };
    own_window(args) * longer
}

/// The frame that a program can be measured on, and the peer's outcomes on it.
struct Opponent {
    load_time: Duration,
    feed: Feed,
    /// Number of the frame.
    number: usize,
    executed: u64,
    expected: Steady,
}

impl Opponent {
    /// Takes the first frame that the peer can repeat.
    fn of(subject: &Subject<'_>, choices: &[Choice]) -> Result<Self, String> {
        let mut refusal = String::new();
        for Choice { feed, number, executed } in choices {
            let (mut peer, load_time) = subject.peer(feed)?;
            match steady(&mut *peer) {
                Ok(expected) => {
                    let (feed, number, executed) = (feed.clone(), *number, *executed);
                    return Ok(Opponent { load_time, feed, number, executed, expected });
                }
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    /// All results of a program in one engine.
    fn entry(&self, subject: &Subject<'_>, feed: &Feed, ours: &Ours, peer_times: &[f64]) -> Entry {
        Entry {
            flows: feed.flows,
            verify_us: subject.verify_time().as_nanos() as f64 / 1000.0,
            leftover: subject.leftover(),
            verdict: self.expected.retval(),
            executed: self.executed,
            frame: self.number,
            frame_bytes: feed.packet.len(),
            frames: feed.renewal.name(),
            peer_load_us: self.load_time.as_nanos() as f64 / 1000.0,
            ..ours.entry(subject, peer_times)
        }
    }
}

/// Runs the rounds; gives the peer's times and leaves ours in the lanes.
fn rounds(
    args: &BenchArgs,
    peer: &mut Pair<'_>,
    lanes: &mut [Lane<'_>],
    retval: Option<u32>,
) -> Result<Vec<f64>, String> {
    let mut peer_times = Vec::new();
    for _ in 0..args.rounds {
        let (ns, returned) = peer.time()?;
        peer_times.push(ns);
        let mut same = retval.is_none_or(|expected| returned == expected);
        let mut most_ns = ns;
        for lane in &mut *lanes {
            let (ns, returned) = lane.pair.time()?;
            lane.ours.times.push(ns);
            most_ns = most_ns.max(ns);
            same &= retval.is_none_or(|expected| returned == expected);
        }
        if !same {
            return Err("cannot be repeated: its verdict changes after many runs".to_owned());
        }
        // Programs that do this little need no precise time.
        if most_ns < TRIVIAL_NS / 2.0 {
            break;
        }
    }
    Ok(peer_times)
}

/// Fails if the engines do not do the same, so that their times can't be compared.
fn check(here: &mut Here, subject: &Subject<'_>, expected: &Steady) -> Result<(), String> {
    let ours = steady(here)?;
    if !here.program.surroundings().trace.take().is_empty() {
        return Err("prints a line for every frame".to_owned());
    }
    if &ours != expected && !towpath_workload::is_volatile(&subject.linked) {
        let (ours, theirs) = (ours.retval(), expected.retval());
        return Err(format!("differs from its peer: returns {ours} here, {theirs} there"));
    }
    Ok(())
}

/// The least difference of two averages that is not noise.
pub(super) const LEAST_NS: f64 = 0.5;
const RUNS_FIRST: u64 = 1024;
/// More runs would take seconds, whatever they do.
const RUNS_MAX: u64 = 1 << 31;
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
