//! Periodic checks, which report changes since the previous one.

use std::time::Instant;

use towpath_engine::Moved;

use super::Control;
use crate::control::{log, sas, watch};
use crate::model::failure::FailureCode;

impl Control {
    /// Reports changes of links and peers since the last look.
    pub(crate) fn look_at_comings(&self) {
        let mut comings = self.comings.lock();
        self.read(|inner| comings.look(&inner.live, &inner.news, Instant::now()));
        self.news().tell_left_out();
    }

    /// Moves a queue away from an overloaded worker, and reports that.
    pub(crate) fn balance_workers(&self) {
        let Some(moved) = self.read(|inner| inner.live.engine.balance()) else { return };
        let Moved { port, queue, from, to } = moved;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        self.news().change(&format!(
            "port {port}: queue {queue} goes from worker {}, which was {} busy, to worker {}, {}",
            from.0,
            percent(from.1),
            to.0,
            percent(to.1)
        ));
    }

    /// Reports whether the log can be written.
    pub(crate) fn look_at_log(&self) {
        match log::trouble() {
            Some(why) => self.news.failed(FailureCode::Log, LOG, why),
            None => self.news.recovered(FailureCode::Log, LOG),
        }
    }

    /// Records the current counters in the history.
    pub(crate) fn note_history(&self) {
        self.read(|inner| inner.history.note(&inner.live));
    }

    /// Reports limits that SAs reached.
    pub(crate) fn look_at_sas(&self) {
        self.read(|inner| sas::look(&inner.live, &inner.news));
    }

    /// Reports stuck workers and stopped or halted programs.
    pub(crate) fn look_at_workers(&self) {
        self.read(|inner| watch::look(&inner.live, &inner.news));
    }
}

/// The subject of failures to write the log.
const LOG: &str = "log";
