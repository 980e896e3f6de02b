//! The notation of values in scripts.
//!
//! | written | means |
//! | --- | --- |
//! | `17`, `-1`, `0x10` | a number |
//! | `array`, `xdp` | a map or program type, where one is asked for |
//! | `m` | the descriptor with that name, or another number with a name |
//! | `id:m` | the id of its object |
//! | `kfunc:bpf_x` | the id of a function's type, as the side's kernel has it |
//! | `"text"` | bytes in the attribute itself |
//! | `@0a0b,fd:m,u32:5,u64:7,id:m,zero:8,"text",[insns]` | a pointer to those bytes in a row |
//! | `&(...)` inside `@` | a pointer to other bytes |
//! | `?8`, `!8` | a pointer to room for 8 bytes, full of `aa` or zeroes, which is shown |

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::program::MapType;

use crate::asm;
use crate::side::{Memory, Numbers};

/// A value for a field.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(u64),
    Bytes(Vec<u8>),
    Pointer(Vec<Piece>),
    /// Bytes, and what they are filled with.
    Output(usize, u8),
}

/// A part of what a pointer leads to.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    Pointer(Vec<Piece>),
}

/// The meaning of names on one side.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) descriptors: Numbers,
    pub(crate) ids: Numbers,
    /// Interface indexes.
    pub(crate) numbers: Numbers,
    pub(crate) bpffs: String,
    /// Functions of its kernel.
    pub(crate) types: Option<Arc<Btf>>,
}

impl Value {
    pub(crate) fn number(&self) -> u64 {
        if let Value::Number(number) = self { *number } else { 0 }
    }
}

impl Names {
    /// The number that a word stands for.
    pub(crate) fn number(&self, word: &str) -> Option<u64> {
        if let Some(name) = word.strip_prefix("id:") {
            return self.ids.get(name).map(|&id| id.into());
        }
        if let Some(name) = word.strip_prefix("kfunc:") {
            return self.types.as_ref()?.find_func(name).map(u64::from);
        }
        let word = word.strip_prefix("fd:").unwrap_or(word);
        let named = self.descriptors.get(word).or_else(|| self.numbers.get(word));
        named.map(|&number| number.into()).or_else(|| plain(word))
    }

    /// The name of an object's id: the first in alphabetical order.
    pub(crate) fn name_of_id(&self, id: u32, first: char) -> String {
        if id == 0 {
            return "0".to_owned();
        }
        let mut names: Vec<&String> =
            self.ids.iter().filter(|(_, known)| **known == id).map(|(name, _)| name).collect();
        names.retain(|name| name.starts_with(first));
        names.sort();
        names.first().map_or("#unknown".to_owned(), |name| format!("#{name}"))
    }
}

/// Reads the value of a field; `None` when it makes no sense.
pub(crate) fn parse(text: &str, names: &Names, field: &str) -> Option<Value> {
    if let Some(bytes) = text.strip_prefix('?') {
        return Some(Value::Output(bytes.parse().ok()?, 0xaa));
    }
    if let Some(bytes) = text.strip_prefix('!') {
        return Some(Value::Output(bytes.parse().ok()?, 0));
    }
    if let Some(pieces) = text.strip_prefix('@') {
        return Some(Value::Pointer(parse_pieces(pieces, names)?));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return Some(Value::Bytes(quoted.strip_suffix('"')?.as_bytes().to_vec()));
    }
    if field == "map_type"
        && let Some(kind) = (0..64).filter_map(MapType::from_number).find(|k| k.name() == text)
    {
        return Some(Value::Number(u64::from(kind as u32)));
    }
    match (field, text) {
        ("prog_type", "xdp") => Some(Value::Number(6)),
        ("prog_type", "socket_filter") => Some(Value::Number(1)),
        _ => names.number(text).map(Value::Number),
    }
}

/// The bytes of pieces; what they point to is added to `memory` before.
pub(crate) fn join(pieces: &[Piece], memory: &mut Memory) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(more) => bytes.extend_from_slice(more),
            Piece::Pointer(pieces) => {
                let inner = join(pieces, memory);
                bytes.extend_from_slice(&memory.append(&inner).to_ne_bytes());
            }
        }
    }
    bytes
}

fn parse_pieces(text: &str, names: &Names) -> Option<Vec<Piece>> {
    split(text).into_iter().map(|piece| parse_piece(piece, names)).collect()
}

fn parse_piece(piece: &str, names: &Names) -> Option<Piece> {
    if let Some(inner) = piece.strip_prefix("&(") {
        return Some(Piece::Pointer(parse_pieces(inner.strip_suffix(')')?, names)?));
    }
    if let Some(quoted) = piece.strip_prefix('"') {
        let text = quoted.strip_suffix('"')?.replace("$D", &names.bpffs);
        return Some(Piece::Bytes([text.as_bytes(), &[0]].concat()));
    }
    if let Some(insns) = piece.strip_prefix('[') {
        return Some(Piece::Bytes(asm::assemble(insns.strip_suffix(']')?, names)?));
    }
    let bytes = match piece.split_once(':') {
        Some(("zero", count)) => vec![0; count.parse().ok()?],
        Some(("u64", number)) => names.number(number)?.to_ne_bytes().to_vec(),
        Some(("u16", number)) => (names.number(number)? as u16).to_ne_bytes().to_vec(),
        Some(("u32", number)) => (names.number(number)? as u32).to_ne_bytes().to_vec(),
        Some(("fd" | "id", _)) => (names.number(piece)? as u32).to_ne_bytes().to_vec(),
        _ => hex(piece)?,
    };
    Some(Piece::Bytes(bytes))
}

/// Pieces between commas that are not inside of brackets or quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '"' => quoted = !quoted,
            ',' if depth == 0 && !quoted => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    pieces
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// A number in decimal or hexadecimal.
pub(crate) fn plain(word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    word.parse::<u64>().ok().or_else(|| word.parse::<i64>().ok().map(|number| number as u64))
}
