//! What was saved before the daemon started: what did not come back yet, and what did.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use towpath_objects::MapObject;

use crate::model::saved::{Change, Document, SavedMap};
use crate::model::state::ProgramState;
use crate::model::thing::Identity;

/// What did not come back yet.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    /// Where contents lie.
    pub(super) dir: PathBuf,
    pub(super) maps: Vec<ReturningMap>,
    pub(super) retired: Vec<ProgramState>,
    /// Programs that ran in place of those that were wanted.
    pub(super) running: Vec<ProgramState>,
    pub(super) program_pins: BTreeMap<String, String>,
    pub(super) link_pins: BTreeMap<String, Identity>,
    /// Elements that name programs, maps or ports, which may come later.
    pub(super) references: Vec<(Arc<MapObject>, Change)>,
    /// What came back since it was asked for.
    pub(super) restored: Restored,
}

#[derive(Debug)]
pub(super) struct ReturningMap {
    /// Without owners that have it again.
    pub(super) saved: SavedMap,
    /// Made by the first of its owners.
    pub(super) made: Option<Arc<MapObject>>,
}

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Maps that have their contents again.
    pub(crate) maps: Vec<RestoredMap>,
    /// Programs that are only pinned, or whose maps are, by their ids.
    pub(crate) retired: Vec<(u32, ProgramState)>,
}

/// A map that has its contents again.
#[derive(Debug)]
pub(crate) struct RestoredMap {
    /// The map.
    pub(crate) map: Arc<MapObject>,
    /// The program that had it made.
    pub(crate) program: u32,
    /// The file that they came from.
    pub(crate) contents: Option<String>,
    /// What was changed since.
    pub(crate) changes: Vec<Change>,
}

impl Returning {
    pub(crate) fn new(document: Document, dir: PathBuf) -> Returning {
        let Document { maps, retired, running, program_pins, link_pins, .. } = document;
        let maps = maps.into_iter().map(|saved| ReturningMap { saved, made: None });
        let maps = maps.collect();
        Returning { dir, maps, retired, running, program_pins, link_pins, ..Returning::default() }
    }
}

impl SavedMap {
    pub(super) fn is_of(&self, key: &str, name: &str) -> bool {
        self.owners.iter().any(|owner| owner.0 == key && owner.1 == name)
    }
}
