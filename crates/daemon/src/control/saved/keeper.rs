//! Saving: the current state as a document, and users' changes of maps before they are
//! acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use towpath_bpf::map::{Keys, Values};
use towpath_maps::mapfile::{self, parse_element};
use towpath_maps::rows::{LoadError, Loaded, Plan, Rows};
use towpath_maps::{Map, typed};
use towpath_objects::{MapObject, Object};

use super::Store;
use crate::live::files::ObjectFiles;
use crate::live::map_file::{Before, can_be_saved, fits, why_not_saved};
use crate::live::{Live, Restored, RestoredMap, is_same_program};
use crate::model::authors::Wanted;
use crate::model::globals::hex;
use crate::model::identity::free_key;
use crate::model::refusal::Refusal;
use crate::model::saved::{Change, Document, SavedMap};
use crate::model::saved::{Line, What};
use crate::model::state::{MigrateState, ProgramState, State};

/// Saves changes, if a directory for them is configured.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    kept: Option<Mutex<Kept>>,
    /// Whether there was a change that is neither in the file nor in the wanted state.
    was_changed: AtomicBool,
    /// Held while contents are written.
    writing: Mutex<()>,
    /// Paths of pins in the last document. Has a lock of its own, since the other one is held while
    /// a document is written.
    pinned: Mutex<BTreeSet<String>>,
    /// Locks by map id, which serialize changes of a map, since a load may take seconds.
    turns: Mutex<BTreeMap<u32, Arc<Mutex<()>>>>,
}

#[derive(Debug)]
struct Kept {
    store: Store,
    /// Users' changes since contents were saved, by map id and key.
    edits: BTreeMap<u32, BTreeMap<Vec<u8>, Edit>>,
    /// Number of the last edit.
    number: u64,
    /// Names of contents files, by map id.
    contents: BTreeMap<u32, String>,
    /// Number of the last load by a user, counted with the edits, by map id.
    loaded: BTreeMap<u32, u64>,
    /// The program and name that each map came from, by map id; for maps that are now only pinned.
    maps: BTreeMap<u32, (u32, String)>,
    programs: BTreeMap<u32, ProgramState>,
    last: Option<Document>,
}

#[derive(Debug, Clone)]
struct Edit {
    number: u64,
    change: Change,
}

/// A map whose contents are to be saved.
#[derive(Debug)]
pub(crate) struct Due {
    id: u32,
    map: Arc<Map>,
    /// Number of the last edit that the contents will include.
    number: u64,
}

impl Keeper {
    pub(crate) fn new(store: Option<Store>) -> Keeper {
        let kept = store.map(|store| {
            Mutex::new(Kept {
                store,
                edits: BTreeMap::new(),
                number: 0,
                contents: BTreeMap::new(),
                loaded: BTreeMap::new(),
                maps: BTreeMap::new(),
                programs: BTreeMap::new(),
                last: None,
            })
        });
        Keeper { kept, ..Keeper::default() }
    }

    /// Changes that would be lost if the daemon ended, if there are any. `differs` says whether the
    /// wanted state differs from the configuration file.
    pub(crate) fn not_saved(&self, differs: bool, pins: &[(String, Object)]) -> Option<String> {
        if self.kept.is_some() {
            return self.lost_pins(pins);
        }
        let would_be = differs || self.was_changed.load(Ordering::Relaxed);
        would_be.then(|| {
            "changes since the configuration was read end with the daemon: a section [state] \
             saves them"
                .to_owned()
        })
    }

    /// Pins that are not restored at a start, or restored without contents.
    fn lost_pins(&self, pins: &[(String, Object)]) -> Option<String> {
        let pinned = self.pinned.lock();
        let why = |path: &String, object: &Object| match object {
            _ if !pinned.contains(path) => Some("it was made through bpf(2)"),
            Object::Map(map) => why_not_saved(map.object().map()),
            _ => None,
        };
        let lost =
            pins.iter().filter_map(|(path, it)| Some(format!("{path} ({})", why(path, it)?)));
        let lost: Vec<String> = lost.collect();
        let more = match lost.len().saturating_sub(LOST_SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let shown = lost[..lost.len().min(LOST_SHOWN)].join(", ");
        (!lost.is_empty()).then(|| format!("the objects pinned as {shown}{more}"))
    }

    /// Notes a change that is not part of the wanted state.
    pub(crate) fn note_change(&self) {
        self.was_changed.store(true, Ordering::Relaxed);
    }

    /// Notes the state of a program that only pins keep.
    pub(crate) fn note_program(&self, id: u32, state: ProgramState) {
        if let Some(mut kept) = self.lock() {
            kept.programs.insert(id, state);
        }
    }

    /// Changes an element and saves the change before returning.
    pub(crate) fn edit(
        &self,
        map: &MapObject,
        change: Change,
        work: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.note_change();
        let turn = self.turn(map.id());
        let _turn = turn.try_lock_for(EDIT_WAIT_MAX).ok_or_else(|| is_being_loaded(map))?;
        let Some(mut kept) = self.lock() else { return work() };
        work()?;
        let def = map.map().def();
        let is_element = def.kind.keys() != Keys::None && def.kind.values() != Values::Socket;
        let Ok((Some(key), _)) = parse_element(def, &change.key, None, map.map().cpus()) else {
            return Ok(());
        };
        if !is_element {
            return Ok(());
        }
        let line = Line { map: map.id(), what: What::Element { change: change.clone() } };
        kept.store.add(&line).map_err(|error| not_saved(map, &error))?;
        kept.note(line.map, key, change);
        Ok(())
    }

    /// Stores rows in a map and saves them as one change: after a crash, the map has either its
    /// previous contents or all rows. `is_pinned` says whether the map's contents are saved in any
    /// case.
    pub(crate) fn load(
        &self,
        map: &MapObject,
        rows: &Rows,
        is_replace: bool,
        is_pinned: bool,
    ) -> Result<Loaded, Refusal> {
        self.note_change();
        let turn = self.turn(map.id());
        let _turn = turn.try_lock_for(LOAD_WAIT_MAX).ok_or_else(|| is_being_loaded(map))?;
        let said = |error: LoadError| {
            let message = format!("map {}: {error}", map.name());
            match error {
                LoadError::Partly { .. } => Refusal::conflict(message),
                _ => Refusal::refused(message),
            }
        };
        let plan = Plan::new(map.map(), rows, is_replace).map_err(said)?;
        let written = self.write_rows(map, rows, is_replace, is_pinned)?;
        let loaded = plan.apply().map_err(said).inspect_err(|_| {
            if let Some(dir) = self.maps() {
                Store::forget_rows(&dir, map.id());
            }
        })?;
        if let (Some(name), Some(mut kept)) = (written, self.lock()) {
            kept.take_rows(map, rows, is_replace, name).map_err(|error| not_saved(map, &error))?;
        }
        Ok(loaded)
    }

    /// Writes the future contents of a map to a file. Returns the file's name, or `None` if
    /// contents of such a map are not saved.
    fn write_rows(
        &self,
        map: &MapObject,
        rows: &Rows,
        is_replace: bool,
        is_pinned: bool,
    ) -> Result<Option<String>, Refusal> {
        let (id, it) = (map.id(), map.map());
        let Some(dir) = self.maps().filter(|_| it.kind().keys() != Keys::None) else {
            return Ok(None);
        };
        let file = self.lock().and_then(|kept| Some(dir.join(kept.contents.get(&id)?)));
        let before = match &file {
            _ if is_replace => Before::Nothing,
            _ if is_pinned && can_be_saved(it) => Before::Map,
            Some(file) => Before::File(file),
            None => Before::Nothing,
        };
        let prepared = self.lock().map_or(Ok(()), |mut kept| kept.store.prepare());
        let name = prepared.and_then(|()| Store::write_rows(&dir, it, id, rows, before));
        name.map(Some).map_err(|error| {
            let name = map.name();
            Refusal::failed(format!("map {name}: it can't be saved, and nothing changed: {error}"))
        })
    }

    /// The lock for changes of a map.
    fn turn(&self, map: u32) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(map).or_default())
    }

    /// Takes over the files and changes of restored maps.
    pub(crate) fn adopt(&self, restored: Restored) {
        let Some(mut kept) = self.lock() else { return };
        kept.programs.extend(restored.retired);
        for RestoredMap { map, program, contents, changes } in restored.maps {
            kept.maps.insert(map.id(), (program, map.map().name().to_owned()));
            if let Some(contents) = contents {
                kept.contents.insert(map.id(), contents);
            }
            for change in changes {
                let def = map.map().def();
                let parsed = parse_element(def, &change.key, None, map.map().cpus());
                let Ok((Some(key), _)) = parsed else { continue };
                // A change by a user since the start is newer.
                let edits = kept.edits.get(&map.id());
                if edits.is_none_or(|edits| edits.get(&key).is_none_or(|edit| edit.is_old())) {
                    kept.edits.entry(map.id()).or_default().insert(key, Edit { number: 0, change });
                }
            }
        }
    }

    /// Saves the current state, unless it equals the last document.
    pub(crate) fn save(
        &self,
        live: &Live,
        wanted: &Wanted,
        objects: &ObjectFiles,
    ) -> Result<(), String> {
        let Some(mut kept) = self.lock() else { return Ok(()) };
        let document = kept.document(live, wanted);
        if kept.last.as_ref() == Some(&document) {
            return Ok(());
        }
        let saved = kept.store.save(document.clone(), objects);
        *self.pinned.lock() = document.pins();
        kept.last = saved.is_ok().then_some(document);
        saved.map_err(|error| error.to_string())
    }

    /// Locks the writing of contents.
    pub(crate) fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Flushes the journal, and returns the pinned maps.
    pub(crate) fn due(&self, live: &[(String, Object)]) -> Vec<Due> {
        let Some(kept) = self.lock() else { return Vec::new() };
        if let Err(error) = kept.store.sync() {
            tracing::warn!("[state]: {error}");
        }
        let mut due: Vec<Due> = Vec::new();
        for (_, object) in live {
            let Object::Map(map) = object else { continue };
            let (id, map) = (map.object().id(), map.object().map());
            if can_be_saved(map) && due.iter().all(|it| it.id != id) {
                due.push(Due { id, map: Arc::clone(map), number: kept.number });
            }
        }
        due
    }

    /// Writes contents of maps, which may take long. They are valid once the next document names
    /// them.
    pub(crate) fn write(&self, due: Vec<Due>) -> Vec<(Due, String)> {
        let Some(dir) = self.maps() else { return Vec::new() };
        let mut written = Vec::new();
        for due in due {
            match Store::write_contents(&dir, &due.map, due.id) {
                Ok(name) => written.push((due, name)),
                Err(error) => {
                    tracing::warn!("[state] map {}: can't be saved: {error}", due.map.name());
                }
            }
        }
        written
    }

    /// Notes written contents for the next document, and forgets edits that they include.
    pub(crate) fn take(&self, written: Vec<(Due, String)>) {
        let Some(mut kept) = self.lock() else { return };
        for (due, name) in written {
            if kept.loaded.get(&due.id).is_some_and(|number| *number > due.number) {
                // Rows that a user loaded meanwhile are newer, and saved.
                continue;
            }
            if let Err(error) = kept.store.name_contents(due.id, &name) {
                tracing::warn!("[state] map {}: can't be saved: {error}", due.map.name());
                continue;
            }
            kept.contents.insert(due.id, name);
            kept.forget_edits(&due);
        }
    }

    fn maps(&self) -> Option<PathBuf> {
        self.lock().map(|kept| kept.store.maps())
    }

    fn lock(&self) -> Option<MutexGuard<'_, Kept>> {
        Some(self.kept.as_ref()?.lock())
    }
}

impl Edit {
    /// Whether the edit was made before the daemon started.
    fn is_old(&self) -> bool {
        self.number == 0
    }
}

impl Kept {
    fn note(&mut self, map: u32, key: Vec<u8>, change: Change) {
        self.number += 1;
        let edit = Edit { number: self.number, change };
        self.edits.entry(map).or_default().insert(key, edit);
    }

    /// Adds the contents file of loaded rows to the journal, and forgets the edits that the rows
    /// replaced.
    fn take_rows(
        &mut self,
        map: &MapObject,
        rows: &Rows,
        is_replace: bool,
        name: String,
    ) -> io::Result<()> {
        let (id, it) = (map.id(), map.map());
        let mut edits = self.edits.get(&id).cloned().unwrap_or_default();
        edits.retain(|key, _| !is_replace && !rows.has(key));
        let number = self.number + 1;
        let is_older = |edit: &Edit| edit.number < number;
        assert!(edits.values().all(is_older), "edits come before the rows");
        if is_replace {
            // Deletions of these are kept, since configuration would bring the keys back.
            let absent = self.configured(it).into_iter().filter(|key| !rows.has(key));
            edits.extend(absent.map(|key| {
                let change = without(it, &key);
                (key, Edit { number, change })
            }));
        }
        let mut changes: Vec<&Edit> = edits.values().collect();
        changes.sort_by_key(|edit| edit.number);
        let changes = changes.into_iter().map(|edit| edit.change.clone()).collect();
        self.store.name_rows(id, &name)?;
        self.store
            .add(&Line { map: id, what: What::Contents { contents: name.clone(), changes } })?;
        self.number = number;
        self.loaded.insert(id, number);
        self.edits.insert(id, edits);
        self.contents.insert(id, name);
        Ok(())
    }

    /// Forgets edits that are included in a map's saved contents. Deletions of configured keys are
    /// kept, since the configuration would bring those back.
    fn forget_edits(&mut self, due: &Due) {
        let Some(mut edits) = self.edits.remove(&due.id) else { return };
        edits.retain(|_, edit| edit.number > due.number || edit.change.value.is_none());
        if edits.values().any(|edit| edit.number <= due.number) {
            let configured = self.configured(&due.map);
            edits.retain(|key, edit| {
                let is_gone = || due.map.user().lookup(key, 0).is_err();
                edit.number > due.number || configured.contains(key) && is_gone()
            });
        }
        self.edits.insert(due.id, edits);
    }

    /// Keys that the configuration stores in a map of that name, for any program.
    fn configured(&self, map: &Map) -> BTreeSet<Vec<u8>> {
        let defs = [map.def().clone()];
        let named = self.programs.values().filter_map(|state| {
            let contents = state.maps.as_ref()?.get(map.name())?;
            let only = std::iter::once((map.name().to_owned(), contents.clone())).collect();
            mapfile::parse(&only, &defs, map.cpus()).ok()
        });
        let steps = named.flatten().flat_map(|filling| filling.steps);
        steps.filter_map(|step| step.key).collect()
    }

    fn document(&mut self, live: &Live, wanted: &Wanted) -> Document {
        let (file, authors) = (State::clone(wanted.file()), wanted.claims());
        let wanted = wanted.state();
        let mut document =
            Document { file, wanted: State::clone(wanted), authors, ..Document::default() };
        let mut maps: BTreeMap<u32, SavedMap> = BTreeMap::new();
        let mut keys: BTreeMap<u32, String> = BTreeMap::new();
        for (key, program) in live.programs() {
            let meant = wanted.programs.iter().find(|state| state.key == *key);
            if meant.is_some_and(|state| !is_same_program(&program.state, state)) {
                document.running.push(program.state.clone());
            }
            keys.insert(program.id(), key.clone());
            self.programs.insert(program.id(), program.state.clone());
            let own = program.object.maps();
            for map in own.iter().filter(|map| !map.map().def().is_constant()) {
                let name = map.map().name().to_owned();
                self.maps.insert(map.id(), (program.id(), name.clone()));
                let saved = maps.entry(map.id()).or_default();
                saved.owners.push((key.clone(), name));
            }
        }
        for (path, object) in live.registry().pins() {
            self.pin(path, &object, live, (&mut document, &mut maps, &mut keys));
        }
        self.maps.retain(|id, _| maps.contains_key(id));
        let origins: Vec<u32> = self.maps.values().map(|(program, _)| *program).collect();
        self.programs.retain(|id, _| keys.contains_key(id) || origins.contains(id));
        self.move_edits(&maps, live);
        for (id, saved) in &mut maps {
            saved.id = *id;
            saved.contents = self.contents.get(id).cloned();
            let mut edits: Vec<&Edit> =
                self.edits.get(id).map(|edits| edits.values().collect()).unwrap_or_default();
            edits.sort_by_key(|edit| edit.number);
            saved.changes = edits.into_iter().map(|edit| edit.change.clone()).collect();
        }
        document.maps = maps.into_values().collect();
        live.still_returning(&mut document);
        document
    }

    /// Adds a pin to the document, with the objects that it alone keeps.
    fn pin(
        &self,
        path: String,
        object: &Object,
        live: &Live,
        (document, maps, keys): (
            &mut Document,
            &mut BTreeMap<u32, SavedMap>,
            &mut BTreeMap<u32, String>,
        ),
    ) {
        let mut key_of = |id: u32, document: &mut Document| {
            if let Some(key) = keys.get(&id) {
                return Some(key.clone());
            }
            let state = self.programs.get(&id)?;
            let taken = [&document.wanted.programs[..], &document.retired].concat();
            let key = free_key(&state.key, &taken);
            let (shared_maps, maps_of) = (BTreeMap::new(), None);
            document.retired.push(ProgramState {
                key: key.clone(),
                shared_maps,
                maps_of,
                ..state.clone()
            });
            keys.insert(id, key.clone());
            Some(key)
        };
        match object {
            Object::Map(map) => {
                let id = map.object().id();
                if !maps.contains_key(&id) {
                    // Maps that clients created have no object file to be restored from.
                    let Some((program, name)) = self.maps.get(&id) else { return };
                    let Some(key) = key_of(*program, document) else { return };
                    maps.entry(id).or_default().owners.push((key, name.clone()));
                }
                maps.entry(id).or_default().pins.push(path);
            }
            Object::Program(program) => {
                if let Some(key) = key_of(program.id(), document) {
                    document.program_pins.insert(path, key);
                }
            }
            Object::Link(link) => {
                let live = live.links().iter().find(|live| live.id == link.id());
                if let Some(live) = live {
                    document.link_pins.insert(path, live.attach.identity());
                }
            }
            Object::Btf(_) | Object::Stats => {}
        }
    }

    /// Makes a map inherit the contents file of the predecessor whose entries were copied to it.
    fn inherit(&mut self, id: u32, (key, name): &(String, String), file: String, live: &Live) {
        let program = live.programs().get(key);
        let Some(map) = program.and_then(|program| program.program.maps().by_name(name)) else {
            return;
        };
        let dir = self.store.maps();
        if fits(map, &dir.join(&file)) {
            self.contents.insert(id, file);
            return;
        }
        let written = Store::write_contents(&dir, map, id).and_then(|name| {
            self.store.name_contents(id, &name)?;
            Ok(name)
        });
        match written {
            Ok(name) => drop(self.contents.insert(id, name)),
            Err(error) => tracing::warn!("[state] map {name}: can't be saved: {error}"),
        }
    }

    /// Moves edits of a replaced map to its successor, if the entries were copied.
    fn move_edits(&mut self, maps: &BTreeMap<u32, SavedMap>, live: &Live) {
        let known: BTreeSet<u32> = self.edits.keys().chain(self.contents.keys()).copied().collect();
        let gone = known.into_iter().filter(|id| !maps.contains_key(id));
        for id in gone {
            let edits = self.edits.remove(&id).unwrap_or_default();
            let contents = self.contents.remove(&id);
            let place = self.last.iter().flat_map(|last| &last.maps).find(|map| map.id == id);
            let Some((key, name)) = place.and_then(|map| map.owners.first()) else { continue };
            let state = live.programs().get(key).map(|program| &program.state);
            let renamed = state.and_then(|state| state.map_rename.get(name));
            let is_copied = |state: &ProgramState| {
                renamed.is_some() || state.map_migrate.get(name) == Some(&MigrateState::Copy)
            };
            let owner = (key.clone(), renamed.unwrap_or(name).clone());
            let next = maps.iter().find(|(_, map)| map.owners.contains(&owner));
            if let (Some((next, _)), true) = (next, state.is_some_and(is_copied)) {
                let own = self.edits.entry(*next).or_default();
                edits.into_iter().for_each(|(key, edit)| {
                    own.entry(key).or_insert(edit);
                });
                if let (Some(name), false) = (contents, self.contents.contains_key(next)) {
                    self.inherit(*next, &owner, name, live);
                }
            }
        }
        self.contents.retain(|id, _| maps.contains_key(id));
        self.loaded.retain(|id, _| maps.contains_key(id));
    }
}

/// The deletion of an element; in arrays, its reset to zero.
fn without(map: &Map, key: &[u8]) -> Change {
    let zeroes = format!("{}{}", typed::HEX_PREFIX, hex(&vec![0; map.value_size() as usize]));
    let value = (map.kind().keys() == Keys::Index).then(|| zeroes.into());
    Change { key: typed::key_to_json(map.def(), key), value, port: None }
}

fn not_saved(map: &MapObject, error: &io::Error) -> Refusal {
    let name = map.map().name();
    Refusal::failed(format!("map {name}: it is done, and can't be saved: {error}"))
}

fn is_being_loaded(map: &MapObject) -> Refusal {
    let name = map.name();
    Refusal::conflict(format!("map {name} is being loaded: try again when that is done"))
}

/// Largest number of names in a message.
const LOST_SHOWN: usize = 5;
/// Longest times that the change of an element, and a load, wait for another change of the map.
const EDIT_WAIT_MAX: Duration = Duration::from_secs(2);
const LOAD_WAIT_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(EDIT_WAIT_MAX.as_nanos() < LOAD_WAIT_MAX.as_nanos(), "a load may take long");
