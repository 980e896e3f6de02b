//! Conversion of JSON to a type, with mistakes described in the terms of the document.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use serde_path_to_error::{Deserializer, Path, Segment, Track};
use towpath_bpf::suggest;

use crate::problem::Problem;
use crate::toml::{Document, Position};

/// Converts JSON to a type. A mistake is reported by its path, with the expected value.
///
/// # Errors
///
/// Fails with the first key or value that does not fit.
pub fn typed<T: DeserializeOwned>(json: Json) -> Result<T, Problem> {
    let (path, error) = match read(json.clone()) {
        Ok(value) => return Ok(value),
        Err(wrong) => wrong,
    };
    let no_word = NO_WORDS.iter().find_map(|end| error.strip_suffix(end));
    let message = match no_word {
        Some(found) => match words::<T>(json, &path) {
            Some(words) => {
                let found = found.trim_start_matches("invalid type: ");
                let found = found.trim_start_matches("invalid value: ");
                format!("expected one of {}, not {}", quoted(&words), self::found(found))
            }
            None => said(&error),
        },
        None => said(&error),
    };
    let path = path.to_string();
    Err(Problem::new(if path == "." { String::new() } else { path }, message))
}

/// Converts a text to a type: JSON if it begins like an object, else TOML.
///
/// # Errors
///
/// Fails with the mistake, and with its line if that is known.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let told = |place: Option<Position>, message: String| match place {
        Some(Position { line, column }) => format!("line {line}, column {column}: {message}"),
        None => message,
    };
    if text.trim_start().starts_with('{') {
        let json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        return typed(json).map_err(|problem| problem.to_string());
    }
    let document = Document::parse(text).map_err(|(place, message)| told(place, message))?;
    typed(document.json.clone().into())
        .map_err(|problem| told(document.place(&problem.path), problem.to_string()))
}

/// The value, or the path of a mistake and serde's message.
fn read<T: DeserializeOwned>(json: Json) -> Result<T, (Path, String)> {
    let mut track = Track::new();
    let read = T::deserialize(Deserializer::new(json, &mut track));
    read.map_err(|error| (track.path(), error.to_string()))
}

/// The words that are valid at a path, taken from serde's message about an invalid word.
fn words<T: DeserializeOwned>(mut json: Json, path: &Path) -> Option<Vec<String>> {
    let mut at = &mut json;
    for segment in path {
        at = match segment {
            Segment::Seq { index } => at.get_mut(index)?,
            Segment::Map { key } => at.get_mut(key)?,
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    *at = Json::from(NO_WORD);
    let (_path, error) = read::<T>(json).err()?;
    let (what, known) = error.split_once(", expected ")?;
    what.contains(NO_WORD).then(|| known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Translates a message of serde into the terms of the document.
fn said(message: &str) -> String {
    if let Some(key) = message.strip_prefix("missing field `") {
        return format!("the key \"{}\" is missing", key.trim_end_matches('`'));
    }
    if let Some(key) = message.strip_prefix("duplicate field `") {
        return format!("\"{}\" is there twice", key.trim_end_matches('`'));
    }
    if message.starts_with("invalid IP") {
        return "expected an IP address, like \"192.0.2.1\" or \"2001:db8::1\"".to_owned();
    }
    let Some((what, wanted)) = message.split_once(", expected ") else { return message.to_owned() };
    for prefix in ["invalid type: ", "invalid value: "] {
        if let Some(what) = what.strip_prefix(prefix) {
            return format!("expected {}, not {}", expected(wanted), found(what));
        }
    }
    if let Some(count) = what.strip_prefix("invalid length ") {
        let count = if wanted.starts_with("struct ") { "a list" } else { count };
        return format!("expected {}, not {count}", expected(wanted));
    }
    slip(what, wanted).unwrap_or_else(|| message.to_owned())
}

/// Translates ``unknown field `x` ``, and lists the existing fields.
fn slip(what: &str, known: &str) -> Option<String> {
    let mut quoted = what.split('`');
    let (kind, wanted) = (quoted.next()?, quoted.next()?);
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let kind = kind.trim().replace("field", "key").replace("variant", "word");
    (!known.is_empty()).then(|| format!("{kind} \"{wanted}\"{}", suggest::among(wanted, known)))
}

/// The value that was found, from serde's description of it.
fn found(what: &str) -> String {
    match what.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("boolean" | "integer", value)) => value.trim_matches('`').to_owned(),
        Some(("floating", value)) => {
            value.trim_start_matches("point ").trim_matches('`').to_owned()
        }
        _ if what == "sequence" => "a list".to_owned(),
        _ if what == "map" => "a table".to_owned(),
        _ => "nothing".to_owned(),
    }
}

/// The expected value, from serde's description of it.
fn expected(wanted: &str) -> String {
    let bits = |digits: &str| digits.parse::<u32>().ok().filter(|bits| *bits < 64);
    if let Some(bits) = wanted.strip_prefix('u').and_then(bits) {
        return format!("a whole number from 0 to {}", (1_u64 << bits) - 1);
    }
    let known = match wanted {
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" | "a borrowed string" | "string" => "a text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        _ if wanted.starts_with("struct ") => "a table",
        "IPv4 address" => "an IPv4 address, like \"192.0.2.1\"",
        "IPv6 address" => "an IPv6 address, like \"2001:db8::1\"",
        _ if wanted.contains("IP address") => {
            "an IP address, like \"192.0.2.1\" or \"2001:db8::1\""
        }
        _ => wanted.strip_prefix("expected ").unwrap_or(wanted),
    };
    known.to_owned()
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// Ends of serde's messages where a word is expected but another type was found: serde lists the
/// valid words only if it finds a word.
const NO_WORDS: [&str; 2] = [", expected string or map", ", expected map with a single key"];
/// A text that is no word of any enumeration.
const NO_WORD: &str = "\u{1}";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        #[serde(rename = "name")]
        _name: String,
        #[serde(default, rename = "parts")]
        _parts: BTreeMap<String, Part>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Part {
        word: Option<Word>,
        byte: u8,
        large: u64,
        pair: Option<[i32; 2]>,
        share: f64,
        is: bool,
        list: Vec<String>,
        address: Option<IpAddr>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
        Two,
    }

    #[track_caller]
    fn assert_said(json: Json, expected: &str) {
        assert_eq!(typed::<Table>(json).expect_err("it does not fit").to_string(), expected);
    }

    #[test]
    fn what_does_not_fit_is_told_without_words_of_ours() {
        typed::<Table>(json!({"name": "", "parts": {"a": {"word": "two"}}})).expect("it fits");
        assert_said(json!({}), "the key \"name\" is missing");
        assert_said(json!([]), "expected a table, not a list");
        assert_said(json!(7), "expected a table, not 7");
        assert_said(json!({"nam": 1}), "nam: unknown key \"nam\"; did you mean \"name\"?");
        let cases = [
            (json!({"word": "three"}), "word: unknown word \"three\"; there are: one, two"),
            (json!({"word": {}}), "word: expected one of \"one\", \"two\", not a table"),
            (json!({"word": 1}), "word: expected one of \"one\", \"two\", not 1"),
            (json!({"byte": 256}), "byte: expected a whole number from 0 to 255, not 256"),
            (
                json!({"byte": "x"}),
                "byte: expected a whole number from 0 to 255, not the text \"x\"",
            ),
            (json!({"large": -1}), "large: expected a whole number, 0 or more, not -1"),
            (json!({"large": 1.5}), "large: expected a whole number, 0 or more, not 1.5"),
            (json!({"pair": [1]}), "pair: expected an array of length 2, not 1"),
            (json!({"share": {}}), "share: expected a number, not a table"),
            (json!({"is": []}), "is: expected true or false, not a list"),
            (json!({"list": true}), "list: expected a list, not true"),
            (json!({"list": [null]}), "list[0]: expected a text in quotes, not nothing"),
            (
                json!({"address": "1.2.3"}),
                "address: expected an IP address, like \"192.0.2.1\" or \"2001:db8::1\"",
            ),
        ];
        for (part, expected) in cases {
            assert_said(json!({"name": "", "parts": {"a": part}}), &format!("parts.a.{expected}"));
        }
    }
}
