//! Events, and their delivery to listeners and the log.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use crate::live::log_limit::LogLimit;
use crate::model::clock::wall_clock;
use crate::model::failure::{Failure, FailureCode, Standing};
use crate::model::messages::Event;

/// Events, current failures and progress of the daemon.
#[derive(Debug)]
pub struct News {
    pub(crate) events: broadcast::Sender<Event>,
    /// Number of the last event.
    pub(crate) number: Mutex<u64>,
    /// Notified after a change outside of the daemon.
    pub(crate) stirred: Notify,
    /// The current step of a change in progress.
    pub(crate) step: Mutex<String>,
    /// Failures outside of the wanted state of the data plane.
    pub(crate) standing: Standing,
    pub(crate) log_limit: LogLimit,
    /// Maps whose memory could not be populated, by their numbers in this process, with the reason.
    pub(crate) unpopulated: Mutex<BTreeMap<u32, String>>,
}

impl Default for News {
    fn default() -> News {
        News {
            events: broadcast::Sender::new(EVENTS_KEPT),
            number: Mutex::default(),
            stirred: Notify::new(),
            step: Mutex::default(),
            standing: Standing::default(),
            log_limit: LogLimit::default(),
            unpopulated: Mutex::default(),
        }
    }
}

impl News {
    /// Sends a `change` event and logs it.
    pub(crate) fn change(&self, text: &str) {
        tracing::info!("{text}");
        self.send("change", text, None);
    }

    /// Notes the current step of a change, which may take time.
    pub(crate) fn doing(&self, step: String) {
        *self.step.lock() = step;
    }

    /// Reports that something outside of the daemon changed.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    /// Records a failure outside of the wanted state of the data plane; `status` shows it until
    /// [`News::recovered`] is called.
    pub fn failed(&self, code: FailureCode, subject: &str, why: impl Into<String>) {
        let failure = Failure::new(code, subject, why);
        if self.standing.set(failure.clone()) {
            self.failure(&failure);
        }
    }

    /// Ends a failure that [`News::failed`] recorded.
    pub fn recovered(&self, code: FailureCode, subject: &str) {
        if let Some(failure) = self.standing.clear(code, subject) {
            self.recovery(&failure);
        }
    }

    /// Replaces the failures of a kind that a look has found: new ones are reported, and those that
    /// were not found again are over.
    pub(crate) fn found(&self, is_ours: impl Fn(&Failure) -> bool, now: Vec<Failure>) {
        let before = self.standing.all().into_iter().filter(is_ours);
        for old in before.filter(|old| !now.iter().any(|failure| failure.is_about(old))) {
            self.recovered(old.code, &old.subject);
        }
        for failure in now {
            if self.standing.set(failure.clone()) {
                self.failure(&failure);
            }
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if self.admits(&failure.subject, failure) {
            tracing::warn!(code = failure.code.name(), "{failure}");
        }
        self.send("failure", &failure.to_string(), Some(failure.clone()));
    }

    /// Sends a `change` event for an action of an outside party, at a limited rate.
    pub(crate) fn note(&self, subject: &str, text: &str) {
        if self.admits(subject, &text) {
            self.change(text);
        }
    }

    /// Whether the log accepts another line about the subject now.
    pub(crate) fn admits(&self, subject: &str, line: &dyn Display) -> bool {
        self.log_limit.admits(subject, &line.to_string(), Instant::now())
    }

    /// Sends a summary of the lines that were left out.
    pub(crate) fn tell_left_out(&self) {
        self.log_limit.take_over(Instant::now()).iter().for_each(|line| self.change(line));
    }

    pub(crate) fn recovery(&self, failure: &Failure) {
        if self.admits(&failure.subject, failure) {
            tracing::info!(code = failure.code.name(), "over: {failure}");
        }
        self.send("recovery", &format!("over: {failure}"), Some(failure.clone()));
    }

    pub(crate) fn send(&self, kind: &str, text: &str, failure: Option<Failure>) {
        let time = wall_clock().as_secs_f64();
        // Held while sending, so that listeners receive numbers in order.
        let mut number = self.number.lock();
        *number += 1;
        let (kind, text) = (kind.to_owned(), text.to_owned());
        let event = Event { number: *number, time, kind, text, failure };
        // The only error is that there are no listeners.
        let _listeners = self.events.send(event);
    }
}

/// Number of events that a slow listener may lag behind before it misses some.
const EVENTS_KEPT: usize = 1024;
const _: () = assert!(EVENTS_KEPT.is_power_of_two(), "a broadcast channel rounds up");
