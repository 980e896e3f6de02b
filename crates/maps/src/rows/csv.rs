//! Rows as lines of cells (RFC 4180), below a line that names the columns.

use std::io::BufRead;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::map::Keys;

use super::cut::at;
use super::{RowsError, Unsorted, json, wrong};

/// Reads all rows.
pub(super) fn read(rows: &mut Unsorted<'_>, from: &mut dyn BufRead) -> Result<(), RowsError> {
    let most = TEXT_BYTES_MIN + rows.row_bytes() * TEXT_BYTES_PER_BYTE;
    let mut records = Records { from, line: 1, most };
    let Some((_, names)) = records.next()? else { return Ok(()) };
    let columns = columns(rows, &names).map_err(|problem| wrong(at(1), problem))?;
    while let Some((line, cells)) = records.next()? {
        if cells.len() != columns.len() {
            let (found, wanted) = (cells.len(), columns.len());
            let problem = format!("{found} cells, and the first line names {wanted} columns");
            return Err(wrong(at(line), problem));
        }
        let before = rows.count();
        if let Err(error) = json::put(rows, &object(&columns, &cells, is_json), line) {
            if rows.count() == before {
                return Err(error);
            }
            // A cell that looks like a number may be text.
            rows.take_back();
            let text = json::put(rows, &object(&columns, &cells, |_| None), line);
            text.map_err(|_also| error)?;
        }
    }
    Ok(())
}

/// The meaning of a column: a member of a row, and its place in it.
struct Column {
    side: Side,
    path: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Key,
    Value,
    Cpu(usize),
}

fn columns(rows: &Unsorted<'_>, names: &[String]) -> Result<Vec<Column>, String> {
    let columns = names.iter().map(|name| {
        let mut path = name.trim().split('.').map(str::to_owned);
        let side = match path.next().as_deref().unwrap_or_default() {
            "key" => Side::Key,
            "value" => Side::Value,
            other => {
                let cpu = other.strip_prefix("cpu").and_then(|number| number.parse().ok());
                Side::Cpu(cpu.filter(|cpu| *cpu < rows.rows.cpus).ok_or_else(|| unknown(name))?)
            }
        };
        Ok(Column { side, path: path.collect() })
    });
    let columns = columns.collect::<Result<Vec<Column>, String>>()?;
    let has = |side: Side| columns.iter().any(|column| column.side == side);
    if rows.map.kind().keys() != Keys::None && !has(Side::Key) {
        return Err("no column \"key\"".to_owned());
    }
    let has_cpus = columns.iter().any(|column| matches!(column.side, Side::Cpu(_)));
    match (has(Side::Value), has_cpus) {
        (false, false) => Err("no column \"value\"".to_owned()),
        (true, true) => Err("columns of \"value\" and of single CPUs".to_owned()),
        (false, true) if !rows.rows.is_percpu => {
            Err("columns of CPUs: only per-CPU maps have one value for each".to_owned())
        }
        _ => Ok(columns),
    }
}

fn unknown(name: &str) -> String {
    format!("column {name:?}: expected key, key.FIELD, value, value.FIELD, cpu0 or cpu0.FIELD")
}

/// A row in the form that JSON has.
fn object(
    columns: &[Column],
    cells: &[String],
    parse: impl Fn(&str) -> Option<Json>,
) -> Object<String, Json> {
    let mut object = Object::new();
    for (column, cell) in columns.iter().zip(cells) {
        let name = match column.side {
            Side::Key => "key",
            Side::Value => "value",
            Side::Cpu(_) => "values",
        };
        let mut at = object.entry(name).or_insert(Json::Null);
        if let Side::Cpu(cpu) = column.side {
            at = cpu_of(at, cpu);
        }
        for member in &column.path {
            if !at.is_object() {
                *at = Json::Object(Object::new());
            }
            at = &mut at[member.as_str()];
        }
        *at = parse(cell).unwrap_or_else(|| Json::String(cell.clone()));
    }
    object
}

/// The value of one CPU in a list of them.
fn cpu_of(list: &mut Json, cpu: usize) -> &mut Json {
    if !list.is_array() {
        *list = Json::Array(Vec::new());
    }
    let named = |entry: &Json| entry["cpu"] == cpu;
    if let Some(entries) = list.as_array_mut()
        && !entries.iter().any(named)
    {
        entries.push(serde_json::json!({ "cpu": cpu, "value": null }));
    }
    let place = list.as_array().and_then(|entries| entries.iter().position(named));
    &mut list[place.unwrap_or_default()]["value"]
}

fn is_json(cell: &str) -> Option<Json> {
    serde_json::from_str(cell).ok()
}

/// Lines, cut into cells.
struct Records<'a> {
    from: &'a mut dyn BufRead,
    /// Line of the next byte.
    line: u64,
    /// Bytes of a record at most.
    most: usize,
}

/// The part of a record read so far.
#[derive(Default)]
struct Record {
    cells: Vec<Vec<u8>>,
    cell: Vec<u8>,
    /// Without ends of lines.
    bytes: usize,
    /// The cell began with a quote.
    is_quoted: bool,
    /// The next byte is inside the cell's quotes.
    is_open: bool,
}

impl Records<'_> {
    /// The next record that isn't empty, and the line that it begins in.
    fn next(&mut self) -> Result<Option<(u64, Vec<String>)>, RowsError> {
        loop {
            let begin = self.line;
            let (record, is_end) = self.record(begin)?;
            let is_empty = record.bytes == 0;
            if is_empty && is_end {
                return Ok(None);
            }
            if is_empty {
                continue;
            }
            let cells = record.cells.into_iter().map(String::from_utf8).collect::<Result<_, _>>();
            let cells = cells.map_err(|_bytes| wrong(at(begin), "it is not text".to_owned()))?;
            return Ok(Some((begin, cells)));
        }
    }

    /// A record, and whether the text ends with it.
    fn record(&mut self, begin: u64) -> Result<(Record, bool), RowsError> {
        let mut record = Record::default();
        loop {
            let buffer = self.from.fill_buf()?;
            if buffer.is_empty() {
                if record.is_open {
                    return Err(wrong(at(begin), "the text ends within quotes".to_owned()));
                }
                record.end_cell();
                return Ok((record, true));
            }
            let (mut used, mut has_ended) = (0, false);
            for &byte in buffer {
                used += 1;
                self.line += u64::from(byte == b'\n');
                has_ended = record.pass(byte).map_err(|problem| wrong(at(begin), problem))?;
                if has_ended {
                    break;
                }
            }
            self.from.consume(used);
            if record.bytes > self.most {
                let problem = format!("a row of more than {} bytes of text", self.most);
                return Err(wrong(at(begin), problem));
            }
            if has_ended {
                return Ok((record, false));
            }
        }
    }
}

impl Record {
    /// Takes a byte; returns whether the record ends with it.
    fn pass(&mut self, byte: u8) -> Result<bool, String> {
        self.bytes += usize::from(!matches!(byte, b'\r' | b'\n'));
        match byte {
            b'"' if self.is_open => self.is_open = false,
            _ if self.is_open => self.cell.push(byte),
            b'"' if self.is_quoted => {
                // Two quotes are one.
                self.cell.push(byte);
                self.is_open = true;
            }
            b'"' if self.cell.is_empty() => (self.is_quoted, self.is_open) = (true, true),
            b',' => self.end_cell(),
            b'\r' => {}
            b'\n' => {
                self.end_cell();
                return Ok(true);
            }
            _ if self.is_quoted => return Err("text behind the end of quotes".to_owned()),
            byte => self.cell.push(byte),
        }
        Ok(false)
    }

    fn end_cell(&mut self) {
        self.cells.push(std::mem::take(&mut self.cell));
        self.is_quoted = false;
    }
}

/// Bytes for names and marks, for any size of row.
const TEXT_BYTES_MIN: usize = 1 << 20;
const TEXT_BYTES_PER_BYTE: usize = 64;
