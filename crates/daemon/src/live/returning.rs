//! Restoration of saved map contents and pins, as soon as their programs are loaded and before
//! these see a frame.

use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::Map;
use towpath_maps::shape::difference;
use towpath_objects::{MapObject, MapUse, Object, Objects, ProgramObject, Session};
use towpath_xdp::program::map_fields;

use super::Live;
use super::report::Report;
use super::returned::{Restored, RestoredMap, Returning, ReturningMap};
use crate::live::elements;
use crate::live::map_file;
use crate::live::pins::make_parents;
use crate::model::failure::FailureCode;
use crate::model::messages::EntryRequest;
use crate::model::refusal::Reason;
use crate::model::saved::{Change, Document, SavedMap};
use crate::model::state::{AttachState, ProgramState, State};
use crate::model::thing::Identity;

impl Live {
    /// Sets the state to be restored with the programs that are loaded from now on.
    pub(crate) fn bring_back(&mut self, returning: Returning) {
        *self.returning.lock() = returning;
    }

    /// Takes the parts that were restored since the last call.
    pub(crate) fn take_restored(&self) -> Restored {
        std::mem::take(&mut self.returning.lock().restored)
    }

    /// Adds the parts that are not restored to the document to be saved, since their programs may
    /// be loaded later.
    pub(crate) fn still_returning(&self, document: &mut Document) {
        let returning = self.returning.lock();
        let waiting = returning.maps.iter().filter(|map| map.made.is_none());
        document.maps.extend(waiting.map(|map| SavedMap { id: 0, ..map.saved.clone() }));
        document.retired.extend(returning.retired.iter().cloned());
        document.running.extend(returning.running.iter().cloned());
        document.program_pins.extend(returning.program_pins.clone());
        document.link_pins.extend(returning.link_pins.clone());
    }

    /// Takes the saved program that ran under this key in place of the wanted one.
    pub(super) fn take_running(&self, key: &str) -> Option<ProgramState> {
        let running = &mut self.returning.lock().running;
        let at = running.iter().position(|state| state.key == key)?;
        Some(running.swap_remove(at))
    }

    /// Puts back a program that could not be loaded.
    pub(super) fn put_running_back(&self, state: ProgramState) {
        self.returning.lock().running.push(state);
    }

    /// Hashes of the object files of all programs that are loaded or to be restored.
    pub(crate) fn objects_in_use(&self) -> Vec<String> {
        let returning = self.returning.lock();
        let waiting = returning.retired.iter().chain(&returning.running);
        let there = self.programs.values().map(|live| &live.state);
        waiting.chain(there).map(|state| state.sha256.clone()).collect()
    }

    /// The restored map that another program created, if this program owned the map, too.
    pub(super) fn returned_map(&self, key: &str, def: &MapDef) -> Option<Arc<Map>> {
        let returning = self.returning.lock();
        let has = |it: &&ReturningMap| it.saved.is_of(key, &def.name);
        let map = returning.maps.iter().find(has)?.made.as_ref()?.map();
        let fields = map_fields(def, &self.env.kernel_btf);
        difference(map, def, &fields).is_none().then(|| Arc::clone(map))
    }

    /// Whether this program owned a saved map that has not been created yet. The program then
    /// creates the map, even if it was shared from elsewhere before.
    pub(super) fn returns(&self, key: &str, name: &str) -> bool {
        let returning = self.returning.lock();
        returning.maps.iter().any(|it| it.made.is_none() && it.saved.is_of(key, name))
    }

    /// Loads saved programs that are attached nowhere, but pinned themselves or by their maps.
    pub(super) fn load_retired(&mut self, report: &mut Report) {
        let retired = std::mem::take(&mut self.returning.lock().retired);
        for state in retired {
            // Pins keep the program and its maps alive.
            match self.load(&state, None, report) {
                Ok(live) => self.returning.lock().restored.retired.push((live.id(), state)),
                Err(why) => {
                    report.fail(FailureCode::Pin, format!("pinned program {}", state.key), why);
                    self.returning.lock().retired.push(state);
                }
            }
        }
    }

    /// Restores contents and pins of a program's maps, and pins of the program.
    pub(super) fn fill_again(&self, key: &str, program: &Arc<ProgramObject>) {
        let mut returning = self.returning.lock();
        let returning = &mut *returning;
        for map in program.maps() {
            let name = map.map().name();
            let Some(found) = returning.maps.iter_mut().find(|it| it.saved.is_of(key, name)) else {
                continue;
            };
            found.saved.owners.retain(|owner| *owner != (key.to_owned(), name.to_owned()));
            if found.made.is_some() {
                continue;
            }
            found.made = Some(Arc::clone(&map));
            let pins = std::mem::take(&mut found.saved.pins);
            let changes = std::mem::take(&mut found.saved.changes);
            let contents = found.saved.contents.take();
            for path in &pins {
                self.pin_again(path, MapUse::new(Arc::clone(&map)).into());
            }
            // Deletions first, to make room for the other elements.
            let gone = changes.iter().filter(|change| change.value.is_none());
            gone.for_each(|change| drop(self.change_again(&map, change)));
            let contents = contents.filter(|file| {
                let path = returning.dir.join(file);
                let loaded = map_file::load(map.map(), &path);
                let why = loaded.as_ref().err().map(ToString::to_string);
                if let Some(why) = why {
                    let aside = path.with_extension("aside");
                    // The loss is reported even if renaming fails.
                    let _kept = std::fs::rename(&path, &aside);
                    let why = format!("{why}: what it held is kept as {}", aside.display());
                    self.tell_lost(&format!("map {name}"), why);
                }
                loaded.is_ok()
            });
            for change in &changes {
                match self.change_again(&map, change) {
                    Ok(()) => {}
                    Err(_) if names_something(&map) => {
                        returning.references.push((Arc::clone(&map), change.clone()));
                    }
                    Err(why) => {
                        self.tell_lost(&format!("map {name}[{}]", change.key), why);
                    }
                }
            }
            let program = program.id();
            returning.restored.maps.push(RestoredMap { map, program, contents, changes });
        }
        returning.maps.retain(|map| map.made.is_none() || !map.saved.owners.is_empty());
        let mine = |_: &String, owner: &mut String| owner == key;
        let pins: Vec<String> =
            returning.program_pins.extract_if(.., mine).map(|(path, _)| path).collect();
        for path in pins {
            self.pin_again(&path, Object::Program(Arc::clone(program)));
        }
    }

    /// Restores elements and link pins that need other objects, and drops saved parts for which no
    /// program is left.
    pub(super) fn finish_returning(&self, wanted: &State, report: &mut Report) {
        let mut returning = self.returning.lock();
        let references = std::mem::take(&mut returning.references);
        for (map, change) in references {
            if let Err(why) = self.change_again(&map, &change) {
                report.fail(
                    FailureCode::Map,
                    format!("map {}[{}]", map.map().name(), change.key),
                    why,
                );
                returning.references.push((map, change));
            }
        }
        for live in &self.links {
            let pin = live.attach.identity();
            let mine = |_: &String, it: &mut Identity| *it == pin;
            let paths: Vec<String> =
                returning.link_pins.extract_if(.., mine).map(|(path, _)| path).collect();
            for path in paths {
                self.pin_again(&path, Object::Link(Arc::clone(&live.object)));
            }
        }
        let keys: Vec<String> = wanted
            .programs
            .iter()
            .chain(&returning.retired)
            .map(|state| state.key.clone())
            .collect();
        for map in &mut returning.maps {
            map.saved.owners.retain(|(key, _)| keys.contains(key));
        }
        returning.maps.retain(|map| !map.saved.owners.is_empty());
        returning.running.retain(|state| keys.contains(&state.key));
        returning.program_pins.retain(|_, key| keys.contains(key));
        let kept: Vec<Identity> = wanted.attachments.iter().map(AttachState::identity).collect();
        returning.link_pins.retain(|_, pin| kept.contains(pin));
    }

    /// Repeats a user's change of an element.
    fn change_again(&self, map: &Arc<MapObject>, change: &Change) -> Result<(), String> {
        let mut session = Session::new(&self.registry, 0);
        let Change { key, value, port } = change;
        let mut request =
            EntryRequest { key: key.clone(), value: value.clone(), ..EntryRequest::default() };
        if let Some(port) = port {
            let found = self.ports.get(port).ok_or_else(|| format!("no port {port}"))?;
            match &mut request.value {
                Some(serde_json::Value::Object(object)) => {
                    object.insert("ifindex".to_owned(), found.ifindex.into());
                }
                value => *value = Some(found.ifindex.into()),
            }
        }
        let done = match request.value {
            Some(_) => elements::update(&mut session, map, &request),
            None => match elements::delete(&mut session, map, &request) {
                Err(error) if error.reason == Reason::Missing => Ok(()),
                done => done,
            },
        };
        done.map_err(|error| error.message)
    }

    fn pin_again(&self, path: &str, object: Object) {
        if let Err(errno) = pin(&self.registry, path, object) {
            self.tell_lost(&format!("pin {path}"), errno.to_string());
        }
    }

    /// Reports the final loss of a part of the saved state; the report stays until an operator acts
    /// on it.
    fn tell_lost(&self, what: &str, why: String) {
        self.news.failed(FailureCode::Saved, &format!("saved {what}"), why);
    }
}

/// Whether values refer to programs, maps or ports, which may not exist yet.
fn names_something(map: &MapObject) -> bool {
    let values = map.map().kind().values();
    matches!(values, Values::Program | Values::Map | Values::Device | Values::Cpu)
}

/// Pins an object, unless the path is pinned already, as for maps pinned by name.
fn pin(registry: &Objects, path: &str, object: Object) -> Result<(), Errno> {
    if registry.pins().iter().any(|(other, _)| other == path) {
        return Ok(());
    }
    make_parents(registry, path).and_then(|()| registry.pin(path, object))
}
