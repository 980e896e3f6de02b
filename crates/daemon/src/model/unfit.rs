//! Resolution of conflicts between a saved state and the current configuration file. The file is
//! consistent by itself: where the two conflict, changes by other authors give way.

use towpath_document::Problem;

use crate::model::state::State;
use crate::model::thing::{Identified, place};

impl State {
    /// Removes or resets things that conflict with the rest and differ from `file`. Returns their
    /// names and the reasons.
    pub(crate) fn take_unfit(&mut self, file: &State) -> Vec<(String, String)> {
        let mut unfit = Vec::new();
        while let Some(problem) = self.problems().into_iter().next() {
            let taken = self.take_at(&problem.path, file);
            let Some(what) = taken.or_else(|| self.take_cause(&problem, file)) else {
                // The conflict cannot be attributed to a thing.
                unfit.push(("changes".to_owned(), problem.to_string()));
                *self = file.clone();
                break;
            };
            unfit.push((what, problem.message));
        }
        self.forget_unused_programs();
        unfit
    }

    /// Removes the thing at the path of a problem, or resets it to the file's version. `None` if it
    /// equals the file's version.
    fn take_at(&mut self, path: &str, file: &State) -> Option<String> {
        let name = self.thing_at(path)?.to_string();
        let (list, at) = place(path)?;
        match list {
            "attachments" => {
                take(&mut self.attachments, at, &file.attachments)?;
            }
            "programs" => {
                let (program, is_gone) = take(&mut self.programs, at, &file.programs)?;
                if is_gone {
                    self.attachments.retain(|attach| attach.program != program.key);
                }
                return Some(format!("program {}", program.file_and_program()));
            }
            "ports" => drop(take(&mut self.ports, at, &file.ports)?),
            "bridges" => drop(take(&mut self.bridges, at, &file.bridges)?),
            "sas" => drop(take(&mut self.sas, at, &file.sas)?),
            "policies" => drop(take(&mut self.policies, at, &file.policies)?),
            _ => return None,
        }
        Some(name)
    }

    /// Removes the cause of a problem with a thing of the file. The cause is a thing that is not in
    /// the file, such as a bridge of the same name: the first one whose removal solves the problem.
    fn take_cause(&mut self, problem: &Problem, file: &State) -> Option<String> {
        let about = self.thing_at(&problem.path);
        let is_there = |state: &State| {
            let same = |it: &Problem| it.message == problem.message;
            state.problems().iter().any(|it| same(it) && state.thing_at(&it.path) == about)
        };
        let lists = [
            ("bridges", self.bridges.len()),
            ("ports", self.ports.len()),
            ("attachments", self.attachments.len()),
            ("sas", self.sas.len()),
            ("policies", self.policies.len()),
        ];
        let mut paths = lists
            .iter()
            .flat_map(|(list, count)| (0..*count).map(move |at| format!("{list}[{at}]")));
        let (next, name) = paths.find_map(|path| {
            let mut next = self.clone();
            let name = next.take_at(&path, file)?;
            (!is_there(&next)).then_some((next, name))
        })?;
        *self = next;
        Some(name)
    }
}

/// Removes an item, or resets it to the file's version. Returns the old item, and whether it was
/// removed; `None` if it equals the file's version.
fn take<T: Clone + PartialEq + Identified>(
    list: &mut Vec<T>,
    at: usize,
    file: &[T],
) -> Option<(T, bool)> {
    let item = list.get(at)?;
    let is_it = |other: &&T| other.thing() == item.thing();
    let is_twice = list.iter().filter(is_it).count() > 1;
    match file.iter().find(is_it).filter(|_| !is_twice) {
        Some(same) if same == item => None,
        Some(same) => Some((std::mem::replace(&mut list[at], same.clone()), false)),
        None => Some((list.remove(at), true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::{BridgeState, PortState};

    fn port(name: &str, upper: Option<&str>) -> PortState {
        let (kind, upper) = ("sink".to_owned(), upper.map(str::to_owned));
        PortState { name: name.to_owned(), kind, upper, ..PortState::default() }
    }

    fn bridge(name: &str) -> BridgeState {
        BridgeState { name: name.to_owned(), ageing: 300 }
    }

    fn unfit(mut state: State, file: &State) -> (State, Vec<String>) {
        let unfit = state.take_unfit(file);
        assert!(state.problems().is_empty(), "{:?}", state.problems());
        (state, unfit.into_iter().map(|(what, _)| what).collect())
    }

    #[test]
    fn what_others_made_gives_way_to_the_file_and_nothing_else_does() {
        let file = State { ports: vec![port("a", None), port("b", None)], ..State::new() };
        let more = |bridges: Vec<BridgeState>, ports: Vec<PortState>| {
            let ports = [file.ports.clone(), ports].concat();
            State { bridges, ports, ..file.clone() }
        };
        // Another author's port above a missing one is removed.
        let (left, names) =
            unfit(more(vec![], vec![port("x", None), port("y", Some("gone"))]), &file);
        assert_eq!((left, names), (more(vec![], vec![port("x", None)]), vec!["port y".to_owned()]));
        // Another author's bridge has the name of a port of the file.
        let (left, names) =
            unfit(more(vec![bridge("b"), bridge("br")], vec![port("x", Some("br"))]), &file);
        let there = more(vec![bridge("br")], vec![port("x", Some("br"))]);
        assert_eq!((left, names), (there, vec!["bridge b".to_owned()]));
        // A changed port of the file is reset to the file's version.
        let mut changed = file.clone();
        changed.ports[1].upper = Some("gone".to_owned());
        assert_eq!(unfit(changed, &file), (file.clone(), vec!["port b".to_owned()]));
    }
}
