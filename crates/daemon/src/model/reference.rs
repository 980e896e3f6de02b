//! Map elements that refer to programs and maps, as JSON.
//!
//! ```text
//! 7   "egress"   {"id": 7}   {"name": "egress"}   {"tag": "b424cb1e9fdf5fe3"}
//! {"pinned": "fw/egress"}
//! {"ifindex": 3, "prog": 7}   {"qsize": 192, "prog": {"pinned": "fw/egress"}}
//! ```

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::map::{MapType, Refers};
use towpath_bpf::suggest;
use towpath_objects::{BPFFS_ROOT, Reference, Selector, Tag};

/// The reference in a value of a map of this kind; `None` for kinds whose values are bytes.
///
/// # Errors
///
/// Fails with the first mistake, by its path.
pub(crate) fn of(kind: MapType, value: &Json) -> Result<Option<Reference>, String> {
    Ok(Some(match kind.values().refers() {
        Some(Refers::Program) => Reference::Program(selector("value", value)?),
        Some(Refers::Map) => Reference::Map(selector("value", value)?),
        Some(Refers::Device) => target(value, "ifindex")?,
        Some(Refers::Cpu) => target(value, "qsize")?,
        Some(Refers::Socket) | None => return Ok(None),
    }))
}

/// Parses `3`, or `{"ifindex": 3, "prog": WHICH}`; the listing's `prog_id` is accepted, too.
fn target(value: &Json, word: &'static str) -> Result<Reference, String> {
    let wanted = || format!("value: expected a number, or {{\"{word}\": N, \"prog\": WHICH}}");
    let Json::Object(object) = value else {
        let number = as_u32(value).ok_or_else(wanted)?;
        return Ok(Reference::Target { number, program: None });
    };
    known_only("value", object, &[word, "prog", "prog_id"])?;
    let number = object.get(word).and_then(as_u32).ok_or_else(wanted)?;
    let program = object.get("prog").or(object.get("prog_id")).filter(|it| !it.is_null());
    let program = program.map(|which| selector("value.prog", which)).transpose()?;
    Ok(Reference::Target { number, program })
}

/// Parses a reference to a program or map: an id, a name, or an object with one of bpftool's
/// keywords.
fn selector(path: &str, value: &Json) -> Result<Selector, String> {
    let wanted = || {
        format!("{path}: expected an id, a name, or one of \"id\", \"name\", \"tag\", \"pinned\"")
    };
    let object = match value {
        Json::String(name) => return Ok(Selector::Name(name.clone())),
        Json::Object(object) => object,
        other => return as_u32(other).map(Selector::Id).ok_or_else(wanted),
    };
    known_only(path, object, &["id", "name", "tag", "pinned"])?;
    let mut words = object.iter();
    let (Some((word, value)), None) = (words.next(), words.next()) else { return Err(wanted()) };
    let text = value.as_str();
    let found = match word.as_str() {
        "id" => as_u32(value).map(Selector::Id),
        "name" => text.map(|name| Selector::Name(name.to_owned())),
        "tag" => text.and_then(tag).map(Selector::Tag),
        _ => text.map(|path| Selector::Pinned(absolute(path))),
    };
    found.ok_or_else(|| format!("{path}.{word}: {value} is none"))
}

/// An absolute pin path; relative paths begin at the root of the virtual bpffs.
pub(crate) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{BPFFS_ROOT}/{path}") }
}

fn tag(text: &str) -> Option<Tag> {
    let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)?;
    Some(Tag(number.to_be_bytes()))
}

fn known_only(path: &str, object: &Object<String, Json>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let hint = suggest::among(unknown, known.iter().copied());
            Err(format!("{path}: unknown {unknown:?}{hint}"))
        }
    }
}

fn as_u32(json: &Json) -> Option<u32> {
    json.as_u64().and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_are_named_in_bpftools_words() {
        let program = |value: Json| match of(MapType::ProgArray, &value) {
            Ok(Some(Reference::Program(selector))) => Ok(selector.to_string()),
            other => Err(other),
        };
        assert_eq!(program(json!(7)).as_deref(), Ok("id 7"));
        assert_eq!(program(json!("egress")).as_deref(), Ok("name egress"));
        assert_eq!(program(json!({"pinned": "fw/x"})).as_deref(), Ok("pinned /sys/fs/bpf/fw/x"));
        let tagged = program(json!({"tag": "b424cb1e9fdf5fe3"}));
        assert_eq!(tagged.as_deref(), Ok("tag b424cb1e9fdf5fe3"));
        for (value, error) in [
            (json!({"nmae": "x"}), "value: unknown \"nmae\""),
            (json!({"id": 1, "name": "x"}), "value: expected an id, a name"),
            (json!({"tag": "b4"}), "value.tag: \"b4\" is none"),
            (json!(-1), "value: expected an id"),
        ] {
            let refused = of(MapType::ProgArray, &value).expect_err("it makes no sense");
            assert!(refused.starts_with(error), "{refused}");
        }
    }

    #[test]
    fn targets_have_a_number_and_perhaps_a_program() {
        let target = |number, program| Ok(Some(Reference::Target { number, program }));
        assert_eq!(of(MapType::Devmap, &json!(3)), target(3, None));
        let seven = Some(Selector::Id(7));
        let of_device = json!({"ifindex": 3, "prog": 7});
        assert_eq!(of(MapType::DevmapHash, &of_device), target(3, seven.clone()));
        let listed = json!({"qsize": 3, "prog_id": 7});
        assert_eq!(of(MapType::Cpumap, &listed), target(3, seven));
        assert!(of(MapType::Cpumap, &of_device).is_err());
        assert_eq!(of(MapType::Xskmap, &json!(3)), Ok(None));
    }
}
