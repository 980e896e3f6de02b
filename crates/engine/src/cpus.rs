//! CPU affinity of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to a CPU; returns whether it may run there. If not, nothing changes.
pub(crate) fn stay_on(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}

/// Keeps the calling thread, and all threads it starts from then on, off the CPUs that workers stay
/// on ([`WorkerOptions::cpu`](crate::WorkerOptions)). A thread that compiles a program or answers a
/// client would otherwise interrupt a worker for a time slice, which is milliseconds. Nothing
/// changes if no CPU would be left. Returns the CPUs that the thread is not allowed to run on;
/// workers cannot use them either.
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
    // The thread ran on these CPUs before, so this cannot fail.
    let _allowed = sched_setaffinity(None, here);
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs [`keep_off`] on a new thread; returns its result and the CPUs the thread may run on
    /// afterwards.
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
