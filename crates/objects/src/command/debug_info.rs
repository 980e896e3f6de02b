//! Records of functions and source lines that come with a program.
//!
//! Kernel counterpart: `check_btf_info` and what it calls.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::btf::emit::{FUNC_INFO_BYTES, LINE_INFO_BYTES};
use towpath_bpf::btf::{Btf, Kind};
use towpath_bpf::program::{Function, Line};

use super::Call;
use super::log::Refusal;
use crate::attr::prog_load as field;
use crate::caller::{copy_in, is_zeroed};
use crate::object::btf::BtfObject;

/// A program's debug information in BTF.
#[derive(Debug, Default)]
pub(super) struct DebugInfo {
    pub(super) btf: Option<Arc<BtfObject>>,
    pub(super) functions: Vec<Function>,
    pub(super) lines: Vec<Line>,
    /// The records as they came, in the sizes of `bpf.h`.
    pub(super) function_records: Vec<u8>,
    pub(super) line_records: Vec<u8>,
}

/// One kind of record: where the attribute has what, and its size here.
struct Records {
    name: &'static str,
    address: usize,
    count: usize,
    size: usize,
    known: usize,
}

const FUNCTIONS: Records = Records {
    name: "func info",
    address: field::FUNC_INFO,
    count: field::FUNC_INFO_CNT,
    size: field::FUNC_INFO_REC_SIZE,
    known: FUNC_INFO_BYTES,
};

const LINES: Records = Records {
    name: "line info",
    address: field::LINE_INFO,
    count: field::LINE_INFO_CNT,
    size: field::LINE_INFO_REC_SIZE,
    known: LINE_INFO_BYTES,
};

impl Call<'_> {
    /// Reads the attribute's records of functions and lines, for `insns` slots.
    pub(super) fn debug_info(&mut self, insns: usize) -> Result<DebugInfo, Refusal> {
        let mut info = DebugInfo::default();
        if self.u32(field::FUNC_INFO_CNT) == 0 && self.u32(field::LINE_INFO_CNT) == 0 {
            return Ok(info);
        }
        let handle = self.caller.handle(self.u32(field::PROG_BTF_FD))?;
        let btf = Arc::clone(handle.btf()?);
        info.function_records = self.records(&FUNCTIONS)?;
        info.functions = functions(&info.function_records, btf.types(), insns)?;
        info.line_records = self.records(&LINES)?;
        info.lines = lines(&info.line_records, &btf, insns)?;
        check_starts(&info)?;
        info.btf = Some(btf);
        Ok(info)
    }

    /// Records of the caller's size, truncated to the size known here.
    fn records(&mut self, of: &Records) -> Result<Vec<u8>, Refusal> {
        let (count, size) = (self.u32(of.count) as usize, self.u32(of.size) as usize);
        if count == 0 {
            return Ok(Vec::new());
        }
        if size < of.known || size > RECORD_BYTES_MAX || !size.is_multiple_of(4) {
            let text = format!("invalid {} rec size {size}\n", of.name);
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        if count > RECORDS_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut records = Vec::new();
        for index in 0..count as u64 {
            let place = self.u64(of.address).wrapping_add(index * size as u64);
            let tail = place.wrapping_add(of.known as u64);
            if !is_zeroed(self.caller, tail, size - of.known)? {
                self.attr.answer(self.caller, of.size, of.known as u32)?;
                let text = format!("nonzero tailing record in {}", of.name);
                return Err(Refusal::new(Errno::E2BIG, text));
            }
            records.extend(copy_in(self.caller, place, of.known)?);
        }
        Ok(records)
    }
}

/// `check_btf_func_early`
fn functions(records: &[u8], btf: &Btf, insns: usize) -> Result<Vec<Function>, Refusal> {
    let mut functions: Vec<Function> = Vec::new();
    for record in records.as_chunks::<FUNC_INFO_BYTES>().0 {
        let [start, type_id] = words(record);
        let expected = functions.last().map(|last| last.start);
        let in_order = match expected {
            None => start == 0,
            Some(last) => start > last && (start as usize) < insns,
        };
        if !in_order {
            let text = format!("invalid or out of order insn_off {start} in func info record\n");
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        let Some((ty, &Kind::Func { linkage, .. })) = btf.get(type_id).map(|ty| (ty, &ty.kind))
        else {
            let text = format!("invalid type id {type_id} in func info\n");
            return Err(Refusal::new(Errno::EINVAL, text));
        };
        let (name, type_id) = (ty.name.to_string(), Some(type_id));
        functions.push(Function { start, name, linkage, type_id });
    }
    Ok(functions)
}

/// `check_btf_line`
fn lines(records: &[u8], btf: &BtfObject, insns: usize) -> Result<Vec<Line>, Refusal> {
    let strings = Btf::string_section(btf.bytes()).unwrap_or_default();
    let mut lines: Vec<Line> = Vec::new();
    for (index, record) in records.as_chunks::<LINE_INFO_BYTES>().0.iter().enumerate() {
        let [insn, file, text, place] = words(record);
        let in_order = lines.last().is_none_or(|last| insn > last.insn);
        if !in_order || insn as usize >= insns {
            let text = format!("Invalid line_info[{index}].insn_off:{insn}\n");
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        let (Some(file), Some(text)) = (string(strings, file), string(strings, text)) else {
            let text = format!("Invalid line_info[{index}].line_off or .file_name_off\n");
            return Err(Refusal::new(Errno::EINVAL, text));
        };
        lines.push(Line { insn, file, text, line: place >> 10, column: place & 0x3ff });
    }
    Ok(lines)
}

/// Every function begins with a line, if there are lines at all.
fn check_starts(info: &DebugInfo) -> Result<(), Refusal> {
    let known = |start: u32| info.lines.binary_search_by_key(&start, |line| line.insn).is_ok();
    let starts = info.functions.iter().map(|function| function.start).chain([0]);
    for start in starts.filter(|_| !info.lines.is_empty()) {
        if !known(start) {
            let text = format!("missing bpf_line_info for the function at {start}\n");
            return Err(Refusal::new(Errno::EINVAL, text));
        }
    }
    Ok(())
}

/// The string at an offset (`btf_name_offset_valid`).
fn string(strings: &[u8], offset: u32) -> Option<Arc<str>> {
    let tail = strings.get(offset as usize..).filter(|tail| !tail.is_empty())?;
    let text = tail.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).trim_start().into())
}

/// The 32-bit words of a record.
fn words<const N: usize>(record: &[u8]) -> [u32; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(record.as_chunks().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    words
}

/// Largest record of a caller (`MAX_FUNCINFO_REC_SIZE`).
const RECORD_BYTES_MAX: usize = 252;
/// No program has more instructions.
const RECORDS_MAX: usize = 1_000_000;
