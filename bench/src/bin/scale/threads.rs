//! Threads that start together, each on a processor of its own.

use std::sync::Barrier;

use anyhow::Context as _;
use rustix::thread::sched_getaffinity;
use towpath_bench::world::pin;

/// The processors that may be used, one of each core before the second ones.
pub(crate) fn cpus() -> anyhow::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
    let mut cpus: Vec<usize> = (0..1024).filter(|&cpu| allowed.is_set(cpu)).collect();
    cpus.sort_by_key(|&cpu| (place_in_core(cpu), cpu));
    Ok(cpus)
}

/// How many of the processor's siblings come before it.
fn place_in_core(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    let siblings = list.trim().split(',').flat_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        from.parse::<usize>().unwrap_or(cpu)..=to.parse::<usize>().unwrap_or(cpu)
    });
    siblings.filter(|&sibling| sibling < cpu).count()
}

/// Runs `measure` on so many threads, which gives each thread's figure, and adds them up. `measure`
/// prepares itself, waits for the others, and measures.
pub(crate) fn together(
    cpus: &[usize],
    measure: impl Fn(usize, &Barrier) -> anyhow::Result<f64> + Sync,
) -> anyhow::Result<f64> {
    let (start, measure) = (Barrier::new(cpus.len()), &measure);
    std::thread::scope(|scope| {
        let start = &start;
        let run = |(number, &cpu): (usize, &usize)| {
            scope.spawn(move || {
                pin(cpu);
                measure(number, start)
            })
        };
        let running: Vec<_> = cpus.iter().enumerate().map(run).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}
