//! A thread that stays on one CPU, so that all runs meet the same values of per-CPU maps.
//!
//! What a program keeps from packet to packet in such a value, and does not count in it, differs
//! from what a single CPU would have once the thread moves between two packets.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The calling thread stays on its CPU as long as this lives, which must be on the same thread.
/// Where that is not allowed, it goes where it likes.
#[derive(Debug)]
pub(super) struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    pub(super) fn here() -> Pinned {
        let before = sched_getaffinity(None).ok();
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        let is_pinned = before.is_some() && sched_setaffinity(None, &here).is_ok();
        Pinned { before: before.filter(|_| is_pinned) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _restored = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_cpu_and_then_all_it_had() {
        let allowed = || sched_getaffinity(None).expect("one's own thread");
        let before = allowed();
        let pinned = Pinned::here();
        assert_eq!(allowed().count(), 1);
        assert!(allowed().is_set(sched_getcpu()));
        drop(pinned);
        assert_eq!(allowed(), before);
    }
}
