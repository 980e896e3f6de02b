//! The authors of each wanted thing, and the one rule that merges their wishes.
//!
//! | an author's wish | its effect |
//! | --- | --- |
//! | none, or the same as before | the thing stays as it is; a removed one stays away |
//! | a new thing, or a change | the thing is as this author says: the last change wins |
//! | the file drops it | the thing is removed, unless another author wants it |
//! | the API removes it | the thing is removed, and stays away until the file changes it |
//!
//! A reload and a start follow the same rule: both compare the file with its contents at the last
//! reading. Effects on other authors' things are reported (`Wanted::reloaded`), or listed for as
//! long as they last (`Wanted::overridden`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::state::{AttachState, ProgramState, State, VERSION};
use crate::model::thing::{Identified, Thing};

/// An author of a wanted thing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    /// The configuration file.
    File,
    /// A request to the API, or a command that sends one.
    Api,
    /// The saved state, where the author is unknown: an earlier version wrote it, or the list of
    /// authors was damaged.
    Saved,
}

impl Author {
    /// The author's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Author::File => "file",
            Author::Api => "api",
            Author::Saved => "saved",
        }
    }
}

/// The authors of a thing other than the file, in the form that is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The thing.
    pub thing: Thing,
    /// Its authors.
    pub by: BTreeSet<Author>,
}

/// A thing that differs from the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overridden {
    /// Name of the thing: `port p0`.
    pub subject: String,
    /// The API's effect on it.
    pub is: Override,
}

/// The API's effect on a thing of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Override {
    /// The API changed the thing.
    Changed,
    /// The API removed the thing.
    Removed,
}

/// The wanted state, with the authors of each thing. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    state: Arc<State>,
    /// The configuration file's part, as of the last time it was read.
    file: Arc<State>,
    /// The authors of each thing that is wanted.
    authors: Arc<BTreeMap<Thing, BTreeSet<Author>>>,
}

impl Wanted {
    /// The configuration file as the only author.
    pub(crate) fn of_file(file: State) -> Wanted {
        let file = Arc::new(file);
        Wanted::new(Arc::clone(&file), file, |_| BTreeSet::new())
    }

    /// Builds the wanted state from a saved one. Things without a known author belong to
    /// [`Author::Saved`].
    pub(crate) fn restored(state: State, file: State, claims: &[Claim]) -> Wanted {
        let claims: HashMap<&Thing, &BTreeSet<Author>> =
            claims.iter().map(|claim| (&claim.thing, &claim.by)).collect();
        let by = |thing: &Thing| claims.get(thing).copied().cloned().unwrap_or_default();
        Wanted::new(Arc::new(state), Arc::new(file), by)
    }

    /// Collects the authors of each thing: those that `others` returns, and the file where `file`
    /// contains the thing.
    fn new(
        state: Arc<State>,
        file: Arc<State>,
        others: impl Fn(&Thing) -> BTreeSet<Author>,
    ) -> Wanted {
        let in_file: BTreeSet<Thing> = file.things().collect();
        let by = |thing: &Thing| {
            let mut by = others(thing);
            by.remove(&Author::File);
            by.extend(in_file.contains(thing).then_some(Author::File));
            if by.is_empty() {
                by.insert(Author::Saved);
            }
            by
        };
        let things = state.things().filter(|thing| !matches!(thing, Thing::Program(_)));
        let mut authors: BTreeMap<Thing, BTreeSet<Author>> =
            things.map(|thing| (thing.clone(), by(&thing))).collect();
        // Authors of an attachment are authors of its program.
        for attach in &state.attachments {
            let by = authors[&Thing::Attachment(attach.identity())].clone();
            authors.entry(Thing::Program(attach.program.clone())).or_default().extend(by);
        }
        assert!(authors.values().all(|by| !by.is_empty()), "each wanted thing has an author");
        Wanted { state, file, authors: Arc::new(authors) }
    }

    /// The wanted state.
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The configuration file's part, as of the last time it was read.
    pub(crate) fn file(&self) -> &Arc<State> {
        &self.file
    }

    /// The authors of a thing; none if it isn't wanted.
    pub(crate) fn authors(&self, thing: &Thing) -> Vec<Author> {
        self.authors.get(thing).into_iter().flatten().copied().collect()
    }

    /// The authors to be saved: all but the file, which names its own things.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claims = self.authors.iter().filter(|(thing, _)| !matches!(thing, Thing::Program(_)));
        let claims = claims.map(|(thing, by)| {
            let by = by.iter().copied().filter(|author| *author != Author::File).collect();
            Claim { thing: thing.clone(), by }
        });
        claims.filter(|claim| !claim.by.is_empty()).collect()
    }

    /// The state after a change by the API.
    pub(crate) fn changed(&self, next: State) -> Wanted {
        // Most changes modify an existing thing, which leaves the list of authors as it is.
        if self.state.things().eq(next.things()) {
            return Wanted { state: Arc::new(next), ..self.clone() };
        }
        let by = |thing: &Thing| match self.authors.get(thing) {
            Some(by) => by.clone(),
            None => [Author::Api].into(),
        };
        Wanted::new(Arc::new(next), Arc::clone(&self.file), by)
    }

    /// Replaces both states by later readings of the same things; the authors stay.
    pub(crate) fn with(&self, state: State, file: State) -> Wanted {
        Wanted { state: Arc::new(state), file: Arc::new(file), authors: Arc::clone(&self.authors) }
    }

    /// Applies the rule to the configuration file as it is now. Also returns one line for each
    /// effect on another author's thing.
    pub(crate) fn reloaded(&self, file: State) -> (Wanted, Vec<String>) {
        let (now, before) = (&*self.state, &*self.file);
        let mut notes = Vec::new();
        let hosts = [now, before, &file].map(|state| state.host.as_slice());
        let attachments =
            self.merged([&now.attachments, &before.attachments, &file.attachments], &mut notes);
        let programs = self.merged_programs(&file, &attachments, &mut notes);
        let state = State {
            version: VERSION,
            workers: file.workers.clone(),
            frames: file.frames,
            stuck_ms: file.stuck_ms,
            host: self.merged(hosts, &mut notes).pop(),
            bridges: self.merged([&now.bridges, &before.bridges, &file.bridges], &mut notes),
            ports: self.merged([&now.ports, &before.ports, &file.ports], &mut notes),
            programs,
            attachments,
            sas: self.merged([&now.sas, &before.sas, &file.sas], &mut notes),
            policies: self.merged([&now.policies, &before.policies, &file.policies], &mut notes),
            objects: BTreeMap::new(),
        };
        let by = |thing: &Thing| self.authors.get(thing).cloned().unwrap_or_default();
        (Wanted::new(Arc::new(state), Arc::new(file), by), notes)
    }

    /// The programs that belong to `attachments`: a program whose attachments were all removed
    /// stays away, and an absent program returns with an attachment that is present again.
    fn merged_programs(
        &self,
        file: &State,
        attachments: &[AttachState],
        notes: &mut Vec<String>,
    ) -> Vec<ProgramState> {
        let is_on = |list: &[AttachState], key: &str| list.iter().any(|it| it.program == key);
        let is_away = |key: &str| is_on(&file.attachments, key) && !is_on(attachments, key);
        let own = file.programs.iter().filter(|it| !is_away(&it.key)).cloned();
        let own: Vec<ProgramState> = own.collect();
        let lists = [&self.state.programs[..], &self.file.programs, &own];
        let mut programs = self.merged(lists, notes);
        for program in own {
            let is_there = programs.iter().any(|it| it.key == program.key);
            if !is_there && is_on(attachments, &program.key) {
                programs.push(program);
            }
        }
        programs
    }

    /// Merges one list of things: `now` is wanted, the file contained `before` and contains
    /// `after`. Of several items with the same identity the first counts.
    fn merged<T: Clone + PartialEq + Identified>(
        &self,
        [now, before, after]: [&[T]; 3],
        notes: &mut Vec<String>,
    ) -> Vec<T> {
        let by_thing = |list: &'_ [T]| -> HashMap<Thing, usize> {
            list.iter().enumerate().rev().map(|(at, item)| (item.thing(), at)).collect()
        };
        let [in_now, in_before, in_after] = [now, before, after].map(by_thing);
        let find = |list: &'_ [T], places: &HashMap<Thing, usize>, it: &Thing| {
            places.get(it).map(|at| list[*at].clone())
        };
        let new = after.iter().map(T::thing).filter(|it| !in_now.contains_key(it));
        let things: Vec<Thing> = now.iter().map(T::thing).chain(new).collect();
        let mut result = Vec::new();
        for it in things {
            let others = self.authors.get(&it).into_iter().flatten();
            let others: Vec<Author> = others.copied().filter(|by| *by != Author::File).collect();
            let (next, outcome) = settle(
                find(now, &in_now, &it),
                find(before, &in_before, &it).as_ref(),
                find(after, &in_after, &it),
                !others.is_empty(),
            );
            notes.extend(outcome.map(|outcome| outcome.text(&it, &others)));
            result.extend(next);
        }
        result
    }

    /// Things of the configuration file that the API changed or removed.
    pub(crate) fn overridden(&self) -> Vec<Overridden> {
        let (now, file) = (&*self.state, &*self.file);
        let mut found = differing(now.host.as_slice(), file.host.as_slice());
        found.extend(differing(&now.bridges, &file.bridges));
        found.extend(differing(&now.ports, &file.ports));
        // A removed program is not listed: its removed attachment is.
        let programs = differing(&now.programs, &file.programs);
        found.extend(programs.into_iter().filter(|(_, is_there)| *is_there));
        found.extend(differing(&now.attachments, &file.attachments));
        found.extend(differing(&now.sas, &file.sas));
        found.extend(differing(&now.policies, &file.policies));
        let view = |(thing, is_there): (Thing, bool)| Overridden {
            subject: thing.to_string(),
            is: if is_there { Override::Changed } else { Override::Removed },
        };
        found.into_iter().map(view).collect()
    }

    /// Whether the wanted state equals the configuration file's.
    pub(crate) fn is_as_in_file(&self) -> bool {
        self.state == self.file
    }

    /// Removes or resets things that conflict with the rest and differ from the file, which is
    /// consistent by itself. Also returns the name of each such thing and the reason.
    pub(crate) fn fitted(self) -> (Wanted, Vec<(String, String)>) {
        let mut state = State::clone(&self.state);
        let unfit = state.take_unfit(&self.file);
        if unfit.is_empty() {
            return (self, unfit);
        }
        let by = |thing: &Thing| self.authors.get(thing).cloned().unwrap_or_default();
        (Wanted::new(Arc::new(state), Arc::clone(&self.file), by), unfit)
    }
}

/// Effect of the file on a thing that another author made, changed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The file's version replaced another author's.
    Replaced,
    /// The file dropped the thing, which stays because another author wants it.
    Kept,
    /// The file brought back a thing that the API had removed.
    Back,
}

impl Outcome {
    fn text(self, thing: &Thing, others: &[Author]) -> String {
        let who = match others {
            [Author::Saved] => "the saved state",
            _ => "the API",
        };
        match self {
            Outcome::Replaced => {
                format!("{thing}: the configuration file's version replaces that of {who}")
            }
            Outcome::Kept => format!(
                "{thing}: it stays after its removal from the configuration file, since {who} \
                 wants it, too"
            ),
            Outcome::Back => format!(
                "{thing}: it was removed by the API, and is added again, since the configuration \
                 file changed it"
            ),
        }
    }
}

/// The rule for one thing: `now` is wanted, the file contained `before` and contains `after`;
/// `is_others` says whether an author other than the file wants the thing.
fn settle<T: PartialEq>(
    now: Option<T>,
    before: Option<&T>,
    after: Option<T>,
    is_others: bool,
) -> (Option<T>, Option<Outcome>) {
    if before == after.as_ref() {
        return (now, None);
    }
    let Some(after) = after else {
        let outcome = now.is_some().then_some(Outcome::Kept).filter(|_| is_others);
        return (now.filter(|_| is_others), outcome);
    };
    let outcome = match &now {
        None => before.map(|_| Outcome::Back),
        Some(now) if *now != after && before != Some(now) => Some(Outcome::Replaced),
        Some(_) => None,
    };
    (Some(after), outcome)
}

/// Things of `file` that are different or absent in `now`, and whether each is in `now`.
fn differing<T: PartialEq + Identified>(now: &[T], file: &[T]) -> Vec<(Thing, bool)> {
    let now: HashMap<Thing, &T> = now.iter().rev().map(|it| (it.thing(), it)).collect();
    let here = file.iter().map(|it| (it.thing(), it));
    let differ = here.filter(|(thing, it)| now.get(thing) != Some(it));
    differ.map(|(thing, _)| (thing.clone(), now.contains_key(&thing))).collect()
}

#[cfg(test)]
mod tests;
