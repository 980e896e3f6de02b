//! What is wanted and isn't so: one typed value, shown everywhere as long as it is so.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::clock::wall_clock;

/// Something that is wanted and isn't so.
///
/// Two failures are equal when they say the same, since whenever.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The kind of failure.
    pub code: FailureCode,
    /// What it is about: `port p0`, `program a.o:main`.
    pub subject: String,
    /// Since when it is so, in seconds since 1970.
    pub since: f64,
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl Failure {
    /// A failure that is noticed now.
    pub fn new(code: FailureCode, subject: impl Into<String>, why: impl Into<String>) -> Failure {
        let since = wall_clock().as_secs_f64();
        let remedy = code.remedy().to_owned();
        Failure { code, subject: subject.into(), since, why: why.into(), remedy }
    }

    /// Whether both are about the same trouble, whatever is known of its cause.
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
            /// All of them.
            pub const ALL: &[FailureCode] = &[$(FailureCode::$variant),*];

            /// Its name in JSON and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(FailureCode::$variant => $name,)*
                }
            }

            /// What an operator does about it.
            pub fn remedy(self) -> &'static str {
                match self {
                    $(FailureCode::$variant => $remedy,)*
                }
            }
        }
    };
}

codes! {
    /// A port can't be opened.
    PortOpen "port-open" "mend what it names; it is tried again by itself",
    /// A port is open and can't be set as it is wanted.
    PortSet "port-set" "mend what it names; it is tried again by itself",
    /// A port drops everything since a program that it is to have isn't there.
    PortShut "port-shut" "mend its program, attach another one, or say on_failure = \"pass\"",
    /// A port is open and something of it ended: a queue, or its recording.
    PortBroken "port-broken" "mend what it names, then change the port or start again",
    /// A port that is open and up has no link: its interface is down, or its other end.
    PortLink "port-link" "look at the cable, the other end, and `ip link`",
    /// A port's offload can't be offered.
    PortOffload "port-offload" "mend what it names; it is tried again by itself",
    /// A port's shadow can't be made.
    PortShadow "port-shadow" "mend what it names; it is tried again by itself",
    /// A bridge can't be made or changed.
    Bridge "bridge" "mend what it names; it is tried again by itself",
    /// A bond or one of its members isn't as it is wanted.
    Bond "bond" "mend what it names; it is tried again by itself",
    /// An object file or a file of maps couldn't be read when the daemon started.
    Object "object" "put the file there; it is read again by itself",
    /// A program can't be loaded; the one before goes on where there was one.
    Program "program" "mend the program or its configuration, then reload",
    /// A program was stopped while it ran.
    ProgramStopped "program-stopped" "mend the program and load it again",
    /// A worker does not come round: none of its ports is served.
    WorkerStuck "worker-stuck" "unload the program that it names",
    /// A program can't be attached.
    Attach "attach" "mend what it names; it is tried again by itself",
    /// A pinned object doesn't come back.
    Pin "pin" "mend what it names, or unpin it",
    /// What a map held or is to hold isn't in it.
    Map "map" "mend what it names; what was saved is kept",
    /// Tables of the host's that programs see can't be had.
    Host "host" "mend what it names; a file is read again by itself, anything else by a reload",
    /// The engine can't do what it should.
    Engine "engine" "look at the log, and start the daemon again",
    /// Something of what was saved didn't come back.
    Saved "saved" "look at what is kept; a reload takes the configuration as it is and ends this",
    /// An address of the configuration can't be listened on, or not as it is wanted.
    Listen "listen" "free the address, or mend what it names; it is tried again by itself",
    /// Lines of the log can't be written.
    Log "log" "make room where standard error goes, or have somebody read it",
    /// What there is can't be saved.
    State "state" "make room, or mend the directory of [state]; it is tried again by itself",
}

/// Failures beside what is wanted of the data plane: who finds one says so here, and says again
/// when it is over.
#[derive(Debug, Default)]
pub struct Standing(Mutex<BTreeMap<(FailureCode, String), Failure>>);

impl Standing {
    /// Notes a failure; gives whether it is news. It keeps the time at which it was noted first.
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

    /// It is so no more; gives what was said of it.
    pub fn clear(&self, code: FailureCode, subject: &str) -> Option<Failure> {
        self.0.lock().remove(&(code, subject.to_owned()))
    }

    /// Whether there is one.
    pub(crate) fn has(&self, code: FailureCode, subject: &str) -> bool {
        self.0.lock().contains_key(&(code, subject.to_owned()))
    }

    /// All of a kind are over.
    pub(crate) fn clear_all(&self, code: FailureCode) -> Vec<Failure> {
        let mut all = self.0.lock();
        let gone: Vec<_> = all.keys().filter(|place| place.0 == code).cloned().collect();
        gone.into_iter().filter_map(|place| all.remove(&place)).collect()
    }

    /// All there are.
    pub fn all(&self) -> Vec<Failure> {
        self.0.lock().values().cloned().collect()
    }
}

/// Failures that were there before keep the time at which they began.
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
