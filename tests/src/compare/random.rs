//! Random programs: our verdict beside the kernel's, and what both accept run on packets.

use towpath_kernel::Kernel;

use super::Report;
use crate::programs;
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
}

/// Compares so many random programs.
pub fn random(kernel: &Kernel, budget: &Budget) -> Report {
    let mut report = Report::new("random programs");
    let maps = programs::maps();
    let kernel_maps = match kernel.load_maps(&maps) {
        Ok(maps) => maps,
        Err(error) => {
            report.skipped.push(error.to_string());
            return report;
        }
    };
    let mut counts = [0usize; 4];
    for seed in budget.seed..budget.seed + budget.programs {
        let linked = programs::linked(programs::program(seed), &maps, kernel.btf());
        let theirs = verdict::kernel(kernel, &linked, &kernel_maps, true);
        let ours = verdict::ours(&linked);
        let agreement = Agreement::of(ours.is_accepted(), theirs.is_accepted());
        counts[agreement as usize] += 1;
        report.verdicts(&format!("seed {seed}"), agreement, theirs.reason(), ours.reason());
            report.skipped.push(format!(
                "{} {} {}",
                crate::random::Random::new(seed).one_in(3),
                seed,
                theirs.reason()
            ));
        }
    }
    report.figure("programs", budget.programs);
    report.figure("accepted by both", counts[Agreement::BothAccept as usize]);
    report.figure("refused by both", counts[Agreement::BothRefuse as usize]);
    report.figure("accepted by us alone", counts[Agreement::Unsound as usize]);
    report.figure("accepted by the kernel alone", counts[Agreement::TooStrict as usize]);
    report
}
