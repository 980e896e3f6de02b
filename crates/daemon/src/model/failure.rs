//! Failures: differences between the wanted and the actual state, shown for as long as they last.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::clock::wall_clock;

/// A part of the wanted state that could not be established.
///
/// Two failures are equal if kind, subject and cause are equal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The kind of failure.
    pub code: FailureCode,
    /// The thing that failed: `port p0`, `program a.o:main`.
    pub subject: String,
    /// Time at which the failure began, in seconds since 1970.
    pub since: f64,
    /// The cause.
    pub why: String,
    /// Advice to the operator.
    pub remedy: String,
}

impl Failure {
    /// A failure that begins now.
    pub fn new(code: FailureCode, subject: impl Into<String>, why: impl Into<String>) -> Failure {
        let since = wall_clock().as_secs_f64();
        let remedy = code.remedy().to_owned();
        Failure { code, subject: subject.into(), since, why: why.into(), remedy }
    }

    /// Whether both have the same kind and subject, whatever their causes.
    pub(crate) fn is_about(&self, other: &Failure) -> bool {
        (self.code, &self.subject) == (other.code, &other.subject)
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Failure) -> bool {
        self.is_about(other) && self.why == other.why
    }
}

impl Eq for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.why)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $remedy:literal,)*) => {
        /// The kinds of failures.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            ToSchema,
        )]
        pub enum FailureCode {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl FailureCode {
            /// All kinds of failures.
            pub const ALL: &[FailureCode] = &[$(FailureCode::$variant),*];

            /// The kind's name in JSON and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(FailureCode::$variant => $name,)*
                }
            }

            /// Default advice to the operator.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(FailureCode::$variant => $remedy,)*
                }
            }
        }
    };
}

codes! {
    /// A port cannot be opened.
    PortOpen "port-open" "fix the named cause; the daemon tries again by itself",
    /// A port is open, but one of its settings cannot be applied.
    PortSet "port-set" "fix the named cause; the daemon tries again by itself",
    /// A port drops all frames because a program that it needs is missing.
    PortShut "port-shut" "fix the program, attach another one, or set on_failure = \"pass\"",
    /// A port is open, but a queue or its recording ended.
    PortBroken "port-broken" "fix the named cause, then change the port or restart the daemon",
    /// A port is open and up, but has no link: its interface or the other end is down.
    PortLink "port-link" "check the cable, the other end, and `ip link`",
    /// A port's offload channel cannot be offered.
    PortOffload "port-offload" "fix the named cause; the daemon tries again by itself",
    /// A port's shadow interface cannot be created.
    PortShadow "port-shadow" "fix the named cause; the daemon tries again by itself",
    /// A bridge cannot be created or changed.
    Bridge "bridge" "fix the named cause; the daemon tries again by itself",
    /// A bond, or one of its members, differs from its configuration.
    Bond "bond" "fix the named cause; the daemon tries again by itself",
    /// IKE daemons cannot connect to a port of kind `ipsec`: its socket cannot be made.
    PortDoor "port-door" "fix the named cause; the daemon tries again by itself",
    /// A security association cannot be established; its predecessor, if any, stays.
    Sa "sa" "fix the named cause; the daemon tries again by itself",
    /// A security association refuses all packets: it reached a hard limit.
    SaExpired "sa-expired" "give it new keys: change its key file and reload, or replace it",
    /// The policies of a port of kind `ipsec` cannot be established; the previous ones stay.
    Policy "policy" "fix the named cause; the daemon tries again by itself",
    /// An object file or a map file could not be read when the daemon started.
    Object "object" "put the file in its place; the daemon reads it by itself",
    /// A program cannot be loaded; its predecessor, if any, keeps running.
    Program "program" "fix the program or its configuration, then reload",
    /// A program was stopped while it ran.
    ProgramStopped "program-stopped" "fix the program and load it again",
    /// A worker does not finish its round: none of its ports is served.
    WorkerStuck "worker-stuck" "unload the named program",
    /// A program cannot be attached.
    Attach "attach" "fix the named cause; the daemon tries again by itself",
    /// A pinned object cannot be restored.
    Pin "pin" "fix the named cause, or remove the pin",
    /// A map lacks contents that were saved or configured.
    Map "map" "fix the named cause; the saved contents are kept",
    /// Host tables that programs see cannot be read.
    Host "host" "fix the named cause; the daemon reads a changed file by itself, else reload",
    /// An operation of the engine failed.
    Engine "engine" "read the log, and restart the daemon",
    /// A part of the saved state could not be restored.
    Saved "saved" "look at the kept files; a reload applies the configuration and ends this \
                   failure",
    /// A configured address cannot be listened on, or not with the configured access.
    Listen "listen" "free the address, or fix the named cause; the daemon tries again by itself",
    /// Lines of the log cannot be written.
    Log "log" "free space where standard error is written, or attach a reader",
    /// The current state cannot be saved.
    State "state" "free space, or fix the directory of [state]; the daemon tries again by itself",
}

/// Failures outside the wanted state of the data plane. The component that finds one calls
/// [`Standing::set`], and [`Standing::clear`] when the failure is over.
#[derive(Debug, Default)]
pub struct Standing(Mutex<BTreeMap<(FailureCode, String), Failure>>);

impl Standing {
    /// Records a failure and says whether it is new or has a new cause. The time of the first
    /// record is kept.
    pub fn set(&self, mut failure: Failure) -> bool {
        let mut all = self.0.lock();
        let place = (failure.code, failure.subject.clone());
        let before = all.get(&place);
        if let Some(before) = before {
            assert_eq!(before.subject, failure.subject, "failures have places of their own");
            failure.since = before.since;
        }
        let is_new = before != Some(&failure);
        all.insert(place, failure);
        is_new
    }

    /// Removes a failure that is over, and returns it.
    pub fn clear(&self, code: FailureCode, subject: &str) -> Option<Failure> {
        self.0.lock().remove(&(code, subject.to_owned()))
    }

    /// Whether a failure of this kind and subject is recorded.
    pub(crate) fn has(&self, code: FailureCode, subject: &str) -> bool {
        self.0.lock().contains_key(&(code, subject.to_owned()))
    }

    /// Removes and returns all failures of a kind.
    pub(crate) fn clear_all(&self, code: FailureCode) -> Vec<Failure> {
        let mut all = self.0.lock();
        let gone: Vec<_> = all.keys().filter(|place| place.0 == code).cloned().collect();
        gone.into_iter().filter_map(|place| all.remove(&place)).collect()
    }

    /// All current failures.
    pub fn all(&self) -> Vec<Failure> {
        self.0.lock().values().cloned().collect()
    }
}

/// Copies to failures that already existed `before` the time at which they began.
pub(crate) fn keep_since(now: &mut [Failure], before: &[Failure]) {
    for failure in now {
        if let Some(old) = before.iter().find(|old| old.is_about(failure)) {
            failure.since = old.since.min(failure.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_beginning_while_its_cause_changes() {
        let standing = Standing::default();
        let failure = |since: f64, why: &str| Failure {
            since,
            ..Failure::new(FailureCode::State, "saving the state", why)
        };
        assert!(standing.set(failure(1.0, "no room")));
        assert!(!standing.set(failure(2.0, "no room")), "that is known");
        assert!(standing.set(failure(3.0, "read-only")), "another cause is news");
        let all = standing.all();
        let [now] = &all[..] else { panic!("{all:?}") };
        assert_eq!((now.since.to_bits(), &*now.why), (1.0_f64.to_bits(), "read-only"));
        let mut next = [failure(9.0, "no room")];
        keep_since(&mut next, &all);
        assert_eq!(next[0].since.to_bits(), 1.0_f64.to_bits());
        assert!(standing.clear(FailureCode::State, "saving the state").is_some());
        assert!(standing.all().is_empty());
    }

    #[test]
    fn codes_are_told_apart_and_say_what_to_do() {
        for (at, code) in FailureCode::ALL.iter().enumerate() {
            assert!(!code.remedy().is_empty());
            assert!(FailureCode::ALL[..at].iter().all(|other| other.name() != code.name()));
            let json = serde_json::to_value(code).expect("a word");
            assert_eq!(json, code.name());
        }
    }
}
