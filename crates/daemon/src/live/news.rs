//! What happens, and what is told of it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use crate::live::told::Told;
use crate::model::clock::wall_clock;
use crate::model::failure::{Failure, FailureCode, Standing};
use crate::model::messages::Event;

/// What happens, for whoever listens.
#[derive(Debug)]
pub struct News {
    pub(crate) events: broadcast::Sender<Event>,
    /// Of the last event.
    pub(crate) number: Mutex<u64>,
    /// Something outside of the daemon is not what it was.
    pub(crate) stirred: Notify,
    /// What a change is at.
    pub(crate) step: Mutex<String>,
    /// What isn't as it should be, beside what is wanted of the data plane.
    pub(crate) standing: Standing,
    pub(crate) told: Told,
    /// Maps whose memory comes when it is used, by their numbers in this process, and why.
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
            told: Told::default(),
            unpopulated: Mutex::default(),
        }
    }
}

impl News {
    /// Tells listeners and the log.
    pub(crate) fn change(&self, text: &str) {
        tracing::info!("{text}");
        self.send("change", text, None);
    }

    /// Notes what a change is at now, which may take time.
    pub(crate) fn doing(&self, step: String) {
        *self.step.lock() = step;
    }

    /// Says that something outside of the daemon is not what it was.
    pub(crate) fn stir(&self) {
        self.stirred.notify_one();
    }

    /// Notes a failure beside what is wanted of the data plane: `status` shows it until it is said
    /// to be over.
    pub fn failed(&self, code: FailureCode, subject: &str, why: impl Into<String>) {
        let failure = Failure::new(code, subject, why);
        if self.standing.set(failure.clone()) {
            self.failure(&failure);
        }
    }

    /// A failure that was noted so is over.
    pub fn recovered(&self, code: FailureCode, subject: &str) {
        if let Some(failure) = self.standing.clear(code, subject) {
            self.recovery(&failure);
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if self.admits(&failure.subject, failure) {
            tracing::warn!(code = failure.code.name(), "{failure}");
        }
        self.send("failure", &failure.to_string(), Some(failure.clone()));
    }

    /// Tells listeners and the log what somebody else did, who may do so as often as he likes.
    pub(crate) fn note(&self, subject: &str, text: &str) {
        if self.admits(subject, &text) {
            self.change(text);
        }
    }

    /// Whether the log takes a line of a subject now.
    pub(crate) fn admits(&self, subject: &str, line: &dyn Display) -> bool {
        self.told.admits(subject, &line.to_string(), Instant::now())
    }

    /// Tells how much was left out.
    pub(crate) fn tell_left_out(&self) {
        self.told.take_over(Instant::now()).iter().for_each(|line| self.change(line));
    }

    pub(crate) fn recovery(&self, failure: &Failure) {
        if self.admits(&failure.subject, failure) {
            tracing::info!(code = failure.code.name(), "over: {failure}");
        }
        self.send("recovery", &format!("over: {failure}"), Some(failure.clone()));
    }

    pub(crate) fn send(&self, kind: &str, text: &str, failure: Option<Failure>) {
        let time = wall_clock().as_secs_f64();
        // Held while sending: listeners get numbers in order.
        let mut number = self.number.lock();
        *number += 1;
        let (kind, text) = (kind.to_owned(), text.to_owned());
        let event = Event { number: *number, time, kind, text, failure };
        // Without listeners there is nobody to tell.
        let _listeners = self.events.send(event);
    }
}

/// Events a slow listener may lag behind before it misses some.
const EVENTS_KEPT: usize = 1024;
const _: () = assert!(EVENTS_KEPT.is_power_of_two(), "a broadcast channel rounds up");
