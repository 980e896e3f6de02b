//! `map show|dump|lookup|update|delete`, in bpftool's words.

use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{EntryRequest, EntryView, MapView, RingView};
use towpath_daemon::client::Client;

use super::program::pins;
use super::which::{Which, only};
use super::{client, listen, pin};
use crate::args::{ElementArgs, MapCommand, ObjectArgs};
use crate::error::CliError;
use crate::output::Output;

/// Maps and their elements.
pub(crate) fn map(command: &MapCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        MapCommand::Show(args) => show(args, output),
        MapCommand::Dump(args) => dump(args, output),
        MapCommand::Lookup(args) => {
            let (client, map, request) = element(args)?;
            let path = format!("/v1/maps/{}/lookup", map.id);
            let entry: EntryView = client.json("POST", &path, &request)?;
            if output.json { output.json(&entry) } else { output.line(&text(&entry)) }
        }
        MapCommand::Pin(args) => {
            let (which, path) = pin::split(args)?;
            let client = client(&args.daemon)?;
            let map = only(chosen(&client, &which)?, "map", &which)?;
            pin::pin(&client, "map", map.id, path, output)
        }
        MapCommand::Unpin(args) => pin::unpin(args, output),
        MapCommand::Update(args) => change(args, "update", output),
        MapCommand::Delete(args) => change(args, "delete", output),
        MapCommand::EventPipe(args) => listen::event_pipe(args, output),
    }
}

fn change(args: &ElementArgs, verb: &str, output: &mut Output) -> Result<(), CliError> {
    let (client, map, request) = element(args)?;
    let done: Json = client.json("POST", &format!("/v1/maps/{}/{verb}", map.id), &request)?;
    if output.json { output.json(&done) } else { Ok(()) }
}

fn show(args: &ObjectArgs, output: &mut Output) -> Result<(), CliError> {
    let which = Which::parse(&args.which)?;
    let maps = chosen(&client(&args.daemon)?, &which)?;
    if which != Which::All && maps.is_empty() {
        return Err(CliError::Usage(format!("no map with {}", which.text())));
    }
    if output.json {
        return output.json(&maps);
    }
    maps.iter().try_for_each(|map| print(map, output))
}

/// As bpftool prints it; below, what only Towpath knows.
fn print(map: &MapView, output: &mut Output) -> Result<(), CliError> {
    let MapView { id, r#type, name, flags, bytes_key, bytes_value, max_entries, .. } = map;
    output.line(&format!("{id}: {type}  name {name}  flags {flags:#x}"))?;
    let frozen = if map.frozen { "  frozen" } else { "" };
    output.line(&format!(
        "\tkey {bytes_key}B  value {bytes_value}B  max_entries {max_entries}{frozen}"
    ))?;
    if map.btf_id != 0 {
        output.line(&format!("\tbtf_id {}", map.btf_id))?;
    }
    let programs: Vec<String> = map.prog_ids.iter().map(u32::to_string).collect();
    let entries = map.entries.map_or(String::new(), |count| format!("entries {count}  "));
    output.line(&format!("\t{entries}prog_ids {}", programs.join(",")))?;
    if let Some(RingView { size, used, lost }) = map.ring {
        output.line(&format!("\t{used} of {size} bytes used  {lost} records lost"))?;
    }
    pins(&map.pinned, output)
}

fn dump(args: &ObjectArgs, output: &mut Output) -> Result<(), CliError> {
    let which = Which::parse(&args.which)?;
    let client = client(&args.daemon)?;
    let map = only(chosen(&client, &which)?, "map", &which)?;
    let entries: Vec<EntryView> = client.get(&format!("/v1/maps/{}/entries", map.id))?;
    if output.json {
        return output.json(&entries);
    }
    entries.iter().try_for_each(|entry| output.line(&text(entry)))?;
    output.line(&format!("{} of {} entries", entries.len(), map.max_entries))
}

pub(super) fn chosen(client: &Client, which: &Which) -> Result<Vec<MapView>, CliError> {
    let maps: Vec<MapView> = client.get("/v1/maps")?;
    Ok(maps.into_iter().filter(|map| which.fits(map.id, &map.name, "", &map.pinned)).collect())
}

fn text(entry: &EntryView) -> String {
    let values = match (&entry.value, &entry.values) {
        (Some(value), _) => vec![format!("value {value}")],
        (None, Some(values)) => {
            let each = values.iter().enumerate();
            each.map(|(cpu, value)| format!("cpu {cpu} {value}")).collect()
        }
        (None, None) => Vec::new(),
    };
    format!("key {}  {}", entry.key, values.join("  "))
}

/// `id N|name NAME|NAME key KEY [value VALUE] [FLAG]`
fn element(args: &ElementArgs) -> Result<(Client, MapView, EntryRequest), CliError> {
    let words = &args.words;
    let end = words.iter().position(|word| word == "key" || word == "value");
    let (map, rest) = words.split_at(end.unwrap_or(words.len()));
    if map.is_empty() || map.len() > 2 {
        let message = "expected a map first: id N, name NAME, or NAME";
        return Err(CliError::Usage(message.to_owned()));
    }
    let which = Which::parse(map)?;
    let client = client(&args.daemon)?;
    let map = only(chosen(&client, &which)?, "map", &which)?;
    let request = request(rest, &map.r#type)?;
    Ok((client, map, request))
}

/// What is said of an element of a map of this kind.
fn request(words: &[String], kind: &str) -> Result<EntryRequest, CliError> {
    let mut request = EntryRequest { key: Json::Null, value: None, flags: None };
    let mut rest = words;
    while let [word, tail @ ..] = rest {
        let is_word =
            |word: &String| matches!(word.as_str(), "key" | "value" | "any" | "noexist" | "exist");
        let end = tail.iter().position(is_word).unwrap_or(tail.len());
        let (said, tail) = tail.split_at(end);
        match word.as_str() {
            "key" => request.key = json_of(said, "key")?,
            "value" => request.value = Some(value_of(said, kind)?),
            flag => {
                request.flags = Some(flag.to_owned());
                if !said.is_empty() {
                    let message = format!("{}: what is it?", said.join(" "));
                    return Err(CliError::Usage(message));
                }
            }
        }
        rest = tail;
    }
    Ok(request)
}

/// As [`json_of`]; where values are programs or maps also `id N`, `name NAME`, `tag TAG`, `pinned
/// PATH`, and of targets `N [prog WHICH]`.
fn value_of(words: &[String], kind: &str) -> Result<Json, CliError> {
    let number = match kind {
        "prog_array" | "array_of_maps" | "hash_of_maps" => return which_of(words),
        "devmap" | "devmap_hash" => "ifindex",
        "cpumap" => "qsize",
        _ => return json_of(words, "value"),
    };
    let end = words.iter().position(|word| word == "prog").unwrap_or(words.len());
    match words.split_at(end) {
        (words, []) => json_of(words, "value"),
        (target, [_, which @ ..]) => {
            Ok(json!({ number: json_of(target, "value")?, "prog": which_of(which)? }))
        }
    }
}

/// A program or map in bpftool's words.
fn which_of(words: &[String]) -> Result<Json, CliError> {
    match words {
        [word, id] if word == "id" => Ok(json!({ "id": json_of(std::slice::from_ref(id), "id")? })),
        [word, text] if ["name", "tag", "pinned"].contains(&word.as_str()) => {
            Ok(json!({ word.as_str(): text }))
        }
        words => json_of(words, "value"),
    }
}

/// `hex 0a 00`, JSON, or text.
fn json_of(words: &[String], what: &str) -> Result<Json, CliError> {
    match words {
        [] => Err(CliError::Usage(format!("{what}: it is missing"))),
        [word, bytes @ ..] if word == "hex" => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:0>2}")).collect();
            Ok(json!(format!("hex:{digits}")))
        }
        words => {
            let text = words.join(" ");
            Ok(serde_json::from_str(&text).unwrap_or(Json::String(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn elements_in_bpftools_words() {
        let request = |text: &str, kind: &str| request(&words(text), kind);
        let parsed = request("key hex 0a 1 value 7 noexist", "hash").expect("it is well formed");
        assert_eq!(parsed.key, json!("hex:0a01"));
        assert_eq!(parsed.value, Some(json!(7)));
        assert_eq!(parsed.flags.as_deref(), Some("noexist"));
        let parsed = request("key 10.0.0.1 value {\"a\": 1}", "hash").expect("it is well formed");
        assert_eq!(parsed.key, json!("10.0.0.1"));
        assert_eq!(parsed.value, Some(json!({"a": 1})));
        assert!(request("key", "hash").is_err());
    }

    #[test]
    fn programs_and_maps_are_values() {
        let value = |text: &str, kind: &str| {
            let parsed = request(&words(&format!("key 0 value {text}")), kind);
            parsed.expect("it is well formed").value.expect("it has a value")
        };
        assert_eq!(value("id 7", "prog_array"), json!({"id": 7}));
        assert_eq!(value("pinned fw/x", "hash_of_maps"), json!({"pinned": "fw/x"}));
        assert_eq!(value("egress", "prog_array"), json!("egress"));
        assert_eq!(value("name a", "hash"), json!("name a"), "a text like any other");
        assert_eq!(value("3", "devmap"), json!(3));
        let target = json!({"ifindex": 3, "prog": {"name": "egress"}});
        assert_eq!(value("3 prog name egress", "devmap_hash"), target);
        assert_eq!(value("192 prog 7", "cpumap"), json!({"qsize": 192, "prog": 7}));
    }
}
