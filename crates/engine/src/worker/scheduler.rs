//! Requests of programs to run a port's dequeue program.

use std::fmt;
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_xdp::Schedules;

use super::shared::WorkerShared;
use crate::snapshot::Snapshot;

/// Handles the requests of one worker's programs.
pub(crate) struct Scheduler {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) workers: Arc<[Arc<WorkerShared>]>,
}

impl Schedules for Scheduler {
    fn schedule(&self, ifindex: u32, worker: u32) -> Result<(), Errno> {
        let port = self.snapshot.port_of_ifindex(ifindex).ok_or(Errno::ENODEV)?;
        let hook = port.dequeue.as_ref().ok_or(Errno::ENOENT)?;
        hook.schedule.want();
        if hook.worker != worker as usize
            && let Some(owner) = self.workers.get(hook.worker)
        {
            owner.waker.wake();
        }
        Ok(())
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}
