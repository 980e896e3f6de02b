//! A TOML text as JSON, with the place of each key.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed text.
#[derive(Debug, Clone)]
pub struct Document {
    /// The contents.
    pub json: Map<String, Json>,
    text: String,
    /// Offset of each key in the text; line and column are computed on demand.
    offsets: BTreeMap<String, usize>,
}

/// Line and column, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Document {
    /// Parses TOML.
    ///
    /// # Errors
    ///
    /// Fails if the text is not TOML, with the place of the mistake.
    pub fn parse(text: &str) -> Result<Document, (Option<Position>, String)> {
        let failed = |error: &toml::de::Error| {
            let place = error.span().map(|span| place(text, span.start));
            (place, error.message().replace('\n', ", "))
        };
        let table = DeTable::parse(text).map_err(|error| failed(&error))?;
        let mut reader = Reader { text, offsets: BTreeMap::new() };
        let json = reader.table("", table.get_ref())?;
        Ok(Document { json, text: text.to_owned(), offsets: reader.offsets })
    }

    /// The place of the value at a path, or else of the innermost known value around it.
    pub fn place(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(&offset) = self.offsets.get(path) {
                return Some(place(&self.text, offset));
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    offsets: BTreeMap<String, usize>,
}

type Failed = (Option<Position>, String);

impl Reader<'_> {
    fn table(&mut self, path: &str, table: &DeTable<'_>) -> Result<Map<String, Json>, Failed> {
        let mut map = Map::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            // A table has no text of its own to point to, so its key is recorded.
            self.offsets.insert(path.clone(), key.span().start);
            map.insert(name, self.value(&path, value)?);
        }
        Ok(map)
    }

    fn value(&mut self, path: &str, value: &Spanned<DeValue<'_>>) -> Result<Json, Failed> {
        let text = self.text;
        let here = || place(text, value.span().start);
        let number = |what: &str| (Some(here()), format!("{path}: {what} is too large"));
        Ok(match value.get_ref() {
            DeValue::String(text) => Json::String(text.to_string()),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                Json::from(parsed.map_err(|_out_of_range| number(integer.as_str()))?)
            }
            DeValue::Float(float) => {
                let parsed = float.as_str().replace('_', "").parse::<f64>().unwrap_or(f64::NAN);
                if !parsed.is_finite() {
                    return Err((
                        Some(here()),
                        format!("{path}: {} is not a number", float.as_str()),
                    ));
                }
                Json::from(parsed)
            }
            DeValue::Boolean(value) => Json::Bool(*value),
            DeValue::Datetime(date) => Json::String(date.to_string()),
            DeValue::Array(list) => {
                let mut items = Vec::with_capacity(list.len());
                for (index, item) in list.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.offsets.insert(path.clone(), item.span().start);
                    items.push(self.value(&path, item)?);
                }
                Json::Array(items)
            }
            DeValue::Table(table) => Json::Object(self.table(path, table)?),
        })
    }
}

fn place(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    Position { line, column: before[start..].chars().count() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line() {
        let text = "a = 1\n[b]\nc = [1,\n  2]\n[[d]]\ne = 0x10\n";
        let document = Document::parse(text).expect("it is TOML");
        assert_eq!(document.json["d"][0]["e"], 16);
        assert_eq!(document.place("b.c[1]"), Some(Position { line: 4, column: 3 }));
        assert_eq!(document.place("d[0].e.f").map(|place| place.line), Some(6));
        assert_eq!(document.place("nowhere"), None);
    }

    #[test]
    fn what_is_no_toml_is_placed() {
        let (place, message) = Document::parse("a = 1\nb = \n").expect_err("no value");
        assert_eq!(place.map(|place| place.line), Some(2), "{message}");
        assert!(Document::parse("a = 99999999999999999999").is_err());
        let (_place, message) = Document::parse("a = nan").expect_err("no number");
        assert_eq!(message, "a: nan is not a number");
    }
}
