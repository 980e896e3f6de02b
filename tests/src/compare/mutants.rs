//! Real programs with an instruction or two changed: our verdict beside the kernel's.
//!
//! Random programs rarely hold a lock or a dynptr in a way that is almost right. A program that
//! does, changed a little, is what tests the rules about held things.

use std::path::PathBuf;

use towpath_bpf::Linked;
use towpath_bpf::object::{Env, Object, ProgramKind};
use towpath_kernel::{Kernel, MapSet};

use super::Report;
use crate::programs::mutate::disturb;
use crate::random::Random;
use crate::verdict::{self, Agreement};

/// How much to do.
#[derive(Debug, Clone)]
pub struct MutantBudget {
    /// Objects whose XDP programs are changed.
    pub objects: Vec<PathBuf>,
    /// First seed.
    pub seed: u64,
    /// Changed forms of each program.
    pub mutants: u64,
    /// Differences to print; the rest is counted.
    pub failures_max: usize,
}

/// Compares verdicts on so many changed forms of each program.
pub fn mutants(kernel: &Kernel, budget: &MutantBudget) -> Report {
    let mut report = Report::new("changed programs");
    let env = Env::new(kernel.btf().clone());
    let mut counts = [0usize; 4];
    for path in &budget.objects {
        let name = path.display().to_string();
        let object = std::fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| Object::open(&bytes, &name).map_err(|error| error.to_string()));
        let object = match object {
            Ok(object) => object,
            Err(error) => {
                report.skipped.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (index, program) in object.programs().iter().enumerate() {
            if matches!(program.kind, ProgramKind::Other(_)) {
                continue;
            }
            let Ok(linked) = object.link(index, &env) else { continue };
            if harms_the_kernel(&linked) {
                report.skipped.push(format!("{name} {}: could crash this kernel", linked.name));
                continue;
            }
            let Ok(maps) = kernel.load_maps(&linked.maps) else {
                report.skipped.push(format!("{name}: the kernel refuses its maps"));
                break;
            };
            change(kernel, &linked, &maps, budget, &mut counts, &mut report);
        }
    }
    let [both, neither, unsound, strict] = counts;
    // No verdict on the program: this kernel doesn't list its variables' addresses.
    report.differences.retain(|d| !d.kernel.contains("failed to find the address"));
    report.figure("accepted by both", both);
    report.figure("refused by both", neither);
    report.figure("accepted by us alone", unsound);
    report.figure("accepted by the kernel alone", strict);
    report
}

/// Linux 6.18 follows a null pointer when these are given a map whose values have no special
/// fields (`check_kfunc_args` reads `map->record->wq_off` unchecked).
fn harms_the_kernel(linked: &Linked) -> bool {
    linked.kfuncs.iter().any(|kfunc| {
        kfunc.name == "bpf_wq_init" || kfunc.name.starts_with("bpf_task_work_schedule")
    })
}

/// Judges the changed forms of one program.
fn change(
    kernel: &Kernel,
    linked: &Linked,
    maps: &MapSet,
    budget: &MutantBudget,
    counts: &mut [usize; 4],
    report: &mut Report,
) {
    for seed in budget.seed..budget.seed.saturating_add(budget.mutants) {
        let mut mutant = linked.clone();
        let mut random = Random::new(seed);
        disturb(&mut mutant.insns, linked.kfuncs.len(), linked.maps.len(), &mut random);
        let ours = verdict::ours(&mutant);
        let theirs = verdict::kernel(kernel, &mutant, maps, ours.is_accepted());
        let agreement = Agreement::of(ours.is_accepted(), theirs.is_accepted());
        counts[agreement as usize] += 1;
        if report.differences.len() >= budget.failures_max {
            report.more += usize::from(ours.is_accepted() != theirs.is_accepted());
            continue;
        }
        let label = format!("{} seed {seed}{}", linked.name, changes(linked, &mutant));
        report.verdicts(&label, agreement, theirs.reason(), ours.reason());
    }
}

/// The changed instructions.
fn changes(before: &Linked, after: &Linked) -> String {
    let pairs = before.insns.iter().zip(&after.insns).enumerate();
    pairs
        .filter(|(_, (old, new))| old != new)
        .map(|(at, (old, new))| format!("\n    {at}: {old:?} -> {new:?}"))
        .collect()
}
