//! Configured contents of a program's maps. When a map is kept on replacement of its program, only
//! changes of the configuration are applied: entries that were learnt, or changed by hand, stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map as Object, Value as Json};
use towpath_maps::mapfile::{self, Filling, Step, Stored};
use towpath_maps::{Map, MapSet};
use towpath_objects::Objects;

use super::parts::LiveProgram;

/// Entries to be stored in a program's maps, and entries to be removed.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Entries to be stored: all for new maps, only changed ones for maps that are kept. Entries
    /// that name programs are stored again in any case, since the programs were replaced, too.
    pub(super) fillings: Vec<Filling>,
    /// Entries of kept maps that were configured before, and no longer are.
    gone: Vec<(Arc<Map>, Step)>,
}

impl Contents {
    /// Compares the contents `wanted` for `maps`, in the format of map files, with those of the
    /// previous program `before`, of which the maps named in `kept` are kept.
    pub(super) fn new(
        wanted: Option<&Object<String, Json>>,
        maps: &MapSet,
        before: Option<&LiveProgram>,
        kept: &BTreeSet<String>,
        cpus: usize,
    ) -> Result<Contents, String> {
        let mut contents = Contents { fillings: parse(wanted, maps, cpus)?, gone: Vec::new() };
        let Some(before) = before.filter(|_| !kept.is_empty()) else { return Ok(contents) };
        let old_maps = before.program.maps();
        // These contents were parsed when the previous program was loaded.
        let old = parse(before.state.maps.as_ref(), old_maps, cpus).unwrap_or_default();
        for Filling { map, steps } in old {
            let name = old_maps.map(map).map(|map| map.name());
            let stays = name.filter(|name| kept.contains(*name));
            let Some(map) = stays.and_then(|name| maps.by_name(name)) else { continue };
            contents.leave_alone(map, maps, steps);
        }
        Ok(contents)
    }

    /// Drops from the fillings of a kept map the entries that were wanted before, and notes for
    /// removal those that no longer are.
    fn leave_alone(&mut self, map: &Arc<Map>, maps: &MapSet, old: Vec<Step>) {
        let is_it = |filling: &&mut Filling| {
            maps.map(filling.map).is_some_and(|other| Arc::ptr_eq(other, map))
        };
        let wanted = self.fillings.iter_mut().find(is_it);
        let mut by_key: BTreeMap<_, Vec<Stored>> = BTreeMap::new();
        let keys: BTreeSet<Option<Vec<u8>>> =
            wanted.iter().flat_map(|it| &it.steps).map(|step| step.key.clone()).collect();
        for step in old {
            if step.key.is_some() && !keys.contains(&step.key) {
                self.gone.push((Arc::clone(map), step));
            } else {
                by_key.entry(step.key).or_default().push(step.stored);
            }
        }
        let is_known =
            |step: &Step| by_key.get(&step.key).is_some_and(|old| old.contains(&step.stored));
        if let Some(filling) = wanted {
            filling.steps.retain(|step| names_programs(step) || !is_known(step));
        }
    }

    /// Removes entries that are no longer configured.
    pub(super) fn forget_old(&self, registry: &Objects) -> Result<(), String> {
        self.gone.iter().try_for_each(|(map, step)| {
            let object = registry.map_object(map).zip(step.key.as_deref());
            let cleared = object.map_or(Ok(()), |(object, key)| object.clear(key));
            cleared.map_err(|errno| format!("maps: {}: {errno}", step.path))
        })
    }
}

fn parse(
    contents: Option<&Object<String, Json>>,
    maps: &MapSet,
    cpus: usize,
) -> Result<Vec<Filling>, String> {
    let Some(contents) = contents else { return Ok(Vec::new()) };
    mapfile::parse(contents, &maps.defs(), cpus).map_err(|problem| format!("maps: {problem}"))
}

fn names_programs(step: &Step) -> bool {
    matches!(step.stored, Stored::Program(_) | Stored::Target(_, Some(_)))
}
