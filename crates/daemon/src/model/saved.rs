//! The saved state as data: the wanted state, pins, and changes of map contents by users.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::model::authors::Claim;
use crate::model::state::{ProgramState, State};
use crate::model::thing::Identity;

/// The main document: everything except map contents that have files of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Serial number of the journal that continues this document.
    pub serial: u64,
    /// The configuration file's state when it was last read. A start is a reload: changes in the
    /// file since then are applied, and everything else stays.
    pub file: State,
    /// The wanted state.
    pub wanted: State,
    /// Authors of things besides the configuration file. Documents of earlier versions lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<Claim>,
    /// Programs that are attached nowhere, but kept because they or their maps are pinned.
    #[serde(default)]
    pub retired: Vec<ProgramState>,
    /// Programs that run in place of wanted ones with the same keys, which were refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<ProgramState>,
    /// Maps of all of these programs.
    #[serde(default)]
    pub maps: Vec<SavedMap>,
    /// Keys of pinned programs, by pin path.
    #[serde(default)]
    pub program_pins: BTreeMap<String, String>,
    /// Identities of pinned links, by pin path.
    #[serde(default)]
    pub link_pins: BTreeMap<String, Identity>,
}

/// A map, and the saved part of its contents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMap {
    /// The map's id, by which the journal refers to it.
    pub id: u32,
    /// Keys of the programs that use the map, each with the map's name in that program.
    pub owners: Vec<(String, String)>,
    /// Paths of the map's pins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
    /// Name of the file with the map's contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// Changes by users since that file was written, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl SavedMap {
    /// Applies a line of the journal.
    pub(crate) fn add(&mut self, what: What) {
        match what {
            What::Element { change } => self.changes.push(change),
            What::Contents { contents, changes } => {
                (self.contents, self.changes) = (Some(contents), changes);
            }
        }
    }
}

/// An element that a user stored or deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The element's key.
    pub key: Json,
    /// The element's value; unset if it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The port of the ifindex in the value, because ifindexes may change between starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The map's id in the document.
    pub map: u32,
    /// The change of the map.
    #[serde(flatten)]
    pub what: What,
}

/// A change of a map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum What {
    /// An element was stored or deleted.
    Element {
        /// The element.
        change: Change,
    },
    /// Many elements changed at once.
    Contents {
        /// Name of the file with the new contents.
        contents: String,
        /// Changes by users since that file was written, in order.
        changes: Vec<Change>,
    },
}

impl Line {
    /// Name of the contents file that the change refers to.
    pub(crate) fn file(&self) -> Option<String> {
        match &self.what {
            What::Element { .. } => None,
            What::Contents { contents, .. } => Some(contents.clone()),
        }
    }
}
