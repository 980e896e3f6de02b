//! The parts of a saved document: each port, program, attachment, map and pin is one, with a
//! checksum of its own. A damaged part is replaced by the same part of the previous document, else
//! by the version of the configuration file, else by an older version; all other parts stay.
//!
//! ```text
//! towpath-state 2
//! SUM {"serial": 7, "parts": [[{"list": "wanted/ports", "name": "p0"}, SUM], ...]}
//! SUM {"at": {"list": "wanted/ports", "name": "p0"}, "is": {...}}
//! ...
//! SUM {"serial": 7, "parts": ...}
//! ```
//!
//! The index is both the first and the last line with a checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use towpath_document::typed;

use super::lines::{checksum, line, whole};
use crate::model::saved::{Document, Line, What};
use crate::model::state;
use crate::model::state::UNREAD;

/// Errors in parsing a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text is something else, or lacks its beginning.
    #[error("it does not begin as a saved state does")]
    Foreign,
    /// A newer daemon wrote the document.
    #[error("it has version {0}, this daemon knows version {VERSION}")]
    Newer(u64),
    /// The text was truncated or changed.
    #[error("it was cut or changed: its checksum is another one")]
    Damaged,
    /// The text is intact, but its contents are invalid.
    #[error("{0}")]
    Wrong(String),
}

/// Identity of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Place {
    /// Path of the list or table, with slashes between names.
    list: String,
    /// Name of the part in the list.
    name: String,
}

impl Place {
    /// The same thing in the configuration file's state, for a part of the wanted state, and vice
    /// versa.
    fn twin(&self) -> Option<Place> {
        let (state, list) = self.list.split_at(self.list.find('/').unwrap_or(self.list.len()));
        let other = match state {
            "file" => "wanted",
            "wanted" => "file",
            _ => return None,
        };
        Some(Place { list: format!("{other}{list}"), name: self.name.clone() })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.list.starts_with("file") { ", as the file had it" } else { "" };
        let list = self.list.rsplit('/').next().unwrap_or_default();
        let kind = KINDS.iter().find(|kind| kind.0 == list).map_or("setting", |kind| kind.1);
        write!(f, "{kind} {}{of}", self.name)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Index {
    serial: u64,
    /// Identities of all parts, with their checksums.
    parts: Vec<(Place, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Part {
    at: Place,
    is: Json,
}

/// The intact parts of a document.
#[derive(Debug, Default)]
pub(super) struct Parts {
    index: Option<Index>,
    /// Number of intact copies of the index: two if nothing is damaged.
    indices: usize,
    whole: BTreeMap<Place, Json>,
    sums: BTreeMap<Place, String>,
    /// Number of damaged lines.
    damaged: usize,
    is_newer: Option<u64>,
}

/// A damaged part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hurt {
    /// Identity of the part.
    pub(super) place: Place,
    /// The substitute for the part.
    pub(super) instead: Instead,
}

/// Substitutes for damaged parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instead {
    /// The same part of the previous document.
    Same,
    /// The version of the configuration file, or for a part of that, the wanted version.
    Twin,
    /// The version before the last change.
    Before,
    /// A placeholder made from the name.
    Name,
    /// No substitute: the part is lost.
    Nothing,
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Instead::Same => "the document before has the same contents, nothing is lost",
            Instead::Twin => "the configuration's version is used",
            Instead::Before => "the version before the last change is used",
            Instead::Name => "only its name is known, and the frames that it filters are dropped",
            Instead::Nothing => "it is lost",
        })
    }
}

/// Formats a document as text.
pub(super) fn text(document: &Document) -> String {
    // Keys are strings, and numbers finite: the conversion to JSON does not fail.
    let json = serde_json::to_value(document).unwrap_or_default();
    let mut parts = Vec::new();
    split("", &json, &mut parts);
    let mut index = Index { serial: document.serial, parts: Vec::new() };
    let mut lines = String::new();
    for (at, is) in parts {
        let text = serde_json::to_string(&Part { at: at.clone(), is }).unwrap_or_default();
        index.parts.push((at, checksum(&text)));
        lines.push_str(&line(&text));
    }
    let index = line(&serde_json::to_string(&index).unwrap_or_default());
    format!("{MAGIC} {VERSION}\n\n{index}{lines}{index}")
}

impl Parts {
    /// Reads the intact parts of a text.
    pub(super) fn read(bytes: &[u8]) -> Parts {
        let head = format!("{MAGIC} ");
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let version = std::str::from_utf8(first).ok().and_then(|line| line.strip_prefix(&head));
        let version = version.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
        let (lines, damaged) = whole(bytes);
        let is_newer = version.filter(|version| *version > VERSION);
        // The first line has no checksum, and is not a part.
        let mut parts = Parts { damaged: damaged.saturating_sub(1), is_newer, ..Parts::default() };
        if version != Some(VERSION) {
            parts.damaged += 1;
        }
        for line in lines {
            if let Ok(part) = serde_json::from_str::<Part>(line) {
                parts.sums.insert(part.at.clone(), checksum(line));
                parts.whole.insert(part.at, part.is);
            } else if let Ok(index) = serde_json::from_str(line) {
                parts.index = Some(index);
                parts.indices += 1;
            } else {
                parts.damaged += 1;
            }
        }
        parts
    }

    /// The parts of a document of version 1, which is intact as a whole or not at all.
    pub(super) fn of(first: Result<Document, DocumentError>) -> Parts {
        first.map_or_else(|_damaged| Parts::default(), |it| Parts::read(text(&it).as_bytes()))
    }

    /// Applies a line of the journal.
    pub(super) fn add(&mut self, line: &Line) {
        let maps = self.whole.iter_mut().filter(|(place, _)| place.list == "maps");
        for (_, map) in maps.filter(|(_, map)| map["id"] == line.map) {
            match (&line.what, &mut map["changes"]) {
                (What::Element { change }, Json::Array(changes)) => changes.push(json!(change)),
                (What::Element { change }, none) => *none = json!([change]),
                (What::Contents { contents, changes }, old) => {
                    *old = json!(changes);
                    map["contents"] = json!(contents);
                }
            }
        }
    }

    /// The serial number, if an index is intact.
    pub(super) fn index(&self) -> Option<u64> {
        self.index.as_ref().map(|index| index.serial)
    }

    /// Whether no part is intact.
    pub(super) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.index.is_none()
    }

    /// Whether a line is damaged or missing.
    pub(super) fn is_hurt(&self) -> bool {
        self.damaged > 0 || self.indices != 2
    }

    /// The version, if a newer daemon wrote the document.
    pub(super) fn newer(&self) -> Option<u64> {
        self.is_newer.filter(|_| self.is_empty())
    }

    /// The document, if it is completely intact.
    pub(super) fn document(&self) -> Result<Document, DocumentError> {
        if let Some(version) = self.newer() {
            return Err(DocumentError::Newer(version));
        }
        if self.is_empty() {
            return Err(DocumentError::Foreign);
        }
        let (document, hurt) = self.recover(&Parts::default())?;
        if self.is_hurt() || !hurt.is_empty() {
            return Err(DocumentError::Damaged);
        }
        for state in [&document.file, &document.wanted] {
            if let Some(problem) = state.problems().into_iter().next() {
                return Err(DocumentError::Wrong(problem.to_string()));
            }
        }
        Ok(document)
    }

    /// The document with substitutes for damaged parts, and the list of these.
    pub(super) fn recover(&self, before: &Parts) -> Result<(Document, Vec<Hurt>), DocumentError> {
        let (mut root, mut hurt) = (json!({}), Vec::new());
        for (place, sum) in self.places(before) {
            if let Some(part) = self.whole.get(&place) {
                put(&mut root, &place, part.clone());
                continue;
            }
            let is_same = before.sums.get(&place) == Some(&sum);
            let old = before.whole.get(&place).cloned();
            let same = old.clone().filter(|_| is_same).map(|part| (part, Instead::Same));
            let found = same.or_else(|| Some((self.twin(&place)?, Instead::Twin)));
            let found = found.or_else(|| Some((old?, Instead::Before)));
            let found = found.or_else(|| Some((stand_in(&place)?, Instead::Name)));
            let instead = found.as_ref().map_or(Instead::Nothing, |found| found.1);
            if let Some((part, _)) = found {
                put(&mut root, &place, part);
            }
            hurt.push(Hurt { place, instead });
        }
        let serial = self.index.as_ref().map(|index| index.serial);
        let next = before.index.as_ref().map(|index| index.serial + 1);
        root[SERIAL] = serial.or(next).unwrap_or_default().into();
        for state in ["file", "wanted"] {
            if root[state]["version"].is_null() {
                root[state]["version"] = state::VERSION.into();
            }
        }
        let document = typed(root).map_err(|problem| DocumentError::Wrong(problem.to_string()))?;
        Ok((document, hurt))
    }

    /// Identities of all parts, in order. Without an intact index, all known parts are listed, and
    /// everything in the configuration file's state counts as wanted.
    fn places(&self, before: &Parts) -> Vec<(Place, String)> {
        if let Some(index) = &self.index {
            return index.parts.clone();
        }
        let known = before.index.iter().flat_map(|index| index.parts.clone());
        let mut places: Vec<_> = known.collect();
        for (place, sum) in &self.sums {
            if places.iter().all(|(known, _)| known != place) {
                places.push((place.clone(), sum.clone()));
            }
        }
        let is_files = |place: &&Place| place.list.split('/').next() == Some("file");
        let twins = self.whole.keys().filter(is_files).filter_map(Place::twin);
        let twins = twins.filter(|twin| places.iter().all(|(known, _)| known != twin));
        let twins: Vec<_> = twins.map(|twin| (twin, String::new())).collect();
        places.extend(twins);
        places
    }

    /// The intact version of the same thing in the configuration file's state, or in the wanted
    /// state. It has precedence over an older version: a wanted thing either equals the file's, or
    /// becomes so at the next reload. An older version would stay although no author wants it.
    fn twin(&self, place: &Place) -> Option<Json> {
        self.whole.get(&place.twin()?).cloned()
    }
}

/// A placeholder for a thing of which only the name is known. Filters must not vanish: a program
/// that cannot be loaded shuts its ports, and an attachment is fully described by its name.
fn stand_in(place: &Place) -> Option<Json> {
    let name = &place.name;
    match place.list.as_str() {
        "wanted/attachments" => {
            let mut words = name.splitn(3, ' ');
            let (port, hook, program) = (words.next()?, words.next()?, words.next()?);
            Some(json!({ "port": port, "hook": hook, "program": program }))
        }
        "wanted/programs" => {
            Some(json!({ "key": name, "object": format!("{name} (lost)"), "sha256": UNREAD }))
        }
        "wanted/ports" => Some(json!({ "name": name, "kind": "sink", "up": false })),
        "wanted/bridges" => Some(json!({ "name": name })),
        _ => None,
    }
}

/// Splits JSON into parts.
fn split(path: &str, json: &Json, parts: &mut Vec<(Place, Json)>) {
    let place = |name: &str| Place { list: path.to_owned(), name: name.to_owned() };
    if let Json::Array(items) = json {
        let mut taken = BTreeSet::new();
        for item in items {
            let name = name_of(item);
            let numbered = (2..).map(|number: u32| format!("{name}#{number}"));
            let mut names = std::iter::once(name.clone()).chain(numbered);
            let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
            parts.push((place(&name), item.clone()));
            taken.insert(name);
        }
    }
    for (name, member) in json.as_object().into_iter().flatten() {
        let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        let is_list = LISTS.contains(&inner.as_str()) && member.is_array();
        let is_table = TABLES.contains(&inner.as_str()) && member.is_object();
        if is_list || is_table {
            split(&inner, member, parts);
        } else if inner != SERIAL {
            parts.push((place(name), member.clone()));
        }
    }
}

/// Name of an item in a list.
fn name_of(item: &Json) -> String {
    let word = |key: &str| item[key].as_str().map(str::to_owned);
    let attachment = || {
        let (port, hook, program) = (word("port")?, word("hook")?, word("program")?);
        Some(format!("{port} {hook} {program}"))
    };
    let map = || {
        let owner = &item["owners"][0];
        Some(format!("{} of {}", owner[1].as_str()?, owner[0].as_str()?))
    };
    let name = word("key").or_else(|| word("name")).or_else(attachment).or_else(map);
    name.unwrap_or_default()
}

/// Inserts a part at its place.
fn put(root: &mut Json, place: &Place, part: Json) {
    let words = place.list.split('/').filter(|word| !word.is_empty());
    let at = words.fold(root, |json, word| &mut json[word]);
    if !LISTS.contains(&place.list.as_str()) {
        at[place.name.as_str()] = part;
    } else if let Json::Array(items) = at {
        items.push(part);
    } else {
        *at = json!([part]);
    }
}

/// Key of the serial number, which is part of the index.
const SERIAL: &str = "serial";
/// Lists whose items are parts.
const LISTS: [&str; 15] = [
    "file/attachments",
    "file/bridges",
    "file/policies",
    "file/ports",
    "file/programs",
    "file/sas",
    "maps",
    "retired",
    "running",
    "wanted/attachments",
    "wanted/bridges",
    "wanted/policies",
    "wanted/ports",
    "wanted/programs",
    "wanted/sas",
];
/// Tables whose members are parts.
const TABLES: [&str; 4] = ["file", "link_pins", "program_pins", "wanted"];
/// Words for items of lists, in messages.
const KINDS: [(&str, &str); 11] = [
    ("attachments", "attachment"),
    ("bridges", "bridge"),
    ("link_pins", "pin"),
    ("maps", "map"),
    ("policies", "policy"),
    ("ports", "port"),
    ("program_pins", "pin"),
    ("programs", "program"),
    ("retired", "program"),
    ("running", "program"),
    ("sas", "sa"),
];

pub(super) const MAGIC: &str = "towpath-state";
/// Version of the format of the directory.
pub(super) const VERSION: u64 = 2;

#[cfg(test)]
mod tests;
