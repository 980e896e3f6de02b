//! What was saved and comes back: contents of maps, and pins, as soon as their programs are loaded
//! again and before they see a frame.

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
    /// Lets this come back with the programs that are loaded from now on.
    pub(crate) fn bring_back(&mut self, returning: Returning) {
        *self.returning.lock() = returning;
    }

    /// What came back since the last time.
    pub(crate) fn take_restored(&self) -> Restored {
        std::mem::take(&mut self.returning.lock().restored)
    }

    /// What did not come back is saved again as it is: its program may be loaded later.
    pub(crate) fn still_returning(&self, document: &mut Document) {
        let returning = self.returning.lock();
        let waiting = returning.maps.iter().filter(|map| map.made.is_none());
        document.maps.extend(waiting.map(|map| SavedMap { id: 0, ..map.saved.clone() }));
        document.retired.extend(returning.retired.iter().cloned());
        document.running.extend(returning.running.iter().cloned());
        document.program_pins.extend(returning.program_pins.clone());
        document.link_pins.extend(returning.link_pins.clone());
    }

    /// The program that ran under this key in place of the one that was wanted.
    pub(super) fn take_running(&self, key: &str) -> Option<ProgramState> {
        let running = &mut self.returning.lock().running;
        let at = running.iter().position(|state| state.key == key)?;
        Some(running.swap_remove(at))
    }

    /// It could not be loaded yet.
    pub(super) fn put_running_back(&self, state: ProgramState) {
        self.returning.lock().running.push(state);
    }

    /// Hashes of objects that what is there, or comes back, was made of.
    pub(crate) fn objects_in_use(&self) -> Vec<String> {
        let returning = self.returning.lock();
        let waiting = returning.retired.iter().chain(&returning.running);
        let there = self.programs.values().map(|live| &live.state);
        waiting.chain(there).map(|state| state.sha256.clone()).collect()
    }

    /// The map that another program of the saved ones made, if this one had it, too.
    pub(super) fn returned_map(&self, key: &str, def: &MapDef) -> Option<Arc<Map>> {
        let returning = self.returning.lock();
        let has = |it: &&ReturningMap| it.saved.is_of(key, &def.name);
        let map = returning.maps.iter().find(has)?.made.as_ref()?.map();
        let fields = map_fields(def, &self.env.kernel_btf);
        difference(map, def, &fields).is_none().then(|| Arc::clone(map))
    }

    /// Whether this program is the first to have a map again that was saved: it makes it, wherever
    /// it had it from.
    pub(super) fn returns(&self, key: &str, name: &str) -> bool {
        let returning = self.returning.lock();
        returning.maps.iter().any(|it| it.made.is_none() && it.saved.is_of(key, name))
    }

    /// Loads programs that are only pinned, or whose maps are.
    pub(super) fn load_retired(&mut self, report: &mut Report) {
        let retired = std::mem::take(&mut self.returning.lock().retired);
        for state in retired {
            // Pins keep what is wanted of it.
            match self.load(&state, None, report) {
                Ok(live) => self.returning.lock().restored.retired.push((live.id(), state)),
                Err(why) => {
                    report.fail(FailureCode::Pin, format!("pinned program {}", state.key), why);
                    self.returning.lock().retired.push(state);
                }
            }
        }
    }

    /// Gives a program's maps what was saved of them, and pins that it and they had.
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
            // What went makes room for what came.
            let gone = changes.iter().filter(|change| change.value.is_none());
            gone.for_each(|change| drop(self.change_again(&map, change)));
            let contents = contents.filter(|file| {
                let path = returning.dir.join(file);
                let loaded = map_file::load(map.map(), &path);
                let why = loaded.as_ref().err().map(ToString::to_string);
                if let Some(why) = why {
                    let aside = path.with_extension("aside");
                    // It is told either way.
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

    /// What could not come back with its program alone; and what nothing waits for any more.
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

    /// Stores or deletes an element as the user did.
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

    /// Something that was saved is lost, and is not looked for again: it is told until somebody
    /// has looked at it.
    fn tell_lost(&self, what: &str, why: String) {
        self.news.failed(FailureCode::Saved, &format!("saved {what}"), why);
    }
}

/// Its values are programs, maps or ports, which may not be there yet.
fn names_something(map: &MapObject) -> bool {
    let values = map.map().kind().values();
    matches!(values, Values::Program | Values::Map | Values::Device | Values::Cpu)
}

/// A map that is pinned by name is pinned already.
fn pin(registry: &Objects, path: &str, object: Object) -> Result<(), Errno> {
    if registry.pins().iter().any(|(other, _)| other == path) {
        return Ok(());
    }
    make_parents(registry, path).and_then(|()| registry.pin(path, object))
}
