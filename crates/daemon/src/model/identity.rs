//! Matching of attachments between two configurations: the object file and the program are
//! properties of an attachment, and may change without changing its identity.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::state::{HookState, ProgramState, State, UNREAD};

/// Gives the programs of the file's `next` contents the keys that they had `before`, where both are
/// the same attachment: by name, or by port, hook and priority, or by port and hook in order. An
/// unmatched program gets a new key, unless another author runs the same code at the same place
/// according to `wanted`. Keys of other authors' programs are never reused otherwise.
pub(crate) fn adopt(before: &State, wanted: &State, next: &mut State) {
    let mut old: Vec<Identified<'_>> = identified(before);
    let (files, wanted) = (old.len(), identified(wanted));
    let is_theirs =
        |it: &Identified<'_>| before.programs.iter().all(|program| program.key != it.program.key);
    old.extend(wanted.into_iter().filter(is_theirs));
    let keys = {
        let new: Vec<Identified<'_>> = identified(next);
        let mut pairs: Vec<Option<usize>> = vec![None; new.len()];
        let rules = RULES.map(|rule| (rule, 0..files)).into_iter();
        for (is_like, among) in rules.chain([(is_same_code as Rule, files..old.len())]) {
            for at in 0..new.len() {
                if pairs[at].is_some() {
                    continue;
                }
                let is_it = |other: &usize| {
                    !pairs.contains(&Some(*other)) && is_like(&old[*other], &new[at])
                };
                pairs[at] = among.clone().find(is_it);
            }
        }
        keys(&pairs, (&old, files), &new)
    };
    for program in &mut next.programs {
        rename(&keys, &mut program.key);
    }
    for attach in &mut next.attachments {
        rename(&keys, &mut attach.program);
    }
}

/// A program with the places where it is attached.
struct Identified<'a> {
    program: &'a ProgramState,
    places: BTreeSet<(&'a str, HookState, Option<u32>)>,
}

impl Identified<'_> {
    fn is_at(&self, other: &Identified<'_>, has_priority: bool) -> bool {
        let place = |it: &(&str, HookState, Option<u32>)| (it.0.to_owned(), it.1);
        if has_priority {
            return !self.places.is_disjoint(&other.places);
        }
        let ours: BTreeSet<_> = self.places.iter().map(place).collect();
        other.places.iter().any(|it| ours.contains(&place(it)))
    }

    fn is_from(&self, other: &Identified<'_>) -> bool {
        let source = |it: &ProgramState| {
            (it.object.clone(), it.program.clone(), it.section.clone(), it.name.clone())
        };
        source(self.program) == source(other.program)
    }

    /// Whether both have names that differ.
    fn is_named_otherwise(&self, other: &Identified<'_>) -> bool {
        let names = self.program.name.as_ref().zip(other.program.name.as_ref());
        names.is_some_and(|(one, other)| one != other)
    }
}

type Rule = fn(&Identified<'_>, &Identified<'_>) -> bool;

/// Rules that make two programs the same attachment; the first rule that matches counts.
const RULES: [Rule; 5] = [
    |old, new| new.program.name.is_some() && old.program.name == new.program.name,
    |old, new| old.is_from(new) && old.is_at(new, false),
    |old, new| !old.is_named_otherwise(new) && old.is_at(new, true),
    |old, new| !old.is_named_otherwise(new) && old.is_at(new, false),
    |old, new| old.is_from(new),
];

/// Whether both have the same object, program and section at the same port and hook.
fn is_same_code(old: &Identified<'_>, new: &Identified<'_>) -> bool {
    fn code(it: &ProgramState) -> impl PartialEq {
        (&it.sha256, &it.program, &it.section)
    }
    new.program.sha256 != UNREAD && code(old.program) == code(new.program) && old.is_at(new, false)
}

fn identified(state: &State) -> Vec<Identified<'_>> {
    let places = |program: &ProgramState| {
        let own = state.attachments.iter().filter(|it| it.program == program.key);
        own.map(|it| (it.port.as_str(), it.hook, it.prio)).collect()
    };
    let programs = state.programs.iter();
    programs.map(|program| Identified { program, places: places(program) }).collect()
}

/// Keys for new programs, by the keys that the file alone gave them. The first `files` of `old`
/// belong to the file; the keys of the others are taken.
fn keys(
    pairs: &[Option<usize>],
    (old, files): (&[Identified<'_>], usize),
    new: &[Identified<'_>],
) -> BTreeMap<String, String> {
    let kept = |pair: &Option<usize>| pair.map(|at| old[at].program.key.clone());
    let theirs = old[files..].iter().map(|it| it.program.key.clone());
    let mut taken: BTreeSet<String> = pairs.iter().filter_map(kept).chain(theirs).collect();
    let mut keys = BTreeMap::new();
    for (pair, it) in pairs.iter().zip(new) {
        let own = &it.program.key;
        let key = kept(pair).unwrap_or_else(|| {
            let numbered = (2..).map(|number: u32| format!("{own}#{number}"));
            let mut all = std::iter::once(own.clone()).chain(numbered);
            all.find(|key| !taken.contains(key)).expect("there are more numbers than programs")
        });
        assert!(!key.is_empty(), "each program has a key");
        taken.insert(key.clone());
        keys.insert(own.clone(), key);
    }
    keys
}

fn rename(keys: &BTreeMap<String, String>, key: &mut String) {
    if let Some(other) = keys.get(key) {
        key.clone_from(other);
    }
}

/// A key that no program has: the base, or the base with a number appended.
pub(crate) fn free_key(base: &str, programs: &[ProgramState]) -> String {
    let is_free = |key: &String| programs.iter().all(|program| program.key != *key);
    let numbered = (2..).map(|number: u32| format!("{base}#{number}"));
    let mut keys = std::iter::once(base.to_owned()).chain(numbered);
    keys.find(is_free).expect("there are more numbers than programs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::AttachState;

    /// Attachments: object, port, priority, name.
    fn state(all: &[(&str, &str, Option<u32>, Option<&str>)]) -> State {
        let mut state = State::new();
        for (object, port, prio, name) in all {
            let key = free_key(object, &state.programs);
            let (name, object) = (name.map(str::to_owned), (*object).to_owned());
            state.programs.push(ProgramState {
                key: key.clone(),
                name,
                object,
                ..ProgramState::default()
            });
            let port = (*port).to_owned();
            let attach = AttachState { program: key, port, prio: *prio, ..AttachState::default() };
            state.attachments.push(attach);
        }
        state
    }

    /// The keys that `next` gets after `before`.
    fn keys_of(before: &State, mut next: State) -> Vec<String> {
        adopt(before, before, &mut next);
        assert!(next.programs.iter().zip(&next.attachments).all(|(a, b)| a.key == b.program));
        next.programs.into_iter().map(|program| program.key).collect()
    }

    #[test]
    fn an_attachment_stays_the_same_with_another_object_file() {
        let before = state(&[("a.o", "p0", None, None), ("b.o", "p0", None, None)]);
        let next = state(&[("a2.o", "p0", None, None), ("b.o", "p0", None, None)]);
        assert_eq!(keys_of(&before, next), ["a.o", "b.o"]);
        // A new program in front of them takes neither program's place.
        let next = state(&[
            ("c.o", "p0", None, None),
            ("a.o", "p0", None, None),
            ("b.o", "p0", None, None),
        ]);
        assert_eq!(keys_of(&before, next), ["c.o", "a.o", "b.o"]);
        // The object file of one program moves to another port, whose program moves away.
        let before = state(&[("a.o", "p0", None, None), ("b.o", "p1", None, None)]);
        let next = state(&[("b.o", "p0", None, None), ("c.o", "p1", None, None)]);
        assert_eq!(keys_of(&before, next), ["a.o", "b.o"]);
    }

    #[test]
    fn names_and_priorities_tell_attachments_apart() {
        let before = state(&[("a.o", "p0", Some(1), None), ("b.o", "p0", Some(2), None)]);
        let next = state(&[("x.o", "p0", Some(2), None), ("y.o", "p0", Some(1), None)]);
        assert_eq!(keys_of(&before, next), ["b.o", "a.o"]);
        let before = state(&[("a.o", "p0", None, Some("fw")), ("b.o", "p1", None, None)]);
        let next = state(&[("b.o", "p0", None, None), ("x.o", "p1", None, Some("fw"))]);
        let keys = keys_of(&before, next);
        assert_eq!(keys[1], "a.o", "it moved, by its name");
        assert_ne!(keys[0], "a.o");
    }

    #[test]
    fn keys_stay_the_same_from_reload_to_reload() {
        let mut first = state(&[("a.o", "p0", None, None)]);
        let mut second = state(&[("b.o", "p0", None, None), ("a.o", "p1", None, None)]);
        adopt(&State::new(), &State::new(), &mut first);
        adopt(&first, &first, &mut second);
        let keys: Vec<&str> = second.programs.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(keys, ["a.o", "a.o#2"], "the first one's key is taken");
        let again = state(&[("b.o", "p0", None, None), ("a.o", "p1", None, None)]);
        assert_eq!(keys_of(&second, again), ["a.o", "a.o#2"]);
    }

    #[test]
    fn keys_of_others_are_theirs_but_for_the_same_code_at_the_same_place() {
        let hashed = |mut state: State, hash: &str| {
            state.programs.iter_mut().for_each(|it| hash.clone_into(&mut it.sha256));
            state
        };
        let none = State::new();
        let theirs = hashed(state(&[("a.o", "p0", None, None)]), "1");
        let keys = |mut next: State| {
            adopt(&none, &theirs, &mut next);
            assert_eq!(next.programs[0].key, next.attachments[0].program);
            next.programs[0].key.clone()
        };
        assert_eq!(keys(hashed(state(&[("a.o", "p0", None, None)]), "1")), "a.o");
        assert_eq!(keys(hashed(state(&[("b.o", "p0", None, None)]), "1")), "a.o");
        // Other code, or another port: a different program.
        assert_eq!(keys(hashed(state(&[("a.o", "p0", None, None)]), "2")), "a.o#2");
        assert_eq!(keys(hashed(state(&[("a.o", "p1", None, None)]), "1")), "a.o#2");
        assert_eq!(keys(hashed(state(&[("a.o", "p0", None, None)]), UNREAD)), "a.o#2");
    }
}
