//! `map load`, and `map dump --format`: many elements at once, from and to files.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use serde_json::Value as Json;
use towpath_daemon::api::types::{BytesView, EntryView, LoadView, MapView};
use towpath_daemon::client::Client;
use towpath_maps::typed;

use super::client;
use super::which::{Which, only};
use crate::args::{MapLoadArgs, ObjectArgs, RowFormat};
use crate::error::CliError;
use crate::output::Output;

/// Puts the rows of a file into a map.
pub(super) fn load(args: &MapLoadArgs, output: &mut Output) -> Result<(), CliError> {
    let MapLoadArgs { words, replace, format, daemon } = args;
    let Some((file, which)) = words.split_last() else {
        return Err(CliError::Usage("expected a map, then a file".to_owned()));
    };
    let (which, path) = (Which::parse(which)?, Path::new(file));
    let format = format.unwrap_or_else(|| RowFormat::of(path));
    let from: Box<dyn Read + Send> = if file == "-" {
        Box::new(stdin())
    } else {
        let opened = File::open(path);
        Box::new(opened.map_err(|source| CliError::File { path: path.to_owned(), source })?)
    };
    let client = client(daemon)?;
    let map: MapView = only(&client, &which)?;
    let url = format!("/v1/maps/{}/entries?format={}&replace={replace}", map.id, format.name());
    let loaded: LoadView = client.upload("PUT", &url, from)?;
    if output.json {
        return output.json(&loaded);
    }
    let LoadView { rows, duplicates, written, unchanged, deleted } = loaded;
    let again = match duplicates {
        0 => String::new(),
        count => format!("; {count} others have the key of a later row"),
    };
    output.line(&format!(
        "{rows} rows: {written} written, {unchanged} there already, {deleted} others deleted{again}"
    ))
}

impl RowFormat {
    /// The format that a file's name ends with; JSON for any other end.
    fn of(path: &Path) -> RowFormat {
        match path.extension().and_then(|it| it.to_str()) {
            Some("csv") => RowFormat::Csv,
            Some("bin" | "packed") => RowFormat::Packed,
            _ => RowFormat::Json,
        }
    }
}

/// Writes all elements of a map in a format that `map load` reads.
pub(super) fn dump(
    args: &ObjectArgs,
    format: RowFormat,
    output: &mut Output,
) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let map: MapView = only(&client, &Which::parse(&args.which)?)?;
    let mut entries = entries(&client, &map, format == RowFormat::Packed)?;
    if map.bytes_key > 0 {
        entries.sort_by(|one, other| typed::key_order(&one.key, &other.key));
    }
    match format {
        RowFormat::Json => entries
            .iter()
            .try_for_each(|entry| output.line(&serde_json::to_string(entry).unwrap_or_default())),
        RowFormat::Csv => csv(&map, &entries, output),
        RowFormat::Packed => entries.iter().try_for_each(|entry| packed(entry, output)),
    }
}

fn entries(client: &Client, map: &MapView, bytes: bool) -> Result<Vec<EntryView>, CliError> {
    Ok(client.get(&format!("/v1/maps/{}/entries?bytes={bytes}", map.id))?)
}

/// Prints entries as CSV: a column for the key, and one for the value or for each CPU's value.
fn csv(map: &MapView, entries: &[EntryView], output: &mut Output) -> Result<(), CliError> {
    let cpus = entries.first().and_then(|entry| entry.values.as_ref()).map(Vec::len);
    let values = match cpus {
        Some(cpus) => (0..cpus).map(|cpu| format!("cpu{cpu}")).collect(),
        None => vec!["value".to_owned()],
    };
    let key = (map.bytes_key > 0).then(|| "key".to_owned());
    let names: Vec<String> = key.into_iter().chain(values).collect();
    output.line(&names.join(","))?;
    entries.iter().try_for_each(|EntryView { key, value, values, .. }| {
        let key = (map.bytes_key > 0).then_some(key);
        let cells = key.into_iter().chain(value).chain(values.iter().flatten());
        output.line(&cells.map(cell).collect::<Vec<_>>().join(","))
    })
}

/// JSON as a cell of a CSV file; text without quotes, unless it would be read as another type.
fn cell(json: &Json) -> String {
    let text = match json {
        Json::String(text) if serde_json::from_str::<Json>(text).is_err() => text.clone(),
        json => json.to_string(),
    };
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

fn packed(entry: &EntryView, output: &mut Output) -> Result<(), CliError> {
    let Some(BytesView { key, value, values, .. }) = &entry.bytes else { return Ok(()) };
    let parts = std::iter::once(key).chain(value).chain(values.iter().flatten());
    parts.filter_map(|hex| typed::from_hex(hex)).try_for_each(|bytes| output.bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_read_as_what_they_were() {
        for (json, text) in [
            (json!(7), "7"),
            (json!("10.0.0.0/8"), "10.0.0.0/8"),
            (json!("7"), r#""""7""""#),
            (json!(""), r#""""#),
            (json!({"a": 1}), r#""{""a"":1}""#),
            (json!("a,b"), r#""a,b""#),
        ] {
            assert_eq!(cell(&json), text);
        }
    }
}
