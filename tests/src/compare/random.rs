//! Random programs: our verdict beside the kernel's, and what both accept run on packets.

use std::sync::Arc;

use towpath_bpf::{Insn, Linked, MapDef};
use towpath_kernel::{Kernel, MapError, MapSet};
use towpath_xdp::{Exec, LoadOptions};

use super::{Difference, Report};
use crate::execution::{Mismatch, Pair, reads_unwritten_stack};
use crate::packets::packets;
use crate::programs::{self, edit};
use crate::verdict::{self, Agreement};

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// First seed.
    pub seed: u64,
    /// Programs to generate.
    pub programs: u64,
    /// Packets to run each accepted program on.
    pub packets: usize,
    /// Trust the kernel's verdict and run without our proof: tests the interpreter alone.
    pub unverified: bool,
    /// How programs run.
    pub exec: Exec,
    /// Differences to minimise and print; the rest is counted.
    pub failures_max: usize,
}

/// Compares so many random programs.
pub fn random(kernel: &Kernel, budget: &Budget) -> Report {
    let mut report = Report::new("random programs");
    let mut court = match Court::new(kernel, budget) {
        Ok(court) => court,
        Err(error) => {
            report.skipped.push(error.to_string());
            return report;
        }
    };
    for seed in budget.seed..budget.seed.saturating_add(budget.programs) {
        let insns = programs::program(seed);
        let Some(failure) = court.judge(&insns, true) else { continue };
        if report.differences.len() >= budget.failures_max {
            report.more += 1;
            continue;
        }
        let kind = failure.kind.clone();
        let small = edit::minimise(&insns, TRIES_MAX, |candidate| {
            court.judge(candidate, false).is_some_and(|other| other.kind == kind)
        });
        let last = court.judge(&small, false).unwrap_or(failure);
        report.differences.push(describe(seed, &small, last));
    }
    report.differences.sort_by_key(|difference| difference.kind != "unsound");
    let [both, neither, unsound, strict] = court.counts;
    report.figure("programs", budget.programs);
    report.figure("accepted by both", both);
    report.figure("refused by both", neither);
    report.figure("accepted by us alone", unsound);
    report.figure("accepted by the kernel alone", strict);
    report.figure("programs run", court.runs);
    report.figure("  of which as machine code", court.compiled);
    report.figure("  of which not comparable (addresses)", court.surroundings);
    report.figure("packets run on each", court.packets.len());
    report
}

fn describe(seed: u64, insns: &[Insn], failure: Mismatch) -> Difference {
    let lines: Vec<String> = insns
        .iter()
        .enumerate()
        .map(|(at, i)| {
            format!("\n    {at:3}: {:02x} r{} r{} {} {:#x}", i.code, i.dst, i.src, i.off, i.imm)
        })
        .collect();
    Difference {
        name: format!("seed {seed}, packet {}{}", failure.packet, lines.concat()),
        kind: failure.kind,
        kernel: failure.kernel,
        ours: failure.ours,
    }
}

/// Judges one program after the other.
struct Court<'k> {
    kernel: &'k Kernel,
    budget: &'k Budget,
    maps: Arc<[MapDef]>,
    /// For verdicts; a run gets maps of its own.
    kernel_maps: MapSet,
    packets: Vec<Vec<u8>>,
    /// By [`Agreement`].
    counts: [usize; 4],
    runs: usize,
    compiled: usize,
    /// Programs that differ, but whose results depend on addresses or unwritten stack: the kernel
    /// refuses them to whoever lacks `CAP_PERFMON`.
    surroundings: usize,
}

impl<'k> Court<'k> {
    fn new(kernel: &'k Kernel, budget: &'k Budget) -> Result<Self, MapError> {
        let maps = programs::maps();
        let kernel_maps = kernel.load_maps(&maps)?;
        let packets = packets(budget.seed, budget.packets, false);
        let counts = [0; 4];
        let (runs, compiled, surroundings) = (0, 0, 0);
        Ok(Court {
            kernel,
            budget,
            maps,
            kernel_maps,
            packets,
            counts,
            runs,
            compiled,
            surroundings,
        })
    }

    /// What differs, if anything does. `counted` is off while minimising.
    fn judge(&mut self, insns: &[Insn], counted: bool) -> Option<Mismatch> {
        let linked = programs::linked(insns.to_vec(), &self.maps, self.kernel.btf());
        let theirs = verdict::kernel(self.kernel, &linked, &self.kernel_maps, !counted);
        if !self.budget.unverified {
            let ours = verdict::ours(&linked);
            let agreement = Agreement::of(ours.is_accepted(), theirs.is_accepted());
            self.counts[agreement as usize] += usize::from(counted);
            match agreement {
                Agreement::Unsound => return Some(mismatch("unsound", theirs.reason(), "")),
                Agreement::TooStrict => return Some(mismatch("too strict", "", ours.reason())),
                Agreement::BothRefuse => return None,
                Agreement::BothAccept => {}
            }
        }
        if !theirs.is_accepted() || self.packets.is_empty() {
            return None;
        }
        self.run(&linked, counted)
    }

    /// Runs an accepted program over fresh maps.
    fn run(&mut self, linked: &Linked, counted: bool) -> Option<Mismatch> {
        self.runs += usize::from(counted);
        let maps = match self.kernel.load_maps(&self.maps) {
            Ok(maps) => maps,
            Err(error) => return Some(mismatch("map creation", &error.to_string(), "")),
        };
        let program = match self.kernel.load(linked, &maps) {
            Ok(program) => program,
            Err(error) => return Some(mismatch("loading again", &error.to_string(), "")),
        };
        let options = LoadOptions {
            unverified: self.budget.unverified,
            exec: self.budget.exec,
            ..LoadOptions::default()
        };
        let found = match Pair::new(linked, &program, &maps, &options) {
            Ok(mut pair) => {
                self.compiled += usize::from(counted && pair.exec() == Exec::Jit);
                pair.compare(&self.packets)?
            }
            Err(error) => return Some(mismatch("not runnable", "", &error)),
        };
        let mut strict = towpath_kernel::LoadOptions::default();
        (strict.without_perfmon, strict.log_refusals) = (true, false);
        let leaks = || self.kernel.load_with(linked, &maps, &strict).is_err();
        let unwritten = || reads_unwritten_stack(linked, &options, &self.packets);
        if found.kind != "fault" && (leaks() || unwritten()) {
            self.surroundings += usize::from(counted);
            return None;
        }
        Some(found)
    }
}

fn mismatch(kind: &str, kernel: &str, ours: &str) -> Mismatch {
    let [kind, kernel, ours] = [kind, kernel, ours].map(str::to_owned);
    Mismatch { kind, packet: 0, kernel, ours }
}

/// Attempts at making one failing program smaller.
const TRIES_MAX: usize = 150;
