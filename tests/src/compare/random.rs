//! Random programs: our verdict beside the kernel's, and what is accepted run on packets in every
//! way there is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use towpath_bpf::btf::Btf;
use towpath_bpf::verifier::Verified;
use towpath_bpf::{Env, Insn, Linked, MapDef};
use towpath_jit::passes::Choice;
use towpath_kernel::Kernel;
use towpath_xdp::{Exec, LoadOptions, Program};

use super::blame::{self, Blame};
use super::{Difference, Report};
use crate::execution::{Mismatch, Trace, depends_on_surroundings, is_endless};
use crate::packets::packets;
use crate::programs::{self, edit};
use crate::verdict::{self, Agreement, Verdict};
use crate::ways::Way;

/// How much to do.
#[derive(Debug, Clone)]
pub struct Budget {
    /// First seed.
    pub seed: u64,
    /// Programs to generate.
    pub programs: u64,
    /// Packets to run each accepted program on.
    pub packets: usize,
    /// Leave out programs of which our verifier looks at more instructions than this.
    pub verified_max: Option<u64>,
    /// Trust the kernel's verdict and run without our proof: tests the interpreter alone.
    pub unverified: bool,
    /// Ways to run programs beside the reference.
    pub ways: Vec<Way>,
    /// Leave passes out at random, others for each program.
    pub scramble: bool,
    /// Differences to minimise and print (each thread); the rest is counted.
    pub failures_max: usize,
    /// Programs at the same time.
    pub threads: usize,
}

/// Compares so many random programs: with the kernel, or with the interpreter when there is none.
pub fn random(kernel: Option<&Kernel>, budget: &Budget) -> Report {
    let reference = if kernel.is_some() { "the kernel" } else { "the interpreter" };
    let mut report = Report::new(&format!("random programs, against {reference}"));
    let next = AtomicU64::new(budget.seed);
    let parts: Vec<Part<'_>> = thread::scope(|scope| {
        let start = |_| scope.spawn(|| part(kernel, budget, &next));
        let threads: Vec<_> = (0..budget.threads.max(1)).map(start).collect();
        // A panic of ours is a failure like any other, and must not look like few programs.
        let part = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(part).collect()
    });
    let mut total = Court::new(kernel, budget);
    let mut differences = Vec::new();
    for part in parts {
        total.add(&part.court);
        report.more += part.more;
        differences.extend(part.differences);
    }
    differences.sort_by_key(|(seed, difference)| (difference.kind != "unsound", *seed));
    report.differences = differences.into_iter().map(|(_, difference)| difference).collect();
    total.print(&mut report);
    report
}

/// What one thread has done.
struct Part<'k> {
    court: Court<'k>,
    /// By seed.
    differences: Vec<(u64, Difference)>,
    more: usize,
}

/// Takes one seed after the other.
fn part<'k>(kernel: Option<&'k Kernel>, budget: &'k Budget, next: &AtomicU64) -> Part<'k> {
    let mut part = Part { court: Court::new(kernel, budget), differences: Vec::new(), more: 0 };
    let Part { court, differences, more } = &mut part;
    let end = budget.seed.saturating_add(budget.programs);
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return part;
        }
        court.scramble(seed);
        // Where a program refers to functions, the kernel asks for BTF, which these have not.
        let insns = programs::program(seed, kernel.is_none());
        let Some(failure) = court.judge(&insns, true) else { continue };
        if differences.len() >= budget.failures_max {
            *more += 1;
            continue;
        }
        let small = edit::minimise(&insns, TRIES_MAX, |candidate| {
            court.judge(candidate, false).is_some_and(|other| other.is_like(&failure))
        });
        let last = court.judge(&small, false).unwrap_or(failure);
        differences.push((seed, court.describe(seed, &small, last)));
    }
}

/// What differs, and in which way of running.
struct Failure {
    found: Mismatch,
    way: Option<usize>,
}

impl Failure {
    fn new(kind: &str, kernel: &str, ours: &str) -> Failure {
        let [kind, kernel, ours] = [kind, kernel, ours].map(str::to_owned);
        Failure { found: Mismatch { kind, packet: 0, kernel, ours }, way: None }
    }

    fn is_like(&self, other: &Failure) -> bool {
        self.found.kind == other.found.kind && self.way == other.way
    }
}

/// Judges one program after the other.
struct Court<'k> {
    kernel: Option<&'k Kernel>,
    btf: Arc<Btf>,
    budget: &'k Budget,
    /// The ways, the interpreter first when it is not the reference.
    ways: Vec<Way>,
    maps: Arc<[MapDef]>,
    packets: Vec<Vec<u8>>,
    /// By [`Agreement`].
    counts: [usize; 4],
    runs: usize,
    /// Programs that ran as wanted, by way.
    ran: Vec<usize>,
    /// Programs that differ, but whose results depend on addresses or unwritten stack: the kernel
    /// refuses them to loaders without `CAP_PERFMON`.
    surroundings: usize,
    /// Programs that were not run: their loops have too many rounds.
    endless: usize,
    /// Programs that take too long to verify.
    left_out: usize,
    /// Programs that the kernel gave up looking at, and we did not.
    too_complex: usize,
    /// Programs that end with an atomic operation in an arena that is not aligned to its size: a
    /// difference on purpose (`docs/differences.md`).
    unaligned: usize,
}

impl<'k> Court<'k> {
    fn new(kernel: Option<&'k Kernel>, budget: &'k Budget) -> Self {
        let mut ways = budget.ways.clone();
        ways.retain(|way| way.exec != Exec::Interp);
        if kernel.is_some() {
            ways.insert(0, Way::interpreter());
        }
        let btf = kernel.map_or(Env::builtin().kernel_btf, |kernel| Arc::clone(kernel.btf()));
        Court {
            kernel,
            btf,
            budget,
            ran: vec![0; ways.len()],
            ways,
            maps: programs::maps(),
            packets: packets(budget.seed, budget.packets, false),
            counts: [0; 4],
            runs: 0,
            surroundings: 0,
            endless: 0,
            left_out: 0,
            too_complex: 0,
            unaligned: 0,
        }
    }

    /// Counts what another has done.
    fn add(&mut self, other: &Court<'_>) {
        let pairs = self.counts.iter_mut().zip(other.counts);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        let pairs = self.ran.iter_mut().zip(&other.ran);
        pairs.for_each(|(mine, theirs)| *mine += theirs);
        self.runs += other.runs;
        self.surroundings += other.surroundings;
        self.endless += other.endless;
        self.left_out += other.left_out;
        self.too_complex += other.too_complex;
        self.unaligned += other.unaligned;
    }

    /// Chooses the passes for the next program.
    fn scramble(&mut self, seed: u64) {
        if self.budget.scramble {
            self.ways.iter_mut().for_each(|way| way.scramble(seed));
        }
    }

    /// What differs, if anything does. `counted` is off while minimising.
    fn judge(&mut self, insns: &[Insn], counted: bool) -> Option<Failure> {
        let linked = programs::linked(insns.to_vec(), &self.maps, &self.btf);
        let ours = verdict::ours_within(&linked, self.budget.verified_max);
        if self.gave_up(&ours) {
            self.left_out += usize::from(counted);
            return None;
        }
        let Some(kernel) = self.kernel else {
            let Verdict::Accepted(verified) = ours else { return None };
            if is_endless(&verified, &self.packets) {
                self.endless += usize::from(counted);
                return None;
            }
            self.runs += usize::from(counted);
            return self.run(&verified, None, counted);
        };
        let maps = match kernel.load_maps(&linked.maps) {
            Ok(maps) => maps,
            Err(error) => return Some(Failure::new("map creation", &error.to_string(), "")),
        };
        let theirs = verdict::kernel(kernel, &linked, &maps, !counted);
        if !self.budget.unverified {
            let agreement = Agreement::of(ours.is_accepted(), theirs.is_accepted());
            self.counts[agreement as usize] += usize::from(counted);
            match agreement {
                Agreement::Unsound => {
                    // Asked again: the first time no reason was written down.
                    let theirs = verdict::kernel(kernel, &linked, &maps, true);
                    return self.accepted_alone(theirs.reason(), counted);
                }
                Agreement::TooStrict => {
                    return Some(Failure::new("too strict", "", ours.reason()));
                }
                Agreement::BothRefuse => return None,
                Agreement::BothAccept => {}
            }
        }
        let program = theirs.program()?;
        if self.packets.is_empty() {
            return None;
        }
        if let Verdict::Accepted(verified) = &ours
            && is_endless(verified, &self.packets)
        {
            self.endless += usize::from(counted);
            return None;
        }
        self.runs += usize::from(counted);
        if let Err(error) = maps.set_program(program) {
            return Some(Failure::new("map creation", &error.to_string(), ""));
        }
        let reference = Trace::of_kernel(program, &maps, &self.packets);
        if reference.is_empty() {
            return Some(Failure::new("refused", "test_run refuses every packet", ""));
        }
        let found = match ours {
            Verdict::Accepted(verified) => self.run(&verified, Some(reference), counted)?,
            Verdict::Refused(_) => self.run_unverified(&linked, &reference)?,
        };
        if self.ended_on_purpose(&found.found, counted) {
            return None;
        }
        let mut strict = towpath_kernel::LoadOptions::default();
        (strict.without_perfmon, strict.log_refusals) = (true, false);
        if found.found.kind != "fault" && kernel.load_with(&linked, &maps, &strict).is_err() {
            self.surroundings += usize::from(counted);
            return None;
        }
        Some(found)
    }

    /// What the kernel finds fault with; nothing if it only gave up.
    fn accepted_alone(&mut self, reason: &str, counted: bool) -> Option<Failure> {
        let gave_up = is_too_complex(reason);
        self.too_complex += usize::from(gave_up && counted);
        (!gave_up).then(|| Failure::new("unsound", reason, ""))
    }

    /// Whether the run ended where it is meant to, and the kernel's goes on.
    fn ended_on_purpose(&mut self, found: &Mismatch, counted: bool) -> bool {
        let is_unaligned = found.kind == "fault" && found.ours.contains(UNALIGNED);
        self.unaligned += usize::from(is_unaligned && counted);
        is_unaligned
    }

    /// Whether our verifier would have gone on, had it been let.
    fn gave_up(&self, ours: &Verdict<Box<Verified>>) -> bool {
        self.budget.verified_max.is_some() && ours.reason().contains("too large")
    }

    /// Runs an accepted program in every way; each has fresh maps.
    fn run(
        &mut self,
        verified: &Verified,
        reference: Option<Trace>,
        counted: bool,
    ) -> Option<Failure> {
        let reference = match reference {
            Some(reference) => reference,
            None => match trace(verified, &Way::interpreter(), &self.packets, None) {
                Ok((trace, _)) => trace,
                Err(why) => return Some(Failure::new("not runnable", "", &why)),
            },
        };
        for (index, way) in self.ways.iter().enumerate() {
            let (other, exec) = match trace(verified, way, &self.packets, Some(&reference)) {
                Ok(ran) => ran,
                Err(why) => {
                    let failure = Failure::new("not runnable", "", &why);
                    return Some(Failure { way: Some(index), ..failure });
                }
            };
            self.ran[index] += usize::from(counted && exec == way.exec);
            let Some(found) = reference.differs_from(&other) else { continue };
            let options = LoadOptions::default();
            if found.kind != "fault" && depends_on_surroundings(verified, &options, &self.packets) {
                self.surroundings += usize::from(counted);
                return None;
            }
            return Some(Failure { found, way: Some(index) });
        }
        None
    }

    /// Runs what only the kernel verified in the interpreter.
    fn run_unverified(&self, linked: &Linked, reference: &Trace) -> Option<Failure> {
        let options = LoadOptions { unverified: true, ..LoadOptions::default() };
        match Program::from_linked(linked.clone(), &options) {
            Ok(program) => {
                let found = reference.differs_from(&reference.again(&program, &self.packets))?;
                Some(Failure { found, way: None })
            }
            Err(error) => Some(Failure::new("not runnable", "", &error.to_string())),
        }
    }

    /// The program, the packet, what each side did, and the pass whose work it is.
    fn describe(&self, seed: u64, insns: &[Insn], failure: Failure) -> Difference {
        let Failure { found, way } = failure;
        let linked = programs::linked(insns.to_vec(), &self.maps, &self.btf);
        let mut name = format!("seed {seed}, packet {}", found.packet);
        name.push_str(&blame::listing(&linked));
        if let Some(packet) = self.packets.get(found.packet) {
            name.push_str(&format!("\n    packet: {}", blame::hex(packet)));
        }
        let mut ours = found.ours;
        if let Some(way) = way.map(|way| &self.ways[way]) {
            ours = format!("{way}: {ours}");
            if let (false, Verdict::Accepted(verified)) =
                (way.exec == Exec::Interp, verdict::ours(&linked))
            {
                ours.push_str(&format!("\n  {}", Blame::find(&verified, way, &self.packets)));
            }
        }
        Difference { name, kind: found.kind, kernel: found.kernel, ours }
    }

    fn print(&self, report: &mut Report) {
        report.figure("programs", self.budget.programs);
        if self.budget.verified_max.is_some() {
            report.figure("left out (take longer to verify)", self.left_out);
        }
        if self.kernel.is_some() {
            let [both, neither, unsound, strict] = self.counts;
            report.figure("accepted by both", both);
            report.figure("refused by both", neither);
            report.figure("accepted by us alone", unsound);
            report.figure("  of which too complex for the kernel", self.too_complex);
            report.figure("accepted by the kernel alone", strict);
        }
        report.figure("programs run", self.runs);
        for (way, ran) in self.ways.iter().zip(&self.ran) {
            let name = if self.budget.scramble { way.exec_name() } else { way.to_string() };
            report.figure(&format!("  of which really by {name}"), ran);
        }
        report.figure("  of which not comparable (addresses)", self.surroundings);
        report.figure("  of which ended by an unaligned atomic", self.unaligned);
        report.figure("not run (loops of too many rounds)", self.endless);
        report.figure("packets run on each", self.packets.len());
        if self.budget.scramble {
            report.figure("passes left out", "a random choice for each program");
        }
    }
}

/// Runs a verified program in one way, on the packets of the reference; says how it really ran.
pub(super) fn trace(
    verified: &Verified,
    way: &Way,
    packets: &[Vec<u8>],
    reference: Option<&Trace>,
) -> Result<(Trace, Exec), String> {
    let run = || {
        let program = Program::from_verified(verified.clone(), &way.options())
            .map_err(|error| error.to_string())?;
        let trace = match reference {
            Some(reference) => reference.again(&program, packets),
            None => Trace::of(&program, packets),
        };
        Ok((trace, program.exec()))
    };
    // A compiler that panics (its checker does, on a broken pass) is one more difference.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        Err(text.lines().next().unwrap_or_default().to_owned())
    })
}

/// Every pass left out in turn, over the same programs.
pub fn passes(kernel: Option<&Kernel>, budget: &Budget) -> Report {
    let mut report = Report::new("random programs with each pass left out");
    let mut names: Vec<&str> = towpath_jit::passes::PASSES.iter().map(|pass| pass.name).collect();
    names.sort_unstable();
    names.dedup();
    let without = |names: &[&str]| Choice {
        without: names.iter().map(|&name| name.to_owned()).collect(),
        check: true,
        ..Choice::default()
    };
    let choices = names.iter().map(|&name| without(&[name])).chain([without(&names)]);
    let mut ways = Vec::new();
    for choice in choices {
        for way in &budget.ways {
            ways.push(Way { passes: choice.clone(), ..way.clone() });
        }
    }
    let inner = random(kernel, &Budget { ways, scramble: false, ..budget.clone() });
    report.figures = inner.figures;
    (report.differences, report.more) = (inner.differences, inner.more);
    report
}

/// How the fault of an atomic operation in an arena reads that x86 would carry out.
const UNALIGNED: &str = "an atomic is aligned to its size";

/// Attempts at making one failing program smaller.
const TRIES_MAX: usize = 150;

/// Whether the kernel gave a program up without finding fault with it. `docs/differences.md` says
/// why we may be done earlier.
fn is_too_complex(reason: &str) -> bool {
    // More jumps to look at later than it keeps (`push_stack`: "The sequence of 8193 jumps is too
    // complex"), or more instructions than it looks at ("BPF program is too large. Processed
    // 1000001 insn"); the programs themselves are small. Some ways of its to fail at that end with
    // another number.
    let is_numbered = ["ENOMEM", "E2BIG"].iter().any(|errno| reason.starts_with(errno));
    is_numbered || reason.contains("jumps is too complex")
}
