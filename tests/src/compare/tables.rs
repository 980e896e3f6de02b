//! The kernel's verifier tables: our verdict, the running kernel's, and what the table expects.

use towpath_kernel::Kernel;

use super::Report;
use crate::sources::{self, SourceError};
use crate::tables::{self, TableTest};
use crate::verdict::{self, Agreement};

/// Compares every test that can be an XDP program.
pub fn tables(kernel: &Kernel) -> Result<Report, SourceError> {
    let tests = tables::read(&sources::verifier_tables()?, kernel.btf())?;
    let mut report = Report::new("verifier tables");
    for (foreign, title) in
        [(false, "XDP and type-independent tests"), (true, "tests of other types, as XDP")]
    {
        let mut count = Count::default();
        for test in tests.iter().filter(|test| test.foreign == foreign) {
            compare(kernel, test, &mut report, &mut count);
        }
        count.print(title, &mut report);
    }
    report.differences.sort_by_key(|difference| difference.kind != "unsound");
    Ok(report)
}

#[derive(Default)]
struct Count {
    kernel_accepts: usize,
    kernel_refuses: usize,
    both_accept: usize,
    both_refuse: usize,
    /// Mostly tests whose rule depends on the program type, or changed since the table's kernel.
    kernel_differs_from_table: usize,
}

impl Count {
    fn print(&self, title: &str, report: &mut Report) {
        report.figure(title, self.kernel_refuses + self.kernel_accepts);
        report.figure("  refused by the kernel", self.kernel_refuses);
        report.figure("    of which refused by us", share(self.both_refuse, self.kernel_refuses));
        report.figure("  accepted by the kernel", self.kernel_accepts);
        report.figure("    of which accepted by us", share(self.both_accept, self.kernel_accepts));
        report.figure("  kernel differs from the table", self.kernel_differs_from_table);
    }
}

fn compare(kernel: &Kernel, test: &TableTest, report: &mut Report, count: &mut Count) {
    if test.needs_module {
        return report.skipped.push(format!("{}: needs the kernel's bpf_testmod", test.name));
    }
    let maps = match kernel.load_maps(&test.linked.maps) {
        Ok(maps) => maps,
        Err(error) => return report.skipped.push(format!("{}: {error}", test.name)),
    };
    let theirs = verdict::kernel(kernel, &test.linked, &maps, true);
    let ours = verdict::ours(&test.linked);
    let accepted = theirs.is_accepted();
    count.kernel_accepts += usize::from(accepted);
    count.kernel_refuses += usize::from(!accepted);
    count.kernel_differs_from_table +=
        usize::from(accepted != test.accept && !test.strict_alignment);
    let agreement = Agreement::of(ours.is_accepted(), accepted);
    count.both_accept += usize::from(agreement == Agreement::BothAccept);
    count.both_refuse += usize::from(agreement == Agreement::BothRefuse);
    report.verdicts(&test.name, agreement, theirs.reason(), ours.reason());
}

fn share(part: usize, whole: usize) -> String {
    format!("{part} ({:.2} %)", 100.0 * part as f64 / whole.max(1) as f64)
}
