//! Selection of a program's maps when it is loaded: pinned ones, shared ones, and those of its
//! predecessor. A program's learnt data survives changes of its code.
//!
//! - A map that is shared (`--map NAME=...`) or pinned by name (`LIBBPF_PIN_BY_NAME`) is reused as
//!   by libbpf, and refused if it differs from the object's definition.
//! - Maps of the predecessor are kept if name and shape are the same. Another shape is refused with
//!   the difference, unless a migration is configured. Entries for which the new maps have no room,
//!   or which have no map any more, are counted and refused unless the change is lossy.
//! - A map that several programs shared when the daemon ended is shared again.
//! - Maps that belong to the code are new: constants, global variables whose initial values or
//!   layout changed, and program arrays, in which programs from outside the object file stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_bpf::map::{Keys, Values};
use towpath_bpf::suggest;
use towpath_bpf::{MapDef, Object};
use towpath_maps::shape::{Conversion, difference};
use towpath_maps::{Map, MapSet, Value};
use towpath_objects::{BPFFS_ROOT, MapUse, Objects, ProgramObject, Selector, Session};
use towpath_xdp::program::map_fields;

use super::Live;
use super::parts::LiveProgram;
use super::report::Report;
use crate::model::reference::absolute;
use crate::model::state::{MigrateState, ProgramState};

/// The maps for a program that is to be loaded.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// Existing maps that replace the object's, by name.
    pub(super) existing: BTreeMap<String, Arc<Map>>,
    /// Names of those existing maps that are the predecessor's.
    pub(super) kept: BTreeSet<String>,
    /// Maps of another shape or name whose entries are copied into the object's.
    copied: BTreeMap<String, Arc<Map>>,
    /// Numbers of entries in maps that the object no longer has, by name.
    vanished: BTreeMap<String, usize>,
    /// Whether entries may be lost.
    is_lossy: bool,
    /// Paths at which new maps are to be pinned, by name.
    pins: BTreeMap<String, String>,
    /// Messages about maps that start empty, with the reason.
    anew: Vec<String>,
}

impl Takeover {
    /// Finds the maps of `file` among those of `before` and all others.
    ///
    /// # Errors
    ///
    /// Fails if a map cannot be used as the object defines it; the message contains advice.
    pub(super) fn find(
        live: &Live,
        state: &ProgramState,
        file: &Object,
        before: Option<&LiveProgram>,
    ) -> Result<Takeover, String> {
        check_names(state, file, before)?;
        let mut found = Takeover { is_lossy: state.lossy, ..Takeover::default() };
        if let Some(before) = before.filter(|_| !state.fresh_maps) {
            found.vanished = vanished(live, state, file, before);
        }
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
                && let Some((old, _)) = state.map_rename.iter().find(|(_, new)| **new == def.name)
                && let Some(map) = before.program.maps().by_name(old)
            {
                check_copy(map, def)?;
                found.copied.insert(def.name.clone(), Arc::clone(map));
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

    /// Finds the map pinned by name (`LIBBPF_PIN_BY_NAME`) at the root of bpffs; without one, notes
    /// that the new map is to be pinned there.
    fn pinned(&mut self, live: &Live, def: &MapDef) -> Result<(), String> {
        let path = format!("{BPFFS_ROOT}/{}", def.name);
        let pin = live.registry.pins().into_iter().find(|(at, _)| *at == path);
        let Some((_, object)) = pin else {
            self.pins.insert(def.name.clone(), path);
            return Ok(());
        };
        let map = MapUse::try_from(object).map_err(|_other| {
            format!("map {}: the object pinned at {path} is not a map", def.name)
        })?;
        let map = map.object().map();
        let fields = map_fields(def, &live.env.kernel_btf);
        if let Some(difference) = difference(map, def, &fields) {
            return Err(format!(
                "map {} is pinned at {path} with another shape: {difference}; `towpath map unpin \
                 {path}` allows a new map",
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
            // Maps with initial contents from the object file belong to the code.
            (Some(change), None) if def.initial.is_some() => {
                self.anew
                    .push(format!("map {} starts with its initial contents: {change}", def.name));
            }
            (Some(change), None) => {
                let name = &def.name;
                return Err(format!(
                    "map {name} has changed: {change}. Choose what happens to its entries: \
                     --map-migrate {name}=copy, or {name}=drop (map_migrate in a configuration); \
                     --fresh-maps starts with new maps"
                ));
            }
        }
        Ok(())
    }

    /// Copies entries to the new maps; fails if entries are lost and that is not allowed.
    fn copy_entries(&self, maps: &MapSet, report: &mut Report) -> Result<(), String> {
        let (mut lost, mut lines) = (Vec::new(), Vec::new());
        for (name, old) in &self.copied {
            let Some(new) = maps.by_name(name) else { continue };
            let (copied, refused) = copy(old, new);
            if refused > 0 {
                let all = copied + refused;
                lost.push(format!("map {name} has no room for {refused} of {all} entries"));
            }
            let left = if refused == 0 { String::new() } else { format!(", {refused} lost") };
            lines.push(format!("map {name}: {copied} entries copied{left}"));
        }
        let gone = self.vanished.iter();
        lost.extend(gone.map(|(name, count)| {
            format!(
                "map {name}, which holds {count} entries, is no longer in the object \
                 (--map-rename {name}=NEW if it has another name, or --map-migrate {name}=drop)"
            )
        }));
        if !lost.is_empty() && !self.is_lossy {
            let lost = lost.join("; ");
            return Err(format!(
                "{lost}: --lossy (lossy = true in a configuration) allows the loss"
            ));
        }
        lines.into_iter().for_each(|line| report.change(line));
        for (name, count) in &self.vanished {
            report.change(format!("map {name}: removed, with {count} entries"));
        }
        Ok(())
    }

    /// Copies entries, and pins new maps; called after the program is loaded and its configured
    /// contents are stored.
    pub(super) fn finish(
        &self,
        registry: &Objects,
        maps: &MapSet,
        object: &ProgramObject,
        before: Option<&LiveProgram>,
        report: &mut Report,
    ) -> Result<(), String> {
        self.anew.iter().for_each(|line| report.change(line));
        self.copy_entries(maps, report)?;
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

/// Refuses unknown map names, which would have no effect. Without a predecessor, as at a start,
/// instructions about its maps are ignored.
fn check_names(
    state: &ProgramState,
    file: &Object,
    before: Option<&LiveProgram>,
) -> Result<(), String> {
    let own: Vec<&str> = file.maps().iter().map(|def| def.name.as_str()).collect();
    let old = before.map(|before| before.program.maps().maps()).unwrap_or_default();
    let old: Vec<&str> = old.iter().map(|map| map.name()).collect();
    let is_past = before.is_none();
    let dropped = state.map_migrate.iter().filter(|(_, it)| **it == MigrateState::Drop);
    let dropped: Vec<&String> = dropped.map(|(name, _)| name).collect();
    let asked = state.shared_maps.keys().chain(state.map_migrate.keys());
    let asked = asked.chain(state.map_rename.values());
    // A map to be dropped may be gone already.
    let is_there = |name: &String| own.contains(&name.as_str()) || dropped.contains(&name);
    let unknown = asked.into_iter().find(|name| !is_there(name));
    if let Some(name) = unknown {
        let hint = suggest::among(name, own.iter().copied());
        return Err(format!("the object has no map {name:?}{hint}"));
    }
    let gone = |name: &&String| {
        // After a reload, the predecessor has the map under its new name already.
        !is_past && !old.contains(&name.as_str()) && !old.contains(&&*state.map_rename[*name])
    };
    match state.map_rename.keys().find(gone) {
        Some(name) => {
            let hint = suggest::among(name, old.iter().copied());
            Err(format!("the program before has no map {name:?}{hint}"))
        }
        None => Ok(()),
    }
}

/// Maps of the predecessor that the object lacks and that nothing else keeps, by their number of
/// entries that would be missed.
fn vanished(
    live: &Live,
    state: &ProgramState,
    file: &Object,
    before: &LiveProgram,
) -> BTreeMap<String, usize> {
    let pins = live.registry.pins();
    let is_pinned = |map: &Arc<Map>| {
        pins.iter().any(|(_, object)| match object {
            towpath_objects::Object::Map(pinned) => Arc::ptr_eq(pinned.object().map(), map),
            _ => false,
        })
    };
    let is_kept = |map: &&Arc<Map>| {
        let name = map.name();
        let others = live.programs.iter().filter(|(key, _)| **key != before.state.key);
        let mut others = others.flat_map(|(_, other)| other.program.maps().maps());
        map.def().is_constant()
            || map.def().initial.is_some()
            || map.kind().values() == Values::Program
            || file.maps().iter().any(|def| def.name == name)
            || state.map_rename.contains_key(name)
            || state.map_migrate.get(name) == Some(&MigrateState::Drop)
            || is_pinned(map)
            || others.any(|other| Arc::ptr_eq(other, map))
    };
    let gone = before.program.maps().maps().iter().filter(|map| !is_kept(map));
    let gone = gone.map(|map| (map.name().to_owned(), held(map)));
    gone.filter(|(_, count)| *count > 0).collect()
}

/// Whether an element would be missed: in arrays, if it is not zero; in other maps, always.
fn is_something(map: &Map, value: &Value) -> bool {
    map.kind().keys() != Keys::Index || value.cpus().iter().any(|it| it.iter().any(|it| *it != 0))
}

/// Number of elements in a map that would be missed.
fn held(map: &Map) -> usize {
    match map.kind().values() {
        Values::Bytes | Values::PerCpu if map.kind().keys() == Keys::Index => {
            map.user().entries().filter(|(_, value)| is_something(map, value)).count()
        }
        Values::Bytes | Values::PerCpu => map.user().entries().count(),
        _ => map.targets().len(),
    }
}

/// Finds a map by its id or pin path.
fn shared(registry: &Arc<Objects>, place: &str) -> Result<Arc<Map>, String> {
    let selector = match place.parse() {
        Ok(id) => Selector::Id(id),
        Err(_path) => Selector::Pinned(absolute(place)),
    };
    let map = Session::new(registry, 0).map(&selector);
    map.map(|map| Arc::clone(map.map())).map_err(|error| error.to_string())
}

/// Refuses to copy entries that are not plain values.
fn check_copy(old: &Map, new: &MapDef) -> Result<(), String> {
    // Both must be equal, so that values have the same number of CPUs.
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

/// Copies all entries. Returns the number copied, and the number lost: the new map refused or
/// evicted them, or merges several keys into one.
fn copy(old: &Map, new: &Map) -> (usize, usize) {
    let keys = Conversion::of_keys(old.def(), new.def());
    let values = Conversion::of_values(old.def(), new.def());
    let (mut all, mut stored) = (0, BTreeSet::new());
    for (key, value) in old.user().entries() {
        let key = keys.bytes(&key);
        if !is_something(old, &value) && new.kind().keys() == Keys::Index {
            continue;
        }
        all += 1;
        if new.user().update(&key, &values.value(&value), 0).is_ok() {
            stored.insert(key);
        }
    }
    let copied = stored.iter().filter(|key| new.user().lookup(key, 0).is_ok()).count();
    assert!(copied <= all, "no entry is copied twice");
    (copied, all - copied)
}
