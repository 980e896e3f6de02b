//! The saved document: what was wanted, and what pins and users put where, as text in parts that
//! have checksums (`parts.rs`).
//!
//! Documents of version 1 were one part: `towpath-state 1 SHA256-OF-THE-REST`, and JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use towpath_document::typed;

use super::journal::What;
use super::parts::{self, Parts};
use crate::file::sha256;
use crate::state::{Identity, ProgramState, State};

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
    pub(super) fn add(&mut self, what: What) {
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

/// Why a text is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is something else, or its beginning is missing.
    #[error("it does not begin as a saved state does")]
    Foreign,
    /// It was written by a newer daemon.
    #[error("it has version {0}, this daemon knows version {VERSION}")]
    Newer(u64),
    /// It was cut or changed.
    #[error("it was cut or changed: its checksum is another one")]
    Damaged,
    /// It is whole, and does not say what it should.
    #[error("{0}")]
    Wrong(String),
}

impl Document {
    /// As text.
    pub fn text(&self) -> String {
        parts::text(self)
    }

    /// Reads a text of which everything is whole.
    ///
    /// # Errors
    ///
    /// See [`DocumentError`].
    pub fn parse(bytes: &[u8]) -> Result<Document, DocumentError> {
        Document::first(bytes).unwrap_or_else(|| Parts::read(bytes).document())
    }

    /// Reads a text of version 1, if it is one.
    pub(super) fn first(bytes: &[u8]) -> Option<Result<Document, DocumentError>> {
        let head = format!("{MAGIC} 1 ");
        let text = bytes.strip_prefix(head.as_bytes())?;
        let line = text.iter().position(|byte| *byte == b'\n')?;
        let (sum, body) = (&text[..line], &text[line + 1..]);
        if sha256(body).as_bytes() != sum {
            return Some(Err(DocumentError::Damaged));
        }
        let wrong = |message: String| DocumentError::Wrong(message);
        let json = serde_json::from_slice::<Json>(body).map_err(|error| wrong(error.to_string()));
        Some(json.and_then(|json| typed(json).map_err(|problem| wrong(problem.to_string()))))
    }

    /// Paths of all pins that it brings back.
    pub(super) fn pins(&self) -> BTreeSet<String> {
        let maps = self.maps.iter().flat_map(|map| &map.pins);
        maps.chain(self.program_pins.keys()).chain(self.link_pins.keys()).cloned().collect()
    }

    /// Names of the files with objects and contents that it needs.
    pub(super) fn files(&self) -> BTreeSet<String> {
        let contents = self.maps.iter().filter_map(|map| map.contents.clone());
        self.programs().map(|program| program.sha256.clone()).chain(contents).collect()
    }

    /// Programs that need their objects.
    pub(super) fn programs(&self) -> impl Iterator<Item = &ProgramState> {
        let wanted = self.wanted.programs.iter().chain(&self.file.programs);
        wanted.chain(&self.retired).chain(&self.running)
    }
}

pub(super) const MAGIC: &str = "towpath-state";
/// Of the document and of what lies beside it.
pub(super) const VERSION: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_it_was_written_and_not_otherwise() {
        let change = Change { key: 1.into(), value: Some(2.into()), port: None };
        let owners = vec![("p".to_owned(), "m".to_owned())];
        let map = SavedMap { id: 7, owners, changes: vec![change], ..SavedMap::default() };
        let wanted = State::new();
        let document = Document {
            serial: 3,
            file: State::new(),
            wanted,
            maps: vec![map],
            ..Document::default()
        };
        let text = document.text();
        assert_eq!(Document::parse(text.as_bytes()), Ok(document.clone()));
        for len in 0..text.len() - 1 {
            let error = Document::parse(&text.as_bytes()[..len]).expect_err("it was cut");
            assert!(matches!(error, DocumentError::Foreign | DocumentError::Damaged), "{error}");
        }
        assert_eq!(Document::parse(b"towpath-state 3\n\nx"), Err(DocumentError::Newer(3)));
        let changed = text.replace("\"serial\":3", "\"serial\":4");
        assert_eq!(Document::parse(changed.as_bytes()), Err(DocumentError::Damaged));
        // As it was written before it had parts.
        let body = serde_json::to_string_pretty(&document).expect("it is JSON");
        let text = format!("{MAGIC} 1 {}\n{body}", sha256(body.as_bytes()));
        assert_eq!(Document::parse(text.as_bytes()), Ok(document));
        let changed = text.replacen("\"serial\": 3", "\"serial\": 4", 1);
        assert_eq!(Document::parse(changed.as_bytes()), Err(DocumentError::Damaged));
    }
}
