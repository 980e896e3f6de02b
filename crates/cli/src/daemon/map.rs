//! `map show|dump|lookup|update|delete`, in bpftool's words.

use serde_json::{Value as Json, json};
use towpath_bpf::program::MapType;
use towpath_daemon::api::types::{
    EntryRequest, EntryView, MapRequest, MapView, NextView, RingView,
};
use towpath_daemon::client::Client;
use towpath_maps::typed;

use super::program::pins;
use super::which::{BEGIN, Which, only, some};
use super::{AsType, bpftool, client, listen, pin, rows};
use crate::args::{ElementArgs, MapCommand, MapDumpArgs, ObjectArgs};
use crate::error::CliError;
use crate::output::Output;

/// Runs a command on maps or their elements.
pub(crate) fn map(command: &MapCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        MapCommand::Show(args) => show(args, output),
        MapCommand::Dump(MapDumpArgs { object, format: Some(format), .. }) => {
            rows::dump(object, *format, output)
        }
        MapCommand::Dump(args) => dump(args, output),
        MapCommand::Load(args) => rows::load(args, output),
        MapCommand::Lookup(args) | MapCommand::Peek(args) => one(args, "lookup", output),
        MapCommand::Pop(args) => one(args, "pop", output),
        MapCommand::Push(args) => change(args, "update", output),
        MapCommand::Getnext(args) => next(args, output),
        MapCommand::Create(args) => create(args, output),
        MapCommand::Pin(args) => {
            let (which, path) = pin::split(args)?;
            let client = client(&args.daemon)?;
            let map: MapView = only(&client, &which)?;
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
    let _done: Json = client.json("POST", &format!("/v1/maps/{}/{verb}", map.id), &request)?;
    // bpftool prints the same if all went well.
    if output.json { output.json(&Json::Null) } else { Ok(()) }
}

/// Looks an element up, or takes it out.
fn one(args: &ElementArgs, verb: &str, output: &mut Output) -> Result<(), CliError> {
    let (client, map, request) = element(args)?;
    let request = EntryRequest { bytes: output.json || is_trie(&map), ..request };
    let path = format!("/v1/maps/{}/{verb}", map.id);
    let mut entry: EntryView = client.json("POST", &path, &request)?;
    AsType::apply(&args.as_types, &mut entry);
    if !output.json {
        return output.line(&text(&map, &entry));
    }
    let mut json = bpftool::element(&entry);
    if map.bytes_key == 0 {
        json["key"] = json!([]);
    }
    output.json(&json)
}

/// Prints the key behind a given one.
fn next(args: &ElementArgs, output: &mut Output) -> Result<(), CliError> {
    let (client, map, request) = element(args)?;
    let path = format!("/v1/maps/{}/next", map.id);
    let NextView { key, bytes, after } = client.json("POST", &path, &request)?;
    if output.json {
        let after = after.as_deref().map(bpftool::bytes);
        return output.json(&json!({ "key": after, "next_key": bpftool::bytes(&bytes) }));
    }
    output.line(&format!("next_key {key}"))
}

/// `PATH type KIND key BYTES value BYTES entries N name NAME [flags F]`
fn create(args: &ElementArgs, output: &mut Output) -> Result<(), CliError> {
    let request = map_request(&args.words)?;
    let map: MapView = client(&args.daemon)?.json("POST", "/v1/maps", &request)?;
    if output.json { output.json(&Json::Null) } else { print(&map, output) }
}

fn map_request(words: &[String]) -> Result<MapRequest, CliError> {
    let Some((path, pairs)) = words.split_first() else {
        return Err(CliError::Usage("expected a path first, where it is pinned".to_owned()));
    };
    let mut request = MapRequest { path: path.clone(), ..MapRequest::default() };
    for pair in pairs.chunks(2) {
        let [word, said] = pair else {
            return Err(CliError::Usage(format!("{}: expected a value after it", pair[0])));
        };
        let number = || {
            let digits = said.strip_prefix("0x").map(|hex| u32::from_str_radix(hex, 16));
            let number = digits.unwrap_or_else(|| said.parse());
            number.map_err(|_none| CliError::Usage(format!("{word} {said}: expected a number")))
        };
        match word.as_str() {
            "type" => request.r#type.clone_from(said),
            "name" => request.name.clone_from(said),
            "key" => request.key = number()?,
            "value" => request.value = number()?,
            "entries" => request.entries = number()?,
            "flags" => request.flags = number()?,
            _ => {
                let known = "type, key, value, entries, name or flags";
                return Err(CliError::Usage(format!("{word}: expected {known}")));
            }
        }
    }
    Ok(request)
}

fn show(args: &ObjectArgs, output: &mut Output) -> Result<(), CliError> {
    let which = Which::parse(&args.which)?;
    let maps: Vec<MapView> = some(&client(&args.daemon)?, &which)?;
    if output.json {
        let all = maps.iter().map(bpftool::map).collect();
        return output.json(&bpftool::shown(all, which != Which::All));
    }
    if maps.is_empty() {
        output.note(&format!("no maps: {BEGIN}"));
    }
    maps.iter().try_for_each(|map| print(map, output))
}

/// Prints a map as bpftool does; further lines hold properties that only Towpath has.
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
    let populating = match map.populated_percent {
        Some(percent) if percent < 100 => format!("populating {percent} %  "),
        _ => String::new(),
    };
    output.line(&format!("\t{entries}{populating}prog_ids {}", programs.join(",")))?;
    if let Some(RingView { size, used, lost }) = map.ring {
        output.line(&format!("\t{used} of {size} bytes used  {lost} records lost"))?;
    }
    pins(&map.pinned, output)
}

fn dump(args: &MapDumpArgs, output: &mut Output) -> Result<(), CliError> {
    let MapDumpArgs { object: args, as_types, format: _ } = args;
    let which = Which::parse(&args.which)?;
    let client = client(&args.daemon)?;
    let map: MapView = only(&client, &which)?;
    let bytes = output.json || is_trie(&map);
    let path = format!("/v1/maps/{}/entries?bytes={bytes}", map.id);
    let mut entries: Vec<EntryView> = client.get(&path)?;
    // A hash map's own order changes each time it is made, and dumps are compared.
    entries.sort_by(|one, other| typed::key_order(&one.key, &other.key));
    entries.iter_mut().for_each(|entry| AsType::apply(as_types, entry));
    if output.json {
        return output.json(&entries.iter().map(bpftool::element).collect::<Vec<_>>());
    }
    entries.iter().try_for_each(|entry| output.line(&text(&map, entry)))?;
    output.line(&format!("{} of {} entries", entries.len(), map.max_entries))
}

/// Whether keys are prefixes: their bytes are then an address, whatever the types call them.
fn is_trie(map: &MapView) -> bool {
    map.r#type == MapType::LpmTrie.name()
}

fn text(map: &MapView, entry: &EntryView) -> String {
    let values = match (&entry.value, &entry.values) {
        (Some(value), _) => vec![format!("value {value}")],
        (None, Some(values)) => {
            let each = values.iter().enumerate();
            each.map(|(cpu, value)| format!("cpu {cpu} {value}")).collect()
        }
        (None, None) => Vec::new(),
    };
    let prefix = entry.bytes.as_ref().filter(|_| is_trie(map));
    let prefix = prefix.and_then(|bytes| typed::prefix_to_text(&typed::from_hex(&bytes.key)?));
    let key = prefix.unwrap_or_else(|| entry.key.to_string());
    format!("key {key}  {}", values.join("  "))
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
    let map: MapView = only(&client, &which)?;
    let request = request(rest, &map.r#type)?;
    Ok((client, map, request))
}

/// Request for an element of a map of this kind, from the words of the command line.
fn request(words: &[String], kind: &str) -> Result<EntryRequest, CliError> {
    let mut request = EntryRequest::default();
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
                    let message = format!("{}: expected nothing after the flag", said.join(" "));
                    return Err(CliError::Usage(message));
                }
            }
        }
        rest = tail;
    }
    Ok(request)
}

/// As [`json_of`]; for values that are programs or maps also `id N`, `name NAME`, `tag TAG`,
/// `pinned PATH`, and for those that are targets `N [prog WHICH]`.
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
        [] => Err(CliError::Usage(format!("{what} is missing"))),
        [word, bytes @ ..] if word == "hex" => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:0>2}")).collect();
            Ok(json!(format!("hex:{digits}")))
        }
        // bpftool does the same: several numbers are bytes.
        words if words.len() > 1 && words.iter().all(|word| byte(word).is_some()) => {
            let bytes = words.iter().filter_map(|word| byte(word));
            let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            Ok(json!(format!("hex:{digits}")))
        }
        words => {
            let text = words.join(" ");
            Ok(serde_json::from_str(&text).unwrap_or(Json::String(text)))
        }
    }
}

fn byte(word: &str) -> Option<u8> {
    match word.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
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
        let parsed = request("key 7 0 0 0x10 value 1 2", "hash").expect("it is well formed");
        assert_eq!((parsed.key, parsed.value), (json!("hex:07000010"), Some(json!("hex:0102"))));
        assert!(request("key", "hash").is_err());
    }

    #[test]
    fn maps_are_made_in_bpftools_words() {
        let text = "fw/q type queue key 0 value 4 entries 0x10 name q";
        let MapRequest { path, r#type, value, entries, .. } = map_request(&words(text)).unwrap();
        assert_eq!((&*path, &*r#type, value, entries), ("fw/q", "queue", 4, 16));
        assert!(map_request(&words("fw/q type")).is_err());
        assert!(map_request(&words("fw/q size 4")).is_err());
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
