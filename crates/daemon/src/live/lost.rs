//! Entries of device maps whose port went: as in the kernel they go with it, and other than there
//! they are stored again when it is back, whatever its ifindex is then.

use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_objects::{MapObject, ProgramObject, Reference, Selector, Session};

use super::{Live, Report};
use crate::failure::FailureCode;
use crate::state::State;

/// An entry that led to a port.
#[derive(Debug)]
pub(super) struct LostEntry {
    map: Arc<MapObject>,
    key: u32,
    port: String,
    /// What ran there.
    program: Option<Arc<ProgramObject>>,
}

impl Live {
    /// Notes which entries lead to a port that goes.
    pub(super) fn note_entries(&mut self, port: &str, ifindex: u32) {
        let session = Session::new(&self.registry, 0);
        let is_device = |map: &Arc<MapObject>| map.map().kind().values() == Values::Device;
        for map in session.maps().into_iter().filter(is_device) {
            let targets = map.map().targets().into_iter();
            for (key, target) in targets.filter(|(_, target)| target.number == ifindex) {
                let program = session.program(&Selector::Id(target.id)).ok();
                let (map, port) = (Arc::clone(&map), port.to_owned());
                self.lost.push(LostEntry { map, key, port, program });
            }
        }
    }

    /// Stores them again where the port is back, and tells of the others: as long as the port, or
    /// the configuration of the map, is wanted.
    pub(super) fn store_again(&mut self, wanted: &State, report: &mut Report) {
        let lost = std::mem::take(&mut self.lost);
        for entry in lost {
            let LostEntry { map, key, port, program } = &entry;
            let has_map = |live: &super::LiveProgram| {
                live.object.maps().iter().any(|it| Arc::ptr_eq(it, map))
            };
            let is_pinned = self.registry.pins().iter().any(|(_, object)| match object {
                towpath_objects::Object::Map(pinned) => Arc::ptr_eq(pinned.object(), map),
                _ => false,
            });
            let is_used = is_pinned || self.programs.values().any(has_map);
            // Somebody may have stored another one meanwhile.
            if !is_used || wanted.port(port).is_none() || map.map().target(*key).is_some() {
                continue;
            }
            let subject = format!("map {}[{key}]", map.map().name());
            let found = self.ports.get(port).filter(|live| live.opened.is_some());
            let Some(live) = found else {
                let why = format!(
                    "it led to port {port}, which is not there: it is stored again with it"
                );
                report.fail(FailureCode::Map, subject, why);
                self.lost.push(entry);
                continue;
            };
            let program = program.as_ref().map(|program| Selector::Id(program.id()));
            let to = Reference::Target { number: live.ifindex, program };
            let mut session = Session::new(&self.registry, 0);
            match session.refer(&Selector::Id(map.id()), &key.to_ne_bytes(), &to, 0) {
                Ok(()) => report.change(format!("{subject}: leads to port {port} again")),
                Err(error) => {
                    report.fail(FailureCode::Map, subject, format!("port {port}: {error}"));
                    self.lost.push(entry);
                }
            }
        }
    }
}
