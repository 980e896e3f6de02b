//! Map contents for people: a table for each map, a column for each field of flat structs.

use serde_json::Value as Json;

use towpath_bpf::program::MapType;

use super::contents::{Contents, Entry, Held, MapContents};
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

impl Contents {
    /// Prints all maps. Without `-v`, long maps are cut and zero entries of arrays left out.
    pub(crate) fn print(&self, output: &mut Output) -> Result<(), CliError> {
        for map in self.maps.iter().filter(|map| is_listed(map.kind)) {
            print_map(&map.name, map, output)?;
        }
        Ok(())
    }
}

/// Kinds whose contents are elsewhere (records, pages) or cannot be listed are left out.
fn is_listed(kind: MapType) -> bool {
    !matches!(
        kind,
        MapType::Ringbuf
            | MapType::UserRingbuf
            | MapType::PerfEventArray
            | MapType::Arena
            | MapType::BloomFilter
    )
}

fn print_map(name: &str, map: &MapContents, output: &mut Output) -> Result<(), CliError> {
    let all = output.verbose > 0;
    let zeroes = !map.has_all_keys || output.verbose > 1;
    let shown: Vec<&Entry> = map.entries.iter().filter(|entry| zeroes || !entry.is_zero).collect();
    let limit = if all { usize::MAX } else { ROWS_SHOWN };
    let heading = output.style.bold(name);
    output.line(&format!("\n{heading} ({}): {}", map.kind.name(), summary(map, shown.len())))?;
    if matches!(map.kind, MapType::ArrayOfMaps | MapType::HashOfMaps) {
        return print_inner_maps(name, &shown, limit, output);
    }
    let rows: Vec<Vec<(String, String)>> =
        shown.iter().take(limit).flat_map(|entry| rows_of(entry, all)).collect();
    let Some(first) = rows.first() else { return Ok(()) };
    let mut names: Vec<String> = first.iter().map(|(name, _)| name.clone()).collect();
    // Rows that differ in shape cannot share columns of fields.
    let rows: Vec<Vec<String>> = if rows.iter().all(|row| has_names(row, &names)) {
        rows.into_iter().map(|row| row.into_iter().map(|(_, text)| text).collect()).collect()
    } else {
        names = vec!["key".to_owned(), "value".to_owned()];
        let key = |entry: &Entry| entry.key.as_ref().map_or_else(String::new, text);
        shown.iter().take(limit).map(|entry| vec![key(entry), text(&merged(entry))]).collect()
    };
    let numeric = |column: usize| {
        rows.iter().all(|row| row[column].chars().all(|c| c.is_ascii_digit() || c == '-'))
    };
    let columns: Vec<(String, Align)> = names
        .into_iter()
        .enumerate()
        .map(|(index, name)| (name, if numeric(index) { Align::Right } else { Align::Left }))
        .collect();
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(row);
    }
    output.table(&table)?;
    print_more(shown.len(), limit, output)
}

fn print_inner_maps(
    name: &str,
    entries: &[&Entry],
    limit: usize,
    output: &mut Output,
) -> Result<(), CliError> {
    for entry in entries.iter().take(limit) {
        if let (Some(key), Held::Map(inner)) = (&entry.key, &entry.held) {
            print_map(&format!("{name}[{}]", text(key)), inner, output)?;
        }
    }
    print_more(entries.len(), limit, output)
}

fn print_more(count: usize, limit: usize, output: &mut Output) -> Result<(), CliError> {
    if count <= limit {
        return Ok(());
    }
    output.line(&format!("  ... {} more; -v shows all", grouped((count - limit) as u64)))
}

fn summary(map: &MapContents, shown: usize) -> String {
    let max = grouped(map.max_entries.into());
    if map.has_all_keys {
        return match (map.entries.len(), shown) {
            (1, 1) => "1 entry".to_owned(),
            (_, 0) => format!("{max} entries, all zero"),
            (all, shown) if all == shown => format!("{max} entries"),
            (_, shown) => format!("{max} entries, {} not zero", grouped(shown as u64)),
        };
    }
    match map.entries.len() {
        0 => "empty".to_owned(),
        count => format!("{} of {max} entries", grouped(count as u64)),
    }
}

fn has_names(row: &[(String, String)], names: &[String]) -> bool {
    row.len() == names.len() && row.iter().zip(names).all(|((name, _), wanted)| name == wanted)
}

/// An element as rows of named cells: one, or one for each CPU when everything is to be shown.
fn rows_of(entry: &Entry, all: bool) -> Vec<Vec<(String, String)>> {
    let mut key = Vec::new();
    if let Some(json) = &entry.key {
        cells("key", json, &mut key);
    }
    if let (Held::PerCpu(values), true) = (&entry.held, all) {
        return values
            .iter()
            .enumerate()
            .map(|(cpu, value)| {
                let mut row = key.clone();
                row.push(("cpu".to_owned(), cpu.to_string()));
                cells("value", value, &mut row);
                row
            })
            .collect();
    }
    let mut row = key;
    cells("value", &merged(entry), &mut row);
    vec![row]
}

/// The value, or the sum of the values of all CPUs.
fn merged(entry: &Entry) -> Json {
    match &entry.held {
        Held::One(value) => value.clone(),
        Held::PerCpu(values) => {
            let total = values.iter().cloned().reduce(|total, value| sum(&total, &value));
            total.unwrap_or(Json::Null)
        }
        Held::Map(inner) => Json::String(format!("{} entries", inner.entries.len())),
    }
}

/// Adds numbers wherever both have one; elsewhere the first stands.
fn sum(a: &Json, b: &Json) -> Json {
    match (a, b) {
        (Json::Number(x), Json::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.wrapping_add(y).into(),
            _ => x.as_u64().unwrap_or(0).wrapping_add(y.as_u64().unwrap_or(0)).into(),
        },
        (Json::Array(x), Json::Array(y)) => {
            Json::Array(x.iter().zip(y).map(|(x, y)| sum(x, y)).collect())
        }
        (Json::Object(x), Json::Object(y)) => Json::Object(
            x.iter()
                .map(|(name, x)| (name.clone(), y.get(name).map_or(x.clone(), |y| sum(x, y))))
                .collect(),
        ),
        _ => a.clone(),
    }
}

/// A cell, or one for each field of a flat struct.
fn cells(name: &str, json: &Json, row: &mut Vec<(String, String)>) {
    match json {
        Json::Object(object) if !object.is_empty() && object.values().all(|v| !v.is_object()) => {
            row.extend(object.iter().map(|(field, value)| (field.clone(), text(value))));
        }
        other => row.push((name.to_owned(), text(other))),
    }
}

/// JSON without the quotes that people do not need.
fn text(json: &Json) -> String {
    match json {
        Json::String(text) => text.clone(),
        Json::Array(list) => {
            format!("[{}]", list.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        Json::Object(object) => {
            let fields = object.iter().map(|(name, value)| format!("{name}={}", text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

/// Rows of one map that fit a screen.
const ROWS_SHOWN: usize = 20;
