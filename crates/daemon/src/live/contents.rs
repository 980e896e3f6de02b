//! What configuration puts into a program's maps. A map that stays when its program is replaced
//! gets what changed in the configuration and nothing else: what was learnt or changed by hand
//! meanwhile stays, as with ports and links.

use std::collections::BTreeSet;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::Errno;
use towpath_maps::{Map, MapSet, Value};

use super::programs::LiveProgram;
use crate::mapfile::{self, Filling, Step, Stored};

/// What is wanted in a program's maps, and what was.
pub(super) struct Contents<'a> {
    /// In the format of map files.
    pub(super) wanted: Option<&'a Object<String, Json>>,
    /// The program whose place is taken.
    pub(super) before: Option<&'a LiveProgram>,
    /// Maps that were its.
    pub(super) kept: &'a BTreeSet<String>,
}

impl Contents<'_> {
    /// What is to be stored: into new maps everything, into those that stay what is new. Programs
    /// are stored again: they were replaced, too.
    pub(super) fn fillings(&self, maps: &MapSet, cpus: usize) -> Result<Vec<Filling>, String> {
        let mut fillings = parse(self.wanted, maps, cpus)?;
        for Filling { map, steps } in &mut fillings {
            let Some(map) = maps.map(*map).filter(|map| self.kept.contains(map.name())) else {
                continue;
            };
            let old = self.steps_before(map, cpus);
            let is_known =
                |step: &Step| old.iter().any(|it| it.key == step.key && it.stored == step.stored);
            steps.retain(|step| names_programs(step) || !is_known(step));
        }
        Ok(fillings)
    }

    /// Takes out of maps that stay what configuration had put there and does not name any more.
    pub(super) fn forget_old(&self, maps: &MapSet, cpus: usize) -> Result<(), String> {
        let wanted = parse(self.wanted, maps, cpus)?;
        for (index, map) in maps.maps().iter().enumerate() {
            if !self.kept.contains(map.name()) {
                continue;
            }
            let wanted = wanted.iter().find(|filling| filling.map == index);
            let keys: BTreeSet<&[u8]> =
                wanted.iter().flat_map(|it| &it.steps).filter_map(|it| it.key.as_deref()).collect();
            for step in self.steps_before(map, cpus) {
                let gone = step.key.as_deref().filter(|key| !keys.contains(key));
                let cleared = gone.map_or(Ok(()), |key| clear(map, key));
                cleared.map_err(|errno| format!("maps: {}: {errno}", step.path))?;
            }
        }
        Ok(())
    }

    /// What configuration had put into a map that stays.
    fn steps_before(&self, map: &Map, cpus: usize) -> Vec<Step> {
        let Some(before) = self.before else { return Vec::new() };
        let maps = before.program.maps();
        // It could be parsed when the program was loaded.
        let fillings = parse(before.state.maps.as_ref(), maps, cpus).unwrap_or_default();
        let is_it =
            |filling: &Filling| maps.map(filling.map).is_some_and(|old| old.name() == map.name());
        fillings.into_iter().filter(is_it).flat_map(|filling| filling.steps).collect()
    }
}

fn parse(
    contents: Option<&Object<String, Json>>,
    maps: &MapSet,
    cpus: usize,
) -> Result<Vec<Filling>, String> {
    let Some(contents) = contents else { return Ok(Vec::new()) };
    let defs: Vec<_> = maps.maps().iter().map(|map| map.def().clone()).collect();
    mapfile::parse(contents, &defs, cpus).map_err(|problem| format!("maps: {problem}"))
}

fn names_programs(step: &Step) -> bool {
    matches!(step.stored, Stored::Program(_) | Stored::Target(_, Some(_)))
}

/// Removes an element; those of arrays become what they are at first.
fn clear(map: &Map, key: &[u8]) -> Result<(), Errno> {
    match map.user().delete(key) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(Errno::EINVAL) => {
            let zeros = vec![0; map.value_size() as usize];
            let value = match map.is_percpu() {
                true => Value::PerCpu(vec![zeros; map.cpus()]),
                false => Value::One(zeros),
            };
            map.user().update(key, &value, 0)
        }
        Err(errno) => Err(errno),
    }
}
