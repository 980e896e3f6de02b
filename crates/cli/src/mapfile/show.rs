//! Map contents for people: a table for each map, a column for each field of flat structs.

use std::ops::ControlFlow;

use serde_json::Value as Json;
use towpath_bpf::map::{Shape, Values};
use towpath_bpf::program::MapType;

use super::contents::{Contents, Entry, Held, MapContents};
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped};

impl Contents {
    /// Prints all maps. Without `-v`, long maps are cut and zero entries of arrays left out.
    pub(crate) fn print(&self, output: &mut Output) -> Result<(), CliError> {
        for map in self.maps().iter().filter(|map| is_listed(map.kind())) {
            print_map(map.name(), map, output)?;
        }
        Ok(())
    }
}

/// Kinds whose contents are elsewhere (records, pages) or cannot be listed are left out.
fn is_listed(kind: MapType) -> bool {
    !matches!(kind.values(), Values::Records | Values::Events | Values::Pages | Values::Members)
}

/// The elements of a map that fit, and the number of all.
struct Shown {
    entries: Vec<Entry>,
    /// Number of elements that would be shown if there were room.
    count: usize,
    /// Number of all elements, zero ones of arrays included.
    total: usize,
}

impl Shown {
    fn new(map: &MapContents, verbose: u8) -> Self {
        let has_all_keys = map.kind().spec().shape == Shape::Array;
        let zeroes = !has_all_keys || verbose > 1;
        let limit = if verbose > 0 { usize::MAX } else { ROWS_SHOWN };
        let mut shown = Shown { entries: Vec::new(), count: 0, total: 0 };
        map.for_each(&mut |element| {
            shown.total += 1;
            if zeroes || !element.is_zero {
                shown.count += 1;
                if shown.entries.len() < limit {
                    shown.entries.push((element.read)());
                }
            }
            ControlFlow::Continue(())
        });
        shown
    }

    fn summary(&self, map: &MapContents) -> String {
        let max = grouped(map.max_entries().into());
        let all =
            if map.max_entries() == 1 { "1 entry".to_owned() } else { format!("{max} entries") };
        let has_all_keys = map.kind().spec().shape == Shape::Array;
        match self.count {
            0 if self.total > 0 => format!("{all}, all zero"),
            0 => "empty".to_owned(),
            count if !has_all_keys => format!("{} of {all}", grouped(count as u64)),
            count if count == self.total => all,
            count => format!("{all}, {} not zero", grouped(count as u64)),
        }
    }
}

fn print_map(name: &str, map: &MapContents, output: &mut Output) -> Result<(), CliError> {
    let shown = Shown::new(map, output.verbose);
    let heading = output.style.bold(name);
    output.line(&format!("\n{heading} ({}): {}", map.kind().name(), shown.summary(map)))?;
    if map.kind().values() == Values::Map {
        print_inner_maps(name, &shown.entries, output)?;
    } else {
        print_entries(&shown.entries, output)?;
    }
    match shown.count - shown.entries.len() {
        0 => Ok(()),
        more => output.line(&format!("  ... {} more; -v shows all", grouped(more as u64))),
    }
}

fn print_entries(entries: &[Entry], output: &mut Output) -> Result<(), CliError> {
    let each_cpu = output.verbose > 0;
    let rows: Vec<Vec<(String, String)>> =
        entries.iter().flat_map(|entry| rows_of(entry, each_cpu)).collect();
    let Some(first) = rows.first() else { return Ok(()) };
    let mut names: Vec<String> = first.iter().map(|(name, _)| name.clone()).collect();
    // Rows that differ in shape cannot share columns of fields.
    let rows: Vec<Vec<String>> = if rows.iter().all(|row| has_names(row, &names)) {
        rows.into_iter().map(|row| row.into_iter().map(|(_, text)| text).collect()).collect()
    } else {
        names = vec!["key".to_owned(), "value".to_owned()];
        let key = |entry: &Entry| entry.key.as_ref().map_or_else(String::new, text);
        entries.iter().map(|entry| vec![key(entry), text(&merged(entry))]).collect()
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
    output.table(&table)
}

fn print_inner_maps(name: &str, entries: &[Entry], output: &mut Output) -> Result<(), CliError> {
    for entry in entries {
        if let (Some(key), Held::Map(inner)) = (&entry.key, &entry.held) {
            print_map(&format!("{name}[{}]", text(key)), inner, output)?;
        }
    }
    Ok(())
}

fn has_names(row: &[(String, String)], names: &[String]) -> bool {
    row.len() == names.len() && row.iter().zip(names).all(|((name, _), wanted)| name == wanted)
}

/// An element as rows of named cells: one row, or one for each CPU if everything is shown.
fn rows_of(entry: &Entry, all: bool) -> Vec<Vec<(String, String)>> {
    let mut key = Vec::new();
    match (&entry.label, &entry.key) {
        (Some(label), _) => key.push(("key".to_owned(), label.clone())),
        (None, Some(json)) => cells("key", json, &mut key),
        (None, None) => {}
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
        Held::Map(_) => Json::Null,
    }
}

/// Adds numbers that are in both; elsewhere the first value is kept.
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

/// A cell, or one for each field of a struct that is not too wide.
fn cells(name: &str, json: &Json, row: &mut Vec<(String, String)>) {
    let mut fields = Vec::new();
    flatten("", json, &mut fields);
    if fields.is_empty() || fields.len() > COLUMNS_MAX || !json.is_object() {
        row.push((name.to_owned(), text(json)));
    } else {
        row.append(&mut fields);
    }
}

/// Fields of nested structs; their names have dots.
fn flatten(name: &str, json: &Json, fields: &mut Vec<(String, String)>) {
    let Json::Object(object) = json else {
        fields.push((name.to_owned(), text(json)));
        return;
    };
    for (field, value) in object {
        let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
        flatten(&name, value, fields);
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

/// Fields of one key or value that get columns of their own.
const COLUMNS_MAX: usize = 8;
/// Rows of one map that fit a screen.
const ROWS_SHOWN: usize = 20;
