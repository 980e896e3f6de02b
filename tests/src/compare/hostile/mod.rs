//! Programs that combine everything, on maps and jump tables with hostile contents: each that is
//! accepted runs in the interpreter, which lets it do only what it was given, while [`watch`]
//! compares what happens with what was proved. Whatever either of them objects to is a mistake of
//! the verifier.

mod watch;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use towpath_bpf::btf::Btf;
use towpath_bpf::interp::{Fault, Violation};
use towpath_bpf::verifier::{Options, Rejection, Verified, verify};
use towpath_bpf::{Env, Errno, Linked};
use towpath_kernel::Kernel;
use towpath_xdp::{Exec, LoadError, LoadOptions, Program, Trust, Worker};

use super::{Difference, Report, blame};
use crate::masks;
use crate::programs::edit;
use crate::programs::hostile::{Feature, Sample, sample};
use crate::random::Random;
use crate::verdict::{self, Verdict};
use watch::Watch;
use world::{World, fill_word};

/// How much to do.
#[derive(Debug, Clone)]
pub struct HostileBudget {
    /// First seed.
    pub seed: u64,
    /// Programs to generate.
    pub programs: u64,
    /// Packets to run each accepted program on, each with other contents of the maps.
    pub packets: usize,
    /// Findings to minimise and print (each thread); the rest is counted.
    pub failures_max: usize,
    /// Programs at the same time.
    pub threads: usize,
    /// Leave out programs of which our verifier looks at more instructions than this.
    pub verified_max: u64,
    /// Ask the kernel about each program that is accepted, too: it must accept it. That takes most
    /// of the time.
    pub ask_kernel: bool,
    /// Is told now and then how far it is.
    pub progress: fn(&str),
}

/// Generates so many programs, and runs those that are accepted.
pub fn hostile(budget: &HostileBudget) -> Report {
    let mut report = Report::new("hostile programs, against their proofs");
    let (next, start) = (AtomicU64::new(budget.seed), Instant::now());
    let parts: Vec<Part<'_>> = thread::scope(|scope| {
        let start = |_| scope.spawn(|| part(budget, &next, &start));
        let threads: Vec<_> = (0..budget.threads.max(1)).map(start).collect();
        let part = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(part).collect()
    });
    let mut total = Counts::default();
    let mut differences = Vec::new();
    for part in parts {
        total.add(&part.counts);
        report.more += part.more;
        differences.extend(part.differences);
    }
    differences.sort_by_key(|(seed, _)| *seed);
    report.differences = differences.into_iter().map(|(_, difference)| difference).collect();
    total.print(&mut report, start.elapsed().as_secs_f64());
    report
}

/// What one thread has done.
struct Part<'b> {
    budget: &'b HostileBudget,
    kernel_btf: Arc<Btf>,
    /// Asked about findings, and about everything if that is wanted.
    kernel: Result<Kernel, String>,
    world: Option<World>,
    counts: Counts,
    /// By seed.
    differences: Vec<(u64, Difference)>,
    more: usize,
}

/// Takes one piece of seeds after the other.
fn part<'b>(budget: &'b HostileBudget, next: &AtomicU64, start: &Instant) -> Part<'b> {
    let mut part = Part {
        budget,
        kernel_btf: Env::builtin().kernel_btf,
        kernel: Kernel::open().map_err(|why| why.to_string()),
        world: None,
        counts: Counts::default(),
        differences: Vec::new(),
        more: 0,
    };
    let end = budget.seed.saturating_add(budget.programs);
    loop {
        let first = next.fetch_add(PIECE, Ordering::Relaxed);
        if first >= end {
            return part;
        }
        (first..end.min(first + PIECE)).for_each(|seed| part.take(seed));
        let done = first + PIECE - budget.seed;
        if done.is_multiple_of(PROGRESS) {
            let (seconds, found) = (start.elapsed().as_secs(), part.differences.len());
            (budget.progress)(&format!("{done} programs in {seconds} s, {found} findings here"));
        }
    }
}

/// How a program ended.
enum Outcome {
    /// Refused, as most damaged ones are.
    Refused(Box<Rejection>),
    /// Too long to verify.
    LeftOut,
    /// It did what was proved; with the features that were executed, and whether numbers were
    /// compared.
    Held { features: u32, compared: bool, endless: bool },
    /// It did something else.
    Failed(Failure),
}

/// What was not as proved.
#[derive(Debug)]
struct Failure {
    kind: &'static str,
    text: String,
    packet: usize,
}

impl Part<'_> {
    fn take(&mut self, seed: u64) {
        let sample = sample(seed);
        let outcome = self.judge(&sample, seed);
        self.counts.note(&outcome, &sample);
        let Outcome::Failed(failure) = outcome else { return };
        if self.differences.len() >= self.budget.failures_max {
            self.more += 1;
            return;
        }
        let fails = |part: &mut Self, sample: &Sample| match part.judge(sample, seed) {
            Outcome::Failed(other) if other.kind == failure.kind => Some(other),
            _ => None,
        };
        // What depends on programs that ran before is shown as it is.
        let (small, last) = match fails(self, &sample) {
            None => (sample, failure),
            Some(_) => {
                let small = edit::minimise(&sample, TRIES_MAX, |candidate| {
                    fails(self, candidate).is_some()
                });
                let last = fails(self, &small);
                (small, last.unwrap_or(failure))
            }
        };
        let difference = self.describe(seed, &small, last);
        (self.budget.progress)(&format!("found: {}\n{}", difference.name, difference.ours));
        self.differences.push((seed, difference));
    }

    /// A panic is a finding like any other.
    fn judge(&mut self, sample: &Sample, seed: u64) -> Outcome {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge_calmly(sample, seed)));
        let outcome = judged.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            let text = text.unwrap_or_default();
            Outcome::Failed(Failure { kind: "panic", text, packet: 0 })
        });
        // What a failed program holds on to stays held: locks for one.
        if matches!(outcome, Outcome::Failed(_)) {
            self.world = None;
        }
        outcome
    }

    fn judge_calmly(&mut self, sample: &Sample, seed: u64) -> Outcome {
        let (linked, used) = sample.linked(&self.kernel_btf);
        let mut options = Options::default();
        options.insns_processed_max = self.budget.verified_max;
        let proof = match verify(linked.clone(), &options) {
            Ok(proof) => proof,
            Err(rejection) if rejection.errno == Errno::E2BIG => return Outcome::LeftOut,
            Err(rejection) => return Outcome::Refused(rejection),
        };
        if let (true, Ok(kernel)) = (self.budget.ask_kernel, &self.kernel)
            && let Some(text) = refusal(kernel, linked.clone())
        {
            return Outcome::Failed(Failure { kind: "unsound", text, packet: 0 });
        }
        let reaches = |slot: &&usize| proof.facts().get(**slot).is_some_and(|it| it.reachable);
        if let Some(slot) = sample.ends.iter().find(reaches) {
            let text = format!("instruction {slot} uses something after its end");
            return Outcome::Failed(Failure { kind: "outlived", text, packet: 0 });
        }
        let numbers = match self.every_number(linked) {
            Ok(numbers) => numbers,
            Err(failure) => return Outcome::Failed(failure),
        };
        if masks::is_known()
            && seed.is_multiple_of(MASKED_EVERY)
            && let Some(text) = unmasked(&proof)
        {
            return Outcome::Failed(Failure { kind: "unmasked", text, packet: 0 });
        }
        self.run(proof, numbers.as_ref(), &used, sample, seed)
    }

    /// Another proof, which ends no path because of numbers that seem not to matter: it must come
    /// to the same verdict, unless it takes too long.
    ///
    /// Which numbers loops forget depends on the order of paths, on which both proofs differ. So
    /// where it refuses, a third one is asked that forgets none.
    fn every_number(&self, linked: Linked) -> Result<Option<Verified>, Failure> {
        let mut options = Options::default();
        options.insns_processed_max = 4 * self.budget.verified_max;
        options.every_number = true;
        let mut proof = verify(linked.clone(), &options);
        if proof.as_ref().is_err_and(|why| !says_nothing(why)) {
            options.forget_in_loops = false;
            proof = verify(linked, &options);
        }
        match proof {
            Ok(numbers) => Ok(Some(numbers)),
            Err(why) if says_nothing(&why) => Ok(None),
            Err(why) => {
                let place = why.insn.as_ref().map(|insn| insn.index);
                let text = format!("refused when every number counts: {place:?}: {}", why.message);
                Err(Failure { kind: "pruned", text, packet: 0 })
            }
        }
    }

    fn run(
        &mut self,
        proof: Verified,
        numbers: Option<&Verified>,
        used: &[usize],
        sample: &Sample,
        seed: u64,
    ) -> Outcome {
        let fail = |kind, text, packet| Outcome::Failed(Failure { kind, text, packet });
        if self.world.as_ref().is_none_or(|world| world.programs >= PROGRAMS_IN_A_WORLD) {
            match World::new(&self.kernel_btf) {
                Ok(world) => self.world = Some(world),
                Err(why) => return fail("no world", why, 0),
            }
        }
        let Some(world) = &mut self.world else { return fail("no world", String::new(), 0) };
        world.programs += 1;
        world.worker = Worker::with_seed(0, seed);
        let program = match world.load(proof, used) {
            Ok(program) => program,
            Err(why) => return fail("not runnable", why.to_string(), 0),
        };
        let proof = program.verified().map(Arc::clone);
        let Some(proof) = proof else { return fail("not runnable", String::new(), 0) };
        let watch = Watch::new(program.code(), &proof, numbers);
        let mut random = Random::new(seed ^ 0xf111);
        let (mut endless, mut is_cut_short) = (false, false);
        for packet in 0..self.budget.packets {
            world.fill(&program, used, &mut random);
            let bytes = bytes_of_packet(sample.has_frags, &mut random);
            if world.frame.refill(&bytes, 0).is_err() {
                continue;
            }
            let World { worker, frame, .. } = world;
            let ran = program.run_observed(worker, frame, &watch).map(|_returned| ());
            // Also of a run that was ended: what is due must not wait for another program.
            let timers = program.run_timers(worker);
            match ran.and(timers) {
                Ok(()) => continue,
                // The latter: programs that call themselves by tail calls in functions.
                Err(Fault {
                    violation: Violation::Budget { .. } | Violation::CallDepth { .. },
                    ..
                }) => endless = true,
                Err(fault) if is_unaligned(&fault, &watch) => {}
                Err(fault) => return fail(kind_of(&fault), fault.to_string(), packet),
            }
            // Locks that it held stay locked: nothing else may run here.
            is_cut_short = true;
            break;
        }
        world.forget(&program);
        if is_cut_short {
            self.world = None;
        }
        let executed = sample.points.iter().filter(|(slot, _)| watch.has_executed(*slot));
        let features = executed.fold(0, |all, (_, feature)| all | 1 << *feature as u32);
        Outcome::Held { features, compared: numbers.is_some(), endless }
    }

    /// The program, what is wrong with it, and what the kernel says, where there is one.
    fn describe(&self, seed: u64, sample: &Sample, failure: Failure) -> Difference {
        let (linked, _) = sample.linked(&self.kernel_btf);
        let name = format!("seed {seed}, packet {}{}", failure.packet, blame::listing(&linked));
        let kernel = match &self.kernel {
            Ok(kernel) => refusal(kernel, linked).unwrap_or_else(|| "accepts it".to_owned()),
            Err(why) => format!("not asked: {why}"),
        };
        Difference { name, kind: failure.kind.to_owned(), kernel, ours: failure.text }
    }
}

/// The accesses of a guest's machine code that are not masked against speculation, if there are
/// any.
fn unmasked(proof: &Verified) -> Option<String> {
    let mut options = LoadOptions { exec: Exec::Jit, ..LoadOptions::default() };
    (options.jit.trust, options.jit.mask_speculation) = (Trust::Guest, true);
    let program = match Program::from_verified(proof.clone(), &options) {
        Ok(program) => program,
        Err(LoadError::Unmasked { .. }) => return None,
        Err(error) => return Some(error.to_string()),
    };
    let found = masks::unmasked(program.machine_code()?);
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    (!found.is_empty()).then(|| found.join("\n"))
}

/// Why the kernel refuses a program; `None` when it accepts it, gives up, or trips over itself.
fn refusal(kernel: &Kernel, mut linked: Linked) -> Option<String> {
    linked.kernel_btf = Arc::clone(kernel.btf());
    let maps = match kernel.load_maps(&linked.maps) {
        Ok(maps) => maps,
        Err(error) => return Some(format!("makes no such maps: {error}")),
    };
    match verdict::kernel(kernel, &linked, &maps, true) {
        Verdict::Accepted(_) => None,
        Verdict::Refused(why) if why.starts_with("E2BIG") || why.contains("verifier bug") => None,
        Verdict::Refused(why) => Some(format!("refuses it: {why}")),
    }
}

/// A proof that gave up, or that refuses what it may refuse.
fn says_nothing(why: &Rejection) -> bool {
    why.errno == Errno::E2BIG || HARMLESS.iter().any(|words| why.message.contains(words))
}

/// A difference on purpose (`docs/differences.md`).
fn is_unaligned(fault: &Fault, watch: &Watch) -> bool {
    let unaligned = matches!(&fault.violation,
        Violation::Memory { why, .. } if *why == "an atomic is aligned to its size");
    unaligned && watch.may_be_unaligned(fault.insn)
}

fn kind_of(fault: &Fault) -> &'static str {
    match fault.violation {
        Violation::Memory { .. } => "escape",
        Violation::Disproved { .. } => "disproved",
        Violation::Kept { .. } => "kept",
        _ => "fault",
    }
}

/// Short packets mostly, with the same numbers that maps hold.
fn bytes_of_packet(has_frags: bool, random: &mut Random) -> Vec<u8> {
    let long: &[usize] = if has_frags { &[1500, 3600, 9000] } else { &[300, 1500] };
    let bytes = match random.below(8) {
        0 => *random.pick(long),
        1 => 14,
        _ => 14 + random.below(51),
    };
    let mut packet = vec![0; bytes];
    packet.chunks_mut(8).take(16).for_each(|word| fill_word(word, random));
    packet
}

/// What became of the programs.
#[derive(Debug)]
struct Counts {
    programs: u64,
    accepted: u64,
    left_out: u64,
    compared: u64,
    endless: u64,
    insns: u64,
    /// Programs in which a feature was executed.
    features: [u64; Feature::COUNT],
    /// Programs in which two features were executed.
    pairs: Vec<[u64; Feature::COUNT]>,
    /// Reasons to refuse, by the first words.
    reasons: std::collections::BTreeMap<String, u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            programs: 0,
            accepted: 0,
            left_out: 0,
            compared: 0,
            endless: 0,
            insns: 0,
            features: [0; Feature::COUNT],
            pairs: vec![[0; Feature::COUNT]; Feature::COUNT],
            reasons: std::collections::BTreeMap::new(),
        }
    }
}

impl Counts {
    fn note(&mut self, outcome: &Outcome, sample: &Sample) {
        self.programs += 1;
        self.insns += sample.insns.len() as u64;
        match outcome {
            Outcome::Refused(rejection) => {
                let words = rejection.message.split_whitespace();
                let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
                let reason = words.take(5).collect::<Vec<_>>().join(" ");
                *self.reasons.entry(reason).or_default() += 1;
            }
            Outcome::LeftOut => self.left_out += 1,
            Outcome::Failed(_) => self.accepted += 1,
            Outcome::Held { features, compared, endless } => {
                self.accepted += 1;
                self.compared += u64::from(*compared);
                self.endless += u64::from(*endless);
                for first in 0..Feature::COUNT {
                    if features & 1 << first == 0 {
                        continue;
                    }
                    self.features[first] += 1;
                    for second in first + 1..Feature::COUNT {
                        self.pairs[first][second] += u64::from(features >> second & 1);
                    }
                }
            }
        }
    }

    fn add(&mut self, other: &Counts) {
        self.programs += other.programs;
        self.accepted += other.accepted;
        self.left_out += other.left_out;
        self.compared += other.compared;
        self.endless += other.endless;
        self.insns += other.insns;
        let sums = self.features.iter_mut().zip(other.features);
        sums.for_each(|(mine, theirs)| *mine += theirs);
        for (mine, theirs) in self.pairs.iter_mut().zip(&other.pairs) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    fn print(&self, report: &mut Report, seconds: f64) {
        let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        report.figure("programs", self.programs);
        report.figure("per second", format!("{:.0}", self.programs as f64 / seconds));
        report.figure("instructions of each", self.insns / self.programs.max(1));
        let accepted = percent(self.accepted, self.programs);
        report.figure("accepted", format!("{} ({accepted:.1} %)", self.accepted));
        report.figure("  of which with every number compared", self.compared);
        report.figure("  of which ran for too long", self.endless);
        report.figure("left out (take longer to verify)", self.left_out);
        for &feature in Feature::ALL.iter() {
            let count = self.features[feature as usize];
            let name = format!("executed: {feature:?}");
            report.figure(&name, format!("{count} ({:.2} %)", percent(count, self.accepted)));
        }
        let mut rare = Vec::new();
        let mut least = u64::MAX;
        for first in 0..Feature::COUNT {
            for second in first + 1..Feature::COUNT {
                let count = self.pairs[first][second];
                least = least.min(count);
                if count == 0 {
                    rare.push(format!("{:?}+{:?}", Feature::ALL[first], Feature::ALL[second]));
                }
            }
        }
        report.figure("least frequent pair of these", least);
        report.figure("pairs never executed together", rare.len());
        if !rare.is_empty() {
            report.figure("  for example", rare[..rare.len().min(12)].join(" "));
        }
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons.into_iter().take(REASONS) {
            report.figure(&format!("refused: {reason}"), count);
        }
    }
}

/// What is refused on one path and need not be on a path that is pruned to it: a state in which
/// less is known passes these tests, and no access depends on them. A part of a spilled pointer is
/// read as a number, or the bytes of a dynptr, of an iterator, of saved interrupt flags: the state
/// before had nothing there, and privileged programs read unwritten memory. A whole pointer is read
/// as a number in the same way, and calculated with: it was proved for any number. A part of a
/// pointer is stored: at an offset that isn't known it is data like any other. A pointer is moved
/// far away and not used.
const HARMLESS: [&str; 6] = [
    "infinite loop",
    "invalid size of register fill",
    "invalid size of register spill",
    "invalid read from stack",
    "math between",
    "prohibited",
];
/// One program of so many is compiled as a guest's, and its code is walked over.
const MASKED_EVERY: u64 = 16;
/// Seeds that a thread takes at once.
const PIECE: u64 = 100;
/// Programs between two words about how far it is.
const PROGRESS: u64 = 100_000;
/// Number of programs after which maps and jump tables are made again: ids of programs are never
/// reused.
const PROGRAMS_IN_A_WORLD: usize = 2000;
/// Attempts at making one failing program smaller.
const TRIES_MAX: usize = 300;
/// Reasons that are printed.
const REASONS: usize = 25;
