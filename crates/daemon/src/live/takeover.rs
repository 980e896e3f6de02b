//! Which maps a program finds when it is loaded: pinned ones, shared ones, and those of the program
//! whose place it takes. What a program has learnt stays when its code changes.
//!
//! - A map that is shared (`--map NAME=...`) or pinned by name (`LIBBPF_PIN_BY_NAME`) is used again
//!   as libbpf does, and refused when it isn't as the object defines it.
//! - Of the program before, maps of the same name and shape stay. Another shape is refused, with
//!   what changed, unless it is said what is to become of the entries.
//! - A map that several programs had when the daemon ended is one map again.
//! - What belongs to the code is new: constants, global variables whose first values or places
//!   changed, and jump tables, in which entries that came from outside stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_bpf::suggest;
use towpath_bpf::{MapDef, Object};
use towpath_maps::shape::{Conversion, difference};
use towpath_maps::{Map, MapSet};
use towpath_objects::{BPFFS_ROOT, MapUse, Objects, ProgramObject, Selector, Session};
use towpath_xdp::program::map_fields;

use super::programs::LiveProgram;
use super::{Live, Report};
use crate::reference::absolute;
use crate::state::{MigrateState, ProgramState};

/// What a program to be loaded finds.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// Maps that stand for the object's, by name.
    pub(super) existing: BTreeMap<String, Arc<Map>>,
    /// Those of them that were the program's before.
    pub(super) kept: BTreeSet<String>,
    /// Maps of another shape, whose entries the object's are to take over.
    copied: BTreeMap<String, Arc<Map>>,
    /// Maps that are to be pinned, and where.
    pins: BTreeMap<String, String>,
    /// What starts anew though it was there, and why.
    anew: Vec<String>,
}

impl Takeover {
    /// Looks for the maps of `file`, which `before` may have had.
    ///
    /// # Errors
    ///
    /// A map that can't be used as the object defines it, and what to do.
    pub(super) fn find(
        live: &Live,
        state: &ProgramState,
        file: &Object,
        before: Option<&LiveProgram>,
    ) -> Result<Takeover, String> {
        check_names(state, file)?;
        let mut found = Takeover::default();
        for def in file.maps().iter() {
            let returns = live.returns(&state.key, &def.name);
            if let Some(map) = live.returned_map(&state.key, def) {
                found.existing.insert(def.name.clone(), map);
            } else if let Some(place) = state.shared_maps.get(&def.name).filter(|_| !returns) {
                let map = shared(&live.registry, place);
                let map = map.map_err(|why| format!("map {}: {why}", def.name))?;
                found.existing.insert(def.name.clone(), map);
            } else if def.pin_by_name {
                found.pinned(live, def)?;
            } else if let Some(before) = before.filter(|_| !state.fresh_maps)
                && let Some(map) = before.program.maps().by_name(&def.name)
            {
                let fields = map_fields(def, &live.env.kernel_btf);
                let change = difference(map, def, &fields).map(|it| it.to_string());
                found.of_before(map, def, change, state.map_migrate.get(&def.name).copied())?;
            }
        }
        Ok(found)
    }

    /// `LIBBPF_PIN_BY_NAME`: the map at the root of bpffs, or a new one, which is pinned there.
    fn pinned(&mut self, live: &Live, def: &MapDef) -> Result<(), String> {
        let path = format!("{BPFFS_ROOT}/{}", def.name);
        let pin = live.registry.pins().into_iter().find(|(at, _)| *at == path);
        let Some((_, object)) = pin else {
            self.pins.insert(def.name.clone(), path);
            return Ok(());
        };
        let map = MapUse::try_from(object)
            .map_err(|_other| format!("map {}: what is pinned at {path} is no map", def.name))?;
        let map = map.object().map();
        let fields = map_fields(def, &live.env.kernel_btf);
        if let Some(difference) = difference(map, def, &fields) {
            return Err(format!(
                "map {} is pinned at {path} with another shape: {difference}; `towpath map \
                 unpin {path}` lets a new one be made",
                def.name
            ));
        }
        self.existing.insert(def.name.clone(), Arc::clone(map));
        Ok(())
    }

    fn of_before(
        &mut self,
        map: &Arc<Map>,
        def: &MapDef,
        change: Option<String>,
        migrate: Option<MigrateState>,
    ) -> Result<(), String> {
        let name = || def.name.clone();
        match (change, migrate) {
            _ if def.is_constant() || def.kind.values() == Values::Program => {}
            (None, _) => {
                self.existing.insert(name(), Arc::clone(map));
                self.kept.insert(name());
            }
            (Some(_), Some(MigrateState::Drop)) => {}
            (Some(_), Some(MigrateState::Copy)) => {
                check_copy(map, def)?;
                self.copied.insert(name(), Arc::clone(map));
            }
            // What an object file fills is its own.
            (Some(change), None) if def.initial.is_some() => {
                self.anew.push(format!("map {} starts anew: {change}", def.name));
            }
            (Some(change), None) => {
                let name = &def.name;
                return Err(format!(
                    "map {name} is not as it was: {change}. Say what becomes of its entries: \
                     --map-migrate {name}=copy, or {name}=drop (map_migrate in a configuration); \
                     --fresh-maps starts all maps anew"
                ));
            }
        }
        Ok(())
    }

    /// Fills what the new maps take over, and pins what is to be pinned: when the program is loaded
    /// and its own contents are stored.
    pub(super) fn finish(
        &self,
        registry: &Objects,
        maps: &MapSet,
        object: &ProgramObject,
        before: Option<&LiveProgram>,
        report: &mut Report,
    ) -> Result<(), String> {
        self.anew.iter().for_each(|line| report.change(line));
        for (name, old) in &self.copied {
            let Some(new) = maps.by_name(name) else { continue };
            let (copied, refused) = copy(old, new);
            let lost = if refused == 0 { String::new() } else { format!(", {refused} don't fit") };
            report.change(format!("map {name}: {copied} entries copied{lost}"));
        }
        let objects = object.maps();
        let object_of = |name: &str| {
            let map = maps.by_name(name)?;
            objects.iter().find(|object| Arc::ptr_eq(object.map(), map))
        };
        for (name, path) in &self.pins {
            let Some(map) = object_of(name) else { continue };
            let pinned = registry.pin(path, MapUse::new(Arc::clone(map)).into());
            pinned.map_err(|errno| format!("map {name} can't be pinned at {path}: {errno}"))?;
            report.change(format!("map {name}: pinned at {path}"));
        }
        let old = before.map(|before| before.object.maps()).unwrap_or_default();
        for table in old.iter().filter(|old| old.map().kind().values() == Values::Program) {
            let is_own = |program: &ProgramObject| {
                let ours = before.map(|before| before.program.maps());
                ours.is_some_and(|ours| Arc::ptr_eq(program.program().maps(), ours))
            };
            if let Some(new) = object_of(table.map().name())
                && !Arc::ptr_eq(new, table)
            {
                new.take_over_programs(table, is_own);
            }
        }
        Ok(())
    }
}

/// Names that nothing has would do nothing.
fn check_names(state: &ProgramState, file: &Object) -> Result<(), String> {
    let names = || file.maps().iter().map(|def| def.name.as_str());
    let asked = state.shared_maps.keys().chain(state.map_migrate.keys());
    match asked.into_iter().find(|asked| names().all(|name| name != **asked)) {
        Some(asked) => {
            Err(format!("the object has no map {asked:?}{}", suggest::among(asked, names())))
        }
        None => Ok(()),
    }
}

/// A map by its id or the path of its pin.
fn shared(registry: &Arc<Objects>, place: &str) -> Result<Arc<Map>, String> {
    let selector = match place.parse() {
        Ok(id) => Selector::Id(id),
        Err(_path) => Selector::Pinned(absolute(place)),
    };
    let map = Session::new(registry, 0).map(&selector);
    map.map(|map| Arc::clone(map.map())).map_err(|error| error.to_string())
}

/// Entries that are plain values can be copied.
fn check_copy(old: &Map, new: &MapDef) -> Result<(), String> {
    // Equal ones, so that values have as many CPUs on both sides.
    let values = [old.kind().values(), new.kind.values()];
    let are_plain = values == [Values::Bytes; 2] || values == [Values::PerCpu; 2];
    if are_plain && old.fields().is_empty() {
        return Ok(());
    }
    let (was, is) = (old.kind().name(), new.kind.name());
    Err(format!(
        "map {}: entries of a {was} can't be copied to a {is}: only plain values can, from one \
         table or array to another; --map-migrate {}=drop starts it empty",
        new.name, new.name
    ))
}

/// Copies all entries; gives how many were stored and how many the new map refused.
fn copy(old: &Map, new: &Map) -> (usize, usize) {
    let keys = Conversion::of_keys(old.def(), new.def());
    let values = Conversion::of_values(old.def(), new.def());
    let stored = |(key, value): (Vec<u8>, _)| {
        new.user().update(&keys.bytes(&key), &values.value(&value), 0).is_ok()
    };
    let results: Vec<bool> = old.user().entries().map(stored).collect();
    let copied = results.iter().filter(|it| **it).count();
    (copied, results.len() - copied)
}
