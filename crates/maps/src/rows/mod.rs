//! Many elements at once: a file is read as a whole and checked before the first one is stored.
//!
//! ```text
//! json      {"key": K, "value": V}, one behind the other, or in a list; as `map dump` writes them
//! csv       a first line that names the columns: key, value, key.FIELD, value.FIELD, cpu0
//! packed    the bytes of key and value, of per-CPU kinds a value for each CPU, and nothing else
//! ```
//!
//! Keys and values are typed through BTF ([`crate::typed`]). If several rows have the same key, the
//! last one counts. Prefixes lose the bits behind their length.

mod apply;
mod csv;
mod cut;
mod json;

use std::io::{self, BufRead};

use towpath_bpf::map::{Keys, Values};
use towpath_bpf::suggest;

use crate::map::Map;
use crate::prog_array::number;
use crate::user::Value;

pub use apply::{LoadError, Loaded, Plan};

/// The format of rows in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Objects of key and value.
    Json,
    /// Lines of cells with commas between them.
    Csv,
    /// Bytes as they are in the map.
    Packed,
}

/// The reason why a file is refused; the map is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file can't be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// A part of the file is not a row of this map.
    #[error("{at}: {problem}")]
    Wrong {
        /// Its place: `line 17`, `row 3`.
        at: String,
        /// The mistake.
        problem: String,
    },
    /// The kind of map has no contents that could be loaded.
    #[error("a map of kind {kind} can't be loaded: {why}")]
    Kind {
        /// The kind.
        kind: &'static str,
        /// The reason.
        why: &'static str,
    },
}

/// Rows for one map, each key once.
#[derive(Debug)]
pub struct Rows {
    key_bytes: usize,
    value_bytes: usize,
    cpus: usize,
    is_percpu: bool,
    is_prefix: bool,
    bytes: Vec<u8>,
    /// Numbers of rows in the order of their keys' bytes; for kinds without keys, in the order of
    /// the file.
    by_key: Vec<u32>,
    /// The same rows in the order of the file.
    in_order: Vec<u32>,
    duplicates: usize,
}

impl Format {
    /// The format with this name.
    ///
    /// # Errors
    ///
    /// Fails if there is no such format.
    pub fn named(name: &str) -> Result<Format, String> {
        match name {
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            "packed" => Ok(Format::Packed),
            other => {
                let hint = suggest::among(other, ["json", "csv", "packed"]);
                Err(format!("no format \"{other}\"{hint}: json, csv or packed"))
            }
        }
    }
}

/// Reads all rows for a map.
///
/// # Errors
///
/// Fails with a [`RowsError`].
pub fn read(map: &Map, format: Format, from: &mut dyn BufRead) -> Result<Rows, RowsError> {
    may_be_loaded(map)?;
    let mut rows = Unsorted::new(map);
    match format {
        Format::Json => json::read(&mut rows, from)?,
        Format::Csv => csv::read(&mut rows, from)?,
        Format::Packed => packed(&mut rows, from)?,
    }
    Ok(rows.sorted())
}

/// Bytes are stored as they are; what stands for something else is stored element by element.
fn may_be_loaded(map: &Map) -> Result<(), RowsError> {
    let why = match map.kind().values() {
        Values::Bytes | Values::PerCpu | Values::Queued | Values::Members => return Ok(()),
        Values::Program | Values::Map | Values::Device | Values::Cpu | Values::Socket => {
            "its values stand for programs, maps, ports or sockets; `map update` stores them"
        }
        Values::Ranked | Values::Packets => "only programs add elements to it",
        Values::Records | Values::Events => "it holds records that programs send",
        Values::Pages => "it is memory without elements",
        Values::Host(_) => "its contents are the host's",
    };
    Err(RowsError::Kind { kind: map.kind().name(), why })
}

/// Reads rows without separators.
fn packed(rows: &mut Unsorted<'_>, from: &mut dyn BufRead) -> Result<(), RowsError> {
    loop {
        let size = rows.row_bytes();
        let row = rows.next(|number| format!("row {number}"))?;
        let mut done = 0;
        while done < size {
            match from.read(&mut row[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let number = rows.count();
        if done == 0 {
            rows.take_back();
            return Ok(());
        }
        let at = || format!("row {number}");
        if done < size {
            let problem = format!("it has {done} bytes, and a row of this map has {size}");
            return Err(wrong(at(), problem));
        }
        rows.check().map_err(|problem| wrong(at(), problem))?;
    }
}

fn wrong(at: String, problem: String) -> RowsError {
    RowsError::Wrong { at, problem }
}

/// Rows in the order of the file.
struct Unsorted<'a> {
    map: &'a Map,
    rows: Rows,
    /// Limit of rows: with more, most would replace each other.
    most: usize,
}

impl<'a> Unsorted<'a> {
    fn new(map: &'a Map) -> Unsorted<'a> {
        let has_keys = map.kind().keys() != Keys::None;
        let rows = Rows {
            key_bytes: if has_keys { map.key_size() as usize } else { 0 },
            value_bytes: map.value_size() as usize,
            cpus: if map.is_percpu() { map.cpus() } else { 1 },
            is_percpu: map.is_percpu(),
            is_prefix: map.kind().keys() == Keys::Prefix,
            bytes: Vec::new(),
            by_key: Vec::new(),
            in_order: Vec::new(),
            duplicates: 0,
        };
        let most = (map.max_entries() as usize).saturating_mul(2).saturating_add(SPARE);
        let most = most.min(ROWS_BYTES_MAX / rows.row_bytes().max(1)).min(u32::MAX as usize - 1);
        Unsorted { map, rows, most }
    }

    fn row_bytes(&self) -> usize {
        self.rows.row_bytes()
    }

    fn count(&self) -> usize {
        self.rows.bytes.len() / self.row_bytes().max(1)
    }

    /// Zeroes for the next row; `at` says where it comes from, of the row's number from 1.
    fn next(&mut self, at: impl Fn(usize) -> String) -> Result<&mut [u8], RowsError> {
        let (begin, size, count) = (self.rows.bytes.len(), self.row_bytes(), self.count());
        if count >= self.most {
            let places = self.map.max_entries();
            let problem = format!(
                "{count} rows came before it, and the map has room for {places} entries (E2BIG)"
            );
            return Err(wrong(at(count + 1), problem));
        }
        self.rows.bytes.resize(begin + size, 0);
        Ok(&mut self.rows.bytes[begin..])
    }

    fn take_back(&mut self) {
        let left = self.rows.bytes.len() - self.row_bytes();
        self.rows.bytes.truncate(left);
    }

    /// Checks the last row's key, and brings the row into the form in which the map returns it.
    fn check(&mut self) -> Result<(), String> {
        let Rows { key_bytes, value_bytes, .. } = self.rows;
        let begin = self.rows.bytes.len() - self.rows.row_bytes();
        let (key, values) = self.rows.bytes[begin..].split_at_mut(key_bytes);
        match self.map.kind().keys() {
            Keys::Index if number(key) >= self.map.max_entries() => {
                let entries = self.map.max_entries();
                return Err(format!("key: {}, and the map has {entries} entries", number(key)));
            }
            Keys::Prefix => shorten(key)?,
            _ => {}
        }
        for value in values.chunks_mut(value_bytes.max(1)) {
            for field in self.map.fields() {
                let (from, size) = (field.offset as usize, field.size as usize);
                value[from..from + size].fill(0);
            }
        }
        Ok(())
    }

    /// All rows, for each key the last.
    fn sorted(mut self) -> Rows {
        let count = self.count() as u32;
        let mut rows = std::mem::replace(&mut self.rows, Unsorted::new(self.map).rows);
        let mut numbers: Vec<u32> = (0..count).collect();
        if rows.key_bytes > 0 {
            numbers.sort_by(|one, other| rows.key(*one).cmp(rows.key(*other)));
            // The sort is stable: behind equal keys comes the last one.
            let kept: Vec<u32> = numbers
                .chunk_by(|one, other| rows.key(*one) == rows.key(*other))
                .filter_map(|same| same.last().copied())
                .collect();
            rows.duplicates = numbers.len() - kept.len();
            numbers = kept;
        }
        rows.in_order.clone_from(&numbers);
        rows.in_order.sort_unstable();
        rows.by_key = numbers;
        rows
    }
}

/// Clears the bits of a prefix that are behind its length.
fn shorten(key: &mut [u8]) -> Result<(), String> {
    let (length, data) = key.split_at_mut(4.min(key.len()));
    let bits = number(length) as usize;
    if bits > data.len() * 8 {
        return Err(format!("key: a prefix of {bits} bits, and its data has {}", data.len() * 8));
    }
    for (at, byte) in data.iter_mut().enumerate() {
        let kept = bits.saturating_sub(at * 8).min(8);
        *byte &= !(0xff_u16 >> kept) as u8;
    }
    Ok(())
}

impl Rows {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.key_bytes + self.value_bytes * self.cpus
    }

    /// Rows, each key once.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Number of rows that were followed by another one with the same key.
    pub fn duplicates(&self) -> usize {
        self.duplicates
    }

    /// Whether a row has this key.
    pub fn has(&self, key: &[u8]) -> bool {
        self.place(key).is_some()
    }

    /// Keys, and values one behind the other, as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.in_order.iter().map(|row| self.row(*row).split_at(self.key_bytes))
    }

    /// The position of a key among the rows.
    fn place(&self, key: &[u8]) -> Option<usize> {
        let mut short;
        let mut key = key;
        if self.is_prefix {
            short = key.to_vec();
            shorten(&mut short).ok()?;
            key = &short;
        }
        self.by_key.binary_search_by(|row| self.key(*row).cmp(key)).ok()
    }

    fn row(&self, row: u32) -> &[u8] {
        let size = self.row_bytes();
        let begin = row as usize * size;
        &self.bytes[begin..begin + size]
    }

    fn key(&self, row: u32) -> &[u8] {
        &self.row(row)[..self.key_bytes]
    }

    fn value(&self, row: u32) -> Value {
        let values = &self.row(row)[self.key_bytes..];
        match self.is_percpu {
            true => {
                let each = values.chunks(self.value_bytes.max(1));
                Value::PerCpu(each.map(<[u8]>::to_vec).collect())
            }
            false => Value::One(values.to_vec()),
        }
    }

    fn has_value(&self, row: u32, value: &Value) -> bool {
        let values = self.row(row)[self.key_bytes..].chunks(self.value_bytes.max(1));
        values.eq(value.cpus())
    }
}

/// Rows beyond twice a map's places: small maps may be loaded from files with repetitions.
const SPARE: usize = 1 << 10;
/// Bytes of all rows.
const ROWS_BYTES_MAX: usize = 4 << 30;

#[cfg(test)]
mod tests;
