//! Which CPUs threads run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on a CPU; gives whether it may run there. Where it may not, nothing
/// changes.
pub(crate) fn stay_on(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Keeps the calling thread, and all that it starts from then on, off CPUs that workers stay on
/// ([`WorkerOptions::cpu`](crate::WorkerOptions)): what compiles a program or answers a client
/// would stop a worker for as long as a time slice, milliseconds. Nothing changes when that leaves
/// no CPU. Gives those that the thread may not run on: workers can't either.
///
/// DPDK does the same with its control threads (`rte_ctrl_thread_create`).
pub fn keep_off(cpus: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let Ok(before) = sched_getaffinity(None) else { return Vec::new() };
    let (mut rest, mut refused) = (before, Vec::new());
    for cpu in cpus {
        if stay_on(cpu) {
            rest.unset(cpu);
        } else {
            refused.push(cpu);
        }
    }
    let here = if rest.count() > 0 { &rest } else { &before };
    // It had these before.
    let _allowed = sched_setaffinity(None, here);
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread of its own may run on after that.
    fn after(cpus: Vec<usize>) -> (Vec<usize>, CpuSet) {
        let body = move || (keep_off(cpus), sched_getaffinity(None).expect("one's own thread"));
        std::thread::spawn(body).join().expect("nothing panics")
    }

    #[test]
    fn a_thread_leaves_workers_cpus_and_stays_where_nothing_else_is_left() {
        let all = sched_getaffinity(None).expect("one's own thread");
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
        assert_eq!(after(Vec::new()), (Vec::new(), all));
        assert_eq!(after(usable.clone()), (Vec::new(), all), "there is nothing else");
        let nowhere = CpuSet::MAX_CPU;
        assert_eq!(after(vec![nowhere]), (vec![nowhere], all));
        let Some((&last, others)) = usable.split_last().filter(|(_, others)| !others.is_empty())
        else {
            println!("skipped: there is one CPU");
            return;
        };
        let (refused, here) = after(vec![last]);
        assert_eq!((refused, here.count() as usize), (Vec::new(), others.len()));
        assert!(!here.is_set(last));
    }
}
