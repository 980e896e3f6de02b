//! Entries of device maps whose port is gone, or does not exist yet. Such entries go with their
//! port, as in the kernel; unlike in the kernel, they are stored again when the port returns, with
//! its new ifindex.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_objects::{MapObject, ProgramObject, Reference, Selector, Session};

use super::Live;
use super::parts::{LivePort, LostEntry, Target};
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::state::State;

impl Live {
    /// Notes an entry that cannot be stored since its port does not exist.
    pub(super) fn note_late(
        &self,
        map: &Arc<MapObject>,
        key: u32,
        ifindex: u32,
        program: Option<Arc<ProgramObject>>,
    ) {
        let (map, port) = (Arc::clone(map), Target::Device(ifindex));
        self.lost.lock().push(LostEntry { map, key, port, program });
    }

    /// Notes entries that refer to ports that are about to go, given with their ifindexes.
    pub(super) fn note_entries(&mut self, gone: &BTreeMap<String, u32>) {
        let by_ifindex: HashMap<u32, &String> =
            gone.iter().map(|(name, &ifindex)| (ifindex, name)).collect();
        let session = Session::new(&self.registry, 0);
        let is_device = |map: &Arc<MapObject>| map.map().kind().values() == Values::Device;
        for map in session.maps().into_iter().filter(is_device) {
            let targets = map.map().targets().into_iter();
            for (key, target) in targets {
                let Some(&port) = by_ifindex.get(&target.number) else { continue };
                let program = session.program(&Selector::Id(target.id)).ok();
                let (map, port) = (Arc::clone(&map), Target::Port(port.clone()));
                self.lost.lock().push(LostEntry { map, key, port, program });
            }
        }
    }

    /// Stores noted entries whose port is open, and reports the others. An entry is forgotten when
    /// its port, or its map's configuration, is no longer wanted.
    pub(super) fn store_again(&mut self, wanted: &State, report: &mut Report) {
        let lost = std::mem::take(&mut *self.lost.lock());
        for entry in lost {
            let LostEntry { map, key, port, program } = &entry;
            let has_map = |live: &super::parts::LiveProgram| {
                live.object.maps().iter().any(|it| Arc::ptr_eq(it, map))
            };
            let is_pinned = self.registry.pins().iter().any(|(_, object)| match object {
                towpath_objects::Object::Map(pinned) => Arc::ptr_eq(pinned.object(), map),
                _ => false,
            });
            let is_used = is_pinned || self.programs.values().any(has_map);
            // A client may have stored another entry meanwhile.
            if !is_used || !port.is_wanted(wanted) || map.map().target(*key).is_some() {
                continue;
            }
            let subject = format!("map {}[{key}]", map.map().name());
            let Some((name, live)) = self.find_target(port) else {
                report.fail(FailureCode::Map, subject, port.why_not());
                self.lost.lock().push(entry);
                continue;
            };
            let program = program.as_ref().map(|program| Selector::Id(program.id()));
            let to = Reference::Target { number: live.ifindex, program };
            let mut session = Session::new(&self.registry, 0);
            match session.refer(&Selector::Id(map.id()), &key.to_ne_bytes(), &to, 0) {
                Ok(()) => report.change(format!("{subject}: leads to port {name} {}", port.word())),
                Err(error) => {
                    report.fail(FailureCode::Map, subject, format!("port {name}: {error}"));
                    self.lost.lock().push(entry);
                }
            }
        }
    }

    /// The target's port, if it is open.
    fn find_target(&self, target: &Target) -> Option<(&String, &LivePort)> {
        let mut open = self.ports.iter().filter(|(_, live)| live.opened.is_some());
        open.find(|(name, live)| match target {
            Target::Port(port) => *name == port,
            Target::Device(ifindex) => live.ifindex == *ifindex,
        })
    }
}
