//! The text form of the saved document, which consists of parts with checksums (`parts.rs`).
//!
//! Documents of version 1 had one part: `towpath-state 1 SHA256-OF-THE-REST`, followed by JSON.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use towpath_document::typed;

use super::parts::{self, DocumentError, MAGIC, Parts};
use crate::live::files::sha256;
use crate::model::saved::Document;
use crate::model::state::ProgramState;

impl Document {
    /// Formats the document as text.
    pub fn text(&self) -> String {
        parts::text(self)
    }

    /// Parses an undamaged text.
    ///
    /// # Errors
    ///
    /// Fails as described at [`DocumentError`].
    pub fn parse(bytes: &[u8]) -> Result<Document, DocumentError> {
        Document::first(bytes).unwrap_or_else(|| Parts::read(bytes).document())
    }

    /// Parses a text of version 1; `None` for other versions.
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

    /// Paths of all pins in the document.
    pub(super) fn pins(&self) -> BTreeSet<String> {
        let maps = self.maps.iter().flat_map(|map| &map.pins);
        maps.chain(self.program_pins.keys()).chain(self.link_pins.keys()).cloned().collect()
    }

    /// Names of the object files and contents files that the document needs.
    pub(super) fn files(&self) -> BTreeSet<String> {
        let contents = self.maps.iter().filter_map(|map| map.contents.clone());
        self.programs().map(|program| program.sha256.clone()).chain(contents).collect()
    }

    /// Programs whose object files the document needs.
    pub(super) fn programs(&self) -> impl Iterator<Item = &ProgramState> {
        let wanted = self.wanted.programs.iter().chain(&self.file.programs);
        wanted.chain(&self.retired).chain(&self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::saved::{Change, SavedMap};
    use crate::model::state::State;

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
        // Version 1.
        let body = serde_json::to_string_pretty(&document).expect("it is JSON");
        let text = format!("{MAGIC} 1 {}\n{body}", sha256(body.as_bytes()));
        assert_eq!(Document::parse(text.as_bytes()), Ok(document));
        let changed = text.replacen("\"serial\": 3", "\"serial\": 4", 1);
        assert_eq!(Document::parse(changed.as_bytes()), Err(DocumentError::Damaged));
    }
}
