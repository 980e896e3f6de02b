//! The saved state during a start: the parts that are restored, and those that are not yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use towpath_objects::MapObject;

use crate::model::saved::{Change, Document, SavedMap};
use crate::model::state::ProgramState;
use crate::model::thing::Identity;

/// The part of the saved state that has not been restored yet.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    /// Directory with the files of map contents.
    pub(super) dir: PathBuf,
    pub(super) maps: Vec<ReturningMap>,
    pub(super) retired: Vec<ProgramState>,
    /// Programs that ran in place of wanted ones.
    pub(super) running: Vec<ProgramState>,
    pub(super) program_pins: BTreeMap<String, String>,
    pub(super) link_pins: BTreeMap<String, Identity>,
    /// Elements that refer to programs, maps or ports which are still missing.
    pub(super) references: Vec<(Arc<MapObject>, Change)>,
    /// The part that was restored since [`Live::take_restored`](super::Live::take_restored) was
    /// last called.
    pub(super) restored: Restored,
}

#[derive(Debug)]
pub(super) struct ReturningMap {
    /// The saved map; owners that have the map again are removed.
    pub(super) saved: SavedMap,
    /// The map, once one of its owners has created it.
    pub(super) made: Option<Arc<MapObject>>,
}

/// Restored parts of the saved state.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Maps with restored contents.
    pub(crate) maps: Vec<RestoredMap>,
    /// Restored programs that are attached nowhere, but pinned themselves or by their maps; with
    /// ids.
    pub(crate) retired: Vec<(u32, ProgramState)>,
}

/// A map with restored contents.
#[derive(Debug)]
pub(crate) struct RestoredMap {
    /// The map.
    pub(crate) map: Arc<MapObject>,
    /// Id of the program for which the map was created.
    pub(crate) program: u32,
    /// Name of the file with the contents.
    pub(crate) contents: Option<String>,
    /// Changes made after the file was written.
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
