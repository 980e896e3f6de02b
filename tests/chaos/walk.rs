//! The walk: a step, frames all the while, and a look at what must be so afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Outcome;
use crate::model::{Disk, Kind, Lane, Log, Model, Text};
use crate::steps::Step;
use crate::traffic::{CLASSES, Place, Traffic};
use crate::world::{World, ends};

/// One walk in a world of its own.
#[derive(Debug)]
pub(crate) struct Walk {
    model: Model,
    world: World,
    traffic: Traffic,
}

/// What went wrong, and when.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) seed: Option<u64>,
    /// How they were at the beginning.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) steps: Vec<Step>,
    pub(crate) why: String,
    pub(crate) model: String,
    pub(crate) log: String,
}

/// What a walk saw.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) steps: u64,
    pub(crate) sent: u64,
    pub(crate) passed: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Seen) {
        self.steps += other.steps;
        self.sent += other.sent;
        self.passed += other.passed;
    }
}

/// Takes so many steps.
pub(crate) fn walk(dir: &Path, seed: u64, steps: u64) -> Result<Seen, Box<Finding>> {
    let mut rng = Rng::with_seed(seed);
    let lanes = lanes(&mut rng);
    let mut left = steps;
    let next = |walk: &mut Walk| {
        left = left.checked_sub(1)?;
        Some(Step::choose(&mut rng, &walk.model))
    };
    take(dir, &lanes, next).map_err(|finding| Box::new(Finding { seed: Some(seed), ..*finding }))
}

/// Takes those of these steps that are possible.
pub(crate) fn again(dir: &Path, lanes: &[Lane], steps: &[Step]) -> Result<Seen, Box<Finding>> {
    let mut steps = steps.iter();
    take(dir, lanes, |walk| steps.by_ref().find(|step| step.is_possible(&walk.model)).copied())
}

fn lanes(rng: &mut Rng) -> Vec<Lane> {
    let lanes = (0..LANES).map(|_| {
        let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
        Lane::new(kind, rng.u8(..1 << (CLASSES - 1)))
    });
    lanes.collect()
}

fn take(
    dir: &Path,
    lanes: &[Lane],
    mut next: impl FnMut(&mut Walk) -> Option<Step>,
) -> Result<Seen, Box<Finding>> {
    let mut steps = Vec::new();
    let finding = |walk: Option<&Walk>, steps: &[Step], why: String| {
        let model = walk.map_or(String::new(), |walk| walk.model.to_string());
        let log = walk.map_or(String::new(), |walk| walk.world.log_end());
        let (lanes, steps) = (lanes.to_vec(), steps.to_vec());
        Box::new(Finding { seed: None, lanes, steps, why, model, log })
    };
    let mut walk = Walk::new(dir, lanes).map_err(|why| finding(None, &[], why))?;
    let begun = walk.settle();
    begun.map_err(|why| finding(Some(&walk), &[], why))?;
    let is_verbose = std::env::var_os("CHAOS_VERBOSE").is_some();
    while let Some(step) = next(&mut walk) {
        steps.push(step);
        if is_verbose {
            println!("  {}: {step:?}", steps.len());
        }
        let done = walk.step(step);
        done.map_err(|why| finding(Some(&walk), &steps, why))?;
    }
    let (sent, passed) = (walk.traffic.sent, walk.traffic.passed);
    Ok(Seen { steps: steps.len() as u64, sent, passed })
}

impl Walk {
    fn new(dir: &Path, lanes: &[Lane]) -> Outcome<Walk> {
        let mut model = Model {
            lanes: lanes.to_vec(),
            disk: Disk::Good,
            text: Text::Good,
            is_unsaved: false,
            log: Log::Read,
            has_extra: false,
            is_damaged: false,
        };
        let world = World::new(dir, &model)?;
        model.reload();
        let ends: Vec<(Vec<Place>, String)> =
            model.lanes.iter().enumerate().map(|(at, lane)| ends(dir, at, lane.kind)).collect();
        let mut traffic = Traffic::new(ends.iter());
        traffic.allow(model.may());
        Ok(Walk { model, world, traffic })
    }

    fn step(&mut self, step: Step) -> Outcome {
        let before = self.model.clone();
        self.traffic.pump()?;
        step.foresee(&mut self.model);
        let (old, new) = (before.may(), self.model.may());
        self.traffic.allow(old.zip(new).map(|(old, new)| old | new));
        if let Step::KillMachine(lane) = step {
            self.traffic.kill_machine(lane);
        }
        self.act(step, &before)?;
        self.settle()
    }

    /// Does it while frames flow.
    fn act(&mut self, step: Step, before: &Model) -> Outcome {
        let Walk { model, world, traffic, .. } = self;
        let pid = Arc::clone(&world.pid);
        meanwhile(traffic, &pid, || step.act(world, before, model))
    }

    /// Waits until everything is as it is to be, and looks that it is.
    fn settle(&mut self) -> Outcome {
        let start = Instant::now();
        loop {
            let Walk { world, traffic, .. } = self;
            let status = meanwhile(traffic, &world.pid, || Ok(world.daemon.status()))?;
            let why = match status {
                Ok(status) => match self.compare(&status) {
                    None => break,
                    Some(why) => why,
                },
                Err(error) => error.to_string(),
            };
            if let Some(ended) = self.world.daemon.has_ended() {
                return Err(ended);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("in {PATIENCE:?}: {why}"));
            }
        }
        self.traffic.allow(self.model.may());
        self.traffic.must_pass(&self.model.must())?;
        let Walk { world, traffic, model } = self;
        meanwhile(traffic, &world.pid, || keeps(world, model))
    }

    /// What `status` shows beyond or beside what it should.
    fn compare(&self, status: &Value) -> Option<String> {
        let expected = self.model.failures();
        let shown = status["failures"].as_array().cloned().unwrap_or_default();
        let text = |failure: &Value, key: &str| failure[key].as_str().unwrap_or("").to_owned();
        for failure in &shown {
            let is_it = |it: &&crate::model::Expected| {
                text(failure, "code") == it.code && text(failure, "subject").contains(&it.subject)
            };
            if !expected.iter().any(|it| is_it(&it)) {
                return Some(format!("status says what isn't so: {failure}"));
            }
        }
        let is_shown = |it: &&crate::model::Expected| {
            shown.iter().any(|failure| {
                text(failure, "code") == it.code && text(failure, "subject").contains(&it.subject)
            })
        };
        let missing = expected.iter().find(|it| it.is_required && !is_shown(it));
        missing.map(|it| format!("status does not say: {it:?}, but {shown:?}"))
    }
}

/// What is kept: elements that users stored.
fn keeps(world: &World, model: &Model) -> Outcome {
    for (number, lane) in model.lanes.iter().enumerate() {
        if lane.running.is_none() {
            continue;
        }
        let map = world.daemon.map(number, "blocked")?;
        let keys = world.daemon.keys(map)?;
        let bit = |key: &u64| 1u8.checked_shl(*key as u32).unwrap_or(0);
        let now = keys.iter().fold(0, |all, key| all | bit(key));
        if (now ^ lane.blocked) & !lane.uncertain != 0 {
            return Err(format!(
                "lane {number}: blocked are {now:#010b}, and not {:#010b} of {:#010b}",
                lane.blocked, !lane.uncertain
            ));
        }
        leads(world, number, lane.leads)?;
    }
    Ok(())
}

/// An element that leads to a port is there again soon after that is.
fn leads(world: &World, lane: usize, leads: Option<bool>) -> Outcome {
    let (map, start) = (world.daemon.map(lane, "out")?, Instant::now());
    while leads.is_some_and(|leads| world.daemon.keys(map).is_ok_and(|it| it.is_empty() == leads)) {
        if start.elapsed() > PATIENCE {
            return Err(format!("lane {lane}: its device map leads somewhere: not {leads:?}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Does something while frames flow. A daemon that keeps it for ever is killed.
fn meanwhile<T: Send>(
    traffic: &mut Traffic,
    pid: &AtomicU32,
    work: impl FnOnce() -> Outcome<T> + Send,
) -> Outcome<T> {
    let (start, mut is_late, mut pumped) = (Instant::now(), false, Ok(()));
    let done = std::thread::scope(|scope| {
        let works = scope.spawn(work);
        while !works.is_finished() {
            if pumped.is_ok() {
                pumped = traffic.pump();
            }
            if start.elapsed() > STEP_MAX && !is_late {
                is_late = true;
                let pid = Pid::from_raw(pid.load(Ordering::Relaxed).cast_signed());
                // It may have ended.
                let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
            }
            std::thread::sleep(PAUSE);
        }
        works.join().expect("no panic")
    });
    match done {
        _ if is_late => Err(format!("the daemon does not answer in {STEP_MAX:?}")),
        done => pumped.and(done),
    }
}

const LANES: usize = 3;
/// Whatever is asked of the daemon takes less.
const STEP_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_micros(500);
/// How long it may take until everything is as it should be.
const PATIENCE: Duration = Duration::from_secs(20);
