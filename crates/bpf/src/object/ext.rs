//! The `.BTF.ext` section: for each instruction offset its function type, source line and CO-RE
//! relocation.
//!
//! Records are grouped by section name and carry byte offsets there. They are kept sorted by
//! offset, so that a function takes the part that belongs to it.

use std::collections::HashMap;

use super::ObjectError;
use super::elf::limit;
use crate::btf::{Name, Strings, TypeId};

/// Everything in `.BTF.ext`, by section name.
#[derive(Debug, Default)]
pub(super) struct BtfExt {
    pub(super) functions: HashMap<Name, Vec<FuncInfo>>,
    pub(super) lines: HashMap<Name, Vec<LineInfo>>,
    pub(super) relocations: HashMap<Name, Vec<CoreRelocation>>,
}

/// The type of the function that starts at an offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct FuncInfo {
    pub(super) offset: u32,
    pub(super) type_id: TypeId,
}

/// The source position of the instructions from an offset on.
#[derive(Debug, Clone)]
pub(super) struct LineInfo {
    pub(super) offset: u32,
    pub(super) file: Name,
    pub(super) text: Name,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// `struct bpf_core_relo`: the meaning of an instruction's immediate or offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CoreRelocation {
    pub(super) offset: u32,
    /// Root type, in the object's BTF.
    pub(super) type_id: TypeId,
    /// Path from the root, e.g. `0:1:2`.
    pub(super) access: Name,
    /// `enum bpf_core_relo_kind`.
    pub(super) kind: u32,
}

/// A record with its place in the section.
trait Placed {
    fn offset(&self) -> u32;
}

impl Placed for FuncInfo {
    fn offset(&self) -> u32 {
        self.offset
    }
}

impl Placed for LineInfo {
    fn offset(&self) -> u32 {
        self.offset
    }
}

impl Placed for CoreRelocation {
    fn offset(&self) -> u32 {
        self.offset
    }
}

impl BtfExt {
    /// Parses the section; `strings` is the string section of `.BTF`.
    pub(super) fn parse(data: &[u8], strings: &[u8]) -> Result<BtfExt, ObjectError> {
        let mut strings = Strings::new(&[], strings)?;
        let mut reader = Reader { data, strings: &mut strings, trimmed: HashMap::new() };
        if reader.word(0)? & 0xffff != 0xeb9f {
            return Err(wrong(0, "magic number 0xeb9f is missing"));
        }
        let header = reader.word(4)? as usize;
        let functions = reader.table(header, 8, 8, |reader, at| {
            Ok(FuncInfo { offset: reader.word(at)?, type_id: reader.word(at + 4)? })
        })?;
        let lines = reader.table(header, 16, 16, |reader, at| {
            let position = reader.word(at + 12)?;
            Ok(LineInfo {
                offset: reader.word(at)?,
                file: reader.string(at + 4)?,
                text: reader.trimmed(at + 8)?,
                line: position >> 10,
                column: position & 0x3ff,
            })
        })?;
        // Objects without CO-RE may have the shorter header that ends before its offsets.
        let relocations = if header >= 32 {
            reader.table(header, 24, 16, |reader, at| {
                Ok(CoreRelocation {
                    offset: reader.word(at)?,
                    type_id: reader.word(at + 4)?,
                    access: reader.string(at + 8)?,
                    kind: reader.word(at + 12)?,
                })
            })?
        } else {
            HashMap::new()
        };
        Ok(BtfExt { functions, lines, relocations })
    }
}

struct Reader<'a, 'b> {
    data: &'a [u8],
    strings: &'b mut Strings<'a>,
    /// Source lines without indentation, by string offset.
    trimmed: HashMap<u32, Name>,
}

impl Reader<'_, '_> {
    /// Reads the table whose offset and length are at `field` of the header; `least` is the number
    /// of bytes of a record that are used (newer compilers may write longer records).
    fn table<T: Placed>(
        &mut self,
        header: usize,
        field: usize,
        least: usize,
        mut record: impl FnMut(&mut Self, usize) -> Result<T, ObjectError>,
    ) -> Result<HashMap<Name, Vec<T>>, ObjectError> {
        let (offset, len) = (self.word(field)? as usize, self.word(field + 4)? as usize);
        let mut tables = HashMap::new();
        if len == 0 {
            return Ok(tables);
        }
        let mut at = header + offset;
        let end = at + len;
        if end > self.data.len() {
            return Err(wrong(field, "a table lies outside the section"));
        }
        let size = self.word(at)? as usize;
        if size < least || !size.is_multiple_of(4) {
            return Err(wrong(at, "unusable record size"));
        }
        at += 4;
        let mut total = 0;
        while at < end {
            let section = self.string(at)?;
            let count = self.word(at + 4)? as usize;
            at += 8;
            if count.checked_mul(size).is_none_or(|bytes| bytes > end.saturating_sub(at)) {
                return Err(wrong(at, "more records than the table has room for"));
            }
            total += count;
            limit("records in .BTF.ext", total, RECORDS_MAX)?;
            let list: &mut Vec<T> = tables.entry(section).or_default();
            for index in 0..count {
                list.push(record(self, at + index * size)?);
            }
            at += count * size;
        }
        tables.values_mut().for_each(|list| list.sort_by_key(Placed::offset));
        Ok(tables)
    }

    fn word(&self, at: usize) -> Result<u32, ObjectError> {
        let raw = self.data.get(at..).and_then(|rest| rest.first_chunk());
        raw.map(|&raw| u32::from_le_bytes(raw)).ok_or_else(|| wrong(at, "cut off"))
    }

    fn string(&mut self, at: usize) -> Result<Name, ObjectError> {
        let offset = self.word(at)?;
        self.strings
            .at(offset)
            .map_err(|what| wrong(at, &format!("the string at offset {offset} of .BTF {what}")))
    }

    /// As [`Self::string`], without indentation.
    fn trimmed(&mut self, at: usize) -> Result<Name, ObjectError> {
        let offset = self.word(at)?;
        if let Some(text) = self.trimmed.get(&offset) {
            return Ok(text.clone());
        }
        let text: Name = self.string(at)?.trim_start().into();
        self.trimmed.insert(offset, text.clone());
        Ok(text)
    }
}

/// The records of `list` for the bytes from `start` to `end`.
pub(super) fn part<T: Clone>(
    list: Option<&Vec<T>>,
    offset: impl Fn(&T) -> u32,
    start: u64,
    end: u64,
) -> &[T] {
    let Some(list) = list else { return &[] };
    let from = list.partition_point(|record| u64::from(offset(record)) < start);
    let to = list.partition_point(|record| u64::from(offset(record)) < end);
    &list[from..to.max(from)]
}

fn wrong(offset: usize, what: &str) -> ObjectError {
    ObjectError::Section {
        section: ".BTF.ext".to_owned(),
        what: format!("offset {offset:#x}: {what}"),
    }
}

/// Largest number of records: several for each instruction of the largest program.
const RECORDS_MAX: usize = 1 << 22;
