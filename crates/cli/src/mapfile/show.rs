//! Map contents for people: a table for each map, a column for each field of flat structs.

use serde_json::Value as Json;

use super::contents::{Contents, Entry, MapContents};
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

impl Contents {
    /// Prints all maps. Without `-v`, long maps are cut and zero entries of arrays left out.
    pub(crate) fn print(&self, output: &mut Output) -> Result<(), CliError> {
        for map in &self.maps {
            print_map(map, output)?;
        }
        Ok(())
    }
}

fn print_map(map: &MapContents, output: &mut Output) -> Result<(), CliError> {
    let all = output.verbose > 0;
    let shown: Vec<&Entry> =
        map.entries.iter().filter(|entry| all || !map.has_all_keys || !entry.is_zero).collect();
    let limit = if all { usize::MAX } else { ROWS_SHOWN };
    let name = output.style.bold(&map.name);
    output.line(&format!("\n{name} ({}): {}", map.kind, summary(map, shown.len())))?;
    let rows: Vec<Vec<(String, String)>> =
        shown.iter().take(limit).flat_map(|entry| rows_of(entry, all)).collect();
    let Some(first) = rows.first() else { return Ok(()) };
    let mut names: Vec<String> = first.iter().map(|(name, _)| name.clone()).collect();
    // Rows that differ in shape cannot share columns of fields.
    let rows: Vec<Vec<String>> = if rows.iter().all(|row| has_names(row, &names)) {
        rows.into_iter().map(|row| row.into_iter().map(|(_, text)| text).collect()).collect()
    } else {
        names = vec!["key".to_owned(), "value".to_owned()];
        shown.iter().take(limit).map(|entry| vec![text(&entry.key), text(&merged(entry))]).collect()
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
    if shown.len() > limit {
        let more = grouped((shown.len() - limit) as u64);
        output.line(&format!("  ... {more} more; -v shows all"))?;
    }
    Ok(())
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
    cells("key", &entry.key, &mut key);
    if entry.is_per_cpu && all {
        let values = entry.values.iter().enumerate();
        return values
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
    let mut values = entry.values.iter();
    let first = values.next().cloned().unwrap_or(Json::Null);
    values.fold(first, |total, value| sum(&total, value))
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
