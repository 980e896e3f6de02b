//! What verifying costs, ours beside the kernel's, on the biggest programs at hand.

use std::time::Instant;

use towpath_bpf::Linked;
use towpath_bpf::object::{Env, Object, ProgramKind};
use towpath_bpf::verifier::{self, Options};
use towpath_kernel::{Kernel, LoadOptions};
use towpath_workload::complete;

use super::Report;
use crate::sources;

/// Verifies the `count` longest programs of all objects, and the longest of the tables.
pub fn speed(kernel: &Kernel, count: usize) -> Report {
    let mut report = Report::new("verification: ours beside the kernel's");
    let mut programs = object_programs(kernel);
    if let Ok(path) = sources::verifier_tables()
        && let Ok(tests) = crate::tables::read(&path, kernel.btf())
    {
        programs.extend(tests.into_iter().map(|test| (test.name, test.linked)));
    }
    programs.sort_by_key(|(_, linked)| std::cmp::Reverse(linked.insns.len()));
    programs.truncate(count * 2);
    programs.retain(|(_, linked)| is_accepted(kernel, linked));
    programs.truncate(count);
    // The smallest first: what a bigger one leaves to the allocator would hide a small one's need.
    for (name, linked) in programs.into_iter().rev() {
        measure(kernel, &name, &linked, &mut report);
    }
    report
}

fn object_programs(kernel: &Kernel) -> Vec<(String, Linked)> {
    let env = Env::new(kernel.btf().clone());
    let mut paths = sources::packaged_objects();
    for folder in [sources::kernel_objects(), sources::own_objects()].into_iter().flatten() {
        paths.extend(sources::object_files(&folder));
    }
    let mut programs = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let Ok(object) = Object::open(&bytes, &name) else { continue };
        for (index, program) in object.programs().iter().enumerate() {
            if matches!(program.kind, ProgramKind::Other(_)) {
                continue;
            }
            if let Ok(mut linked) = object.link(index, &env) {
                complete(&mut linked);
                programs.push((format!("{name} {}", program.name), linked));
            }
        }
    }
    programs
}

fn is_accepted(kernel: &Kernel, linked: &Linked) -> bool {
    kernel.load_maps(&linked.maps).is_ok_and(|maps| kernel.load(linked, &maps).is_ok())
}

/// One line of the table.
fn measure(kernel: &Kernel, name: &str, linked: &Linked, report: &mut Report) {
    let Ok(maps) = kernel.load_maps(&linked.maps) else { return };
    let mut options = LoadOptions::default();
    options.log_level = LOG_STATISTICS;
    let Ok(program) = kernel.load_with(linked, &maps, &options) else { return };
    let theirs = verification_us(program.log());
    let walked = program.info().map_or(0, |info| info.verified_insns);
    let before = peak_bytes_reset();
    let started = Instant::now();
    let ours = verifier::verify(linked.clone(), &Options::default());
    let elapsed = started.elapsed();
    let memory = peak_bytes().saturating_sub(before) >> 20;
    let outcome = match ours {
        Ok(verified) => format!("{} walked", verified.stats().insns_processed),
        Err(rejection) => format!("refused: {}", rejection.message),
    };
    let value = format!(
        "{} insns: ours {:.1} ms, {memory} MB, {outcome}; kernel {:.1} ms, {walked} walked",
        linked.insns.len(),
        elapsed.as_secs_f64() * 1e3,
        theirs as f64 / 1e3,
    );
    report.figure(name, value);
}

/// `verification time N usec` of the statistics.
fn verification_us(log: &str) -> u64 {
    let line = log.lines().find_map(|line| line.strip_prefix("verification time "));
    line.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// The process's peak memory from now on starts at what it uses now, which is returned.
fn peak_bytes_reset() -> u64 {
    // "5" resets VmHWM (proc(5)); where that is not allowed, the figure is an upper bound.
    std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
    status_bytes("VmRSS:")
}

fn peak_bytes() -> u64 {
    status_bytes("VmHWM:")
}

fn status_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// `BPF_LOG_STATS`
const LOG_STATISTICS: u32 = 4;
