//! What is saved, as data: what was wanted, pins, and what users put into maps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::model::authors::Claim;
use crate::model::state::{ProgramState, State};
use crate::model::thing::Identity;

/// Everything that is not in files of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Which journal goes on from here.
    pub serial: u64,
    /// What the configuration file wanted when it was read last. A start is a reload: what differs
    /// in the file since then is made, and everything else stays.
    pub file: State,
    /// What was wanted.
    pub wanted: State,
    /// Who wanted it besides the configuration file. Documents of earlier versions don't say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<Claim>,
    /// Programs that run nowhere any more, and are there because they or their maps are pinned.
    #[serde(default)]
    pub retired: Vec<ProgramState>,
    /// Programs that run in place of the wanted ones of the same keys, which were refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<ProgramState>,
    /// Maps of all of these programs.
    #[serde(default)]
    pub maps: Vec<SavedMap>,
    /// Pins of programs: their keys by path.
    #[serde(default)]
    pub program_pins: BTreeMap<String, String>,
    /// Pins of links: what they were, by path.
    #[serde(default)]
    pub link_pins: BTreeMap<String, Identity>,
}

/// A map, and what is known of its contents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedMap {
    /// The id that it had: the journal names it so.
    pub id: u32,
    /// Keys of the programs that have it, and what it is called there.
    pub owners: Vec<(String, String)>,
    /// Paths of its pins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
    /// The file with its contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// What users changed since, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl SavedMap {
    /// Adds what the journal says of it.
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
    /// Its key.
    pub key: Json,
    /// Its value; nothing when it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// The port that its ifindex stands for: that may be another one next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The map's id, as the document has it.
    pub map: u32,
    /// What became of it.
    #[serde(flatten)]
    pub what: What,
}

/// What became of a map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum What {
    /// An element was stored or deleted.
    Element {
        /// The element.
        change: Change,
    },
    /// Many were, at once.
    Contents {
        /// The file with what it has now.
        contents: String,
        /// What users had changed beyond that, in this order.
        changes: Vec<Change>,
    },
}

impl Line {
    /// The file that it names.
    pub(crate) fn file(&self) -> Option<String> {
        match &self.what {
            What::Element { .. } => None,
            What::Contents { contents, .. } => Some(contents.clone()),
        }
    }
}
