//! Cuts a text into its JSON objects, one after another or in a list.

use std::io::BufRead;

use super::{RowsError, wrong};

/// The rest of a text.
pub(super) struct Objects<'a> {
    from: &'a mut dyn BufRead,
    /// Line of the next byte.
    line: u64,
    /// The form of the text; unknown before the first object.
    list: Option<List>,
    object: Vec<u8>,
    /// Bytes of an object at most.
    most: usize,
}

/// Whether objects are in a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    No,
    Open,
    Closed,
}

/// The place of a byte in an object.
#[derive(Default)]
struct Place {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

impl Place {
    /// Processes a byte.
    fn pass(&mut self, byte: u8) {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

impl<'a> Objects<'a> {
    pub(super) fn new(from: &'a mut dyn BufRead, most: usize) -> Objects<'a> {
        Objects { from, line: 1, list: None, object: Vec::new(), most }
    }

    /// The next object, and the line that it begins in.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, RowsError> {
        self.object.clear();
        let (mut place, mut begin) = (Place::default(), 0);
        loop {
            let buffer = self.from.fill_buf()?;
            if buffer.is_empty() {
                return self.end(begin);
            }
            let (mut used, mut from) = (0, 0);
            for &byte in buffer {
                if place.depth == 0 {
                    if byte == b'{' {
                        begin = self.line;
                        from = used;
                        self.list = self.list.or(Some(List::No));
                    }
                    let next = between(self.list, byte);
                    self.list = next.map_err(|problem| wrong(at(self.line), problem))?;
                }
                used += 1;
                self.line += u64::from(byte == b'\n');
                if begin > 0 {
                    place.pass(byte);
                    if place.depth == 0 {
                        break;
                    }
                }
            }
            if begin > 0 {
                self.object.extend_from_slice(&buffer[from..used]);
            }
            self.from.consume(used);
            if self.object.len() > self.most {
                let problem = format!("a row of more than {} bytes of text", self.most);
                return Err(wrong(at(begin), problem));
            }
            if begin > 0 && place.depth == 0 {
                return Ok(Some((begin, &self.object)));
            }
        }
    }

    /// The text ends.
    fn end(&self, begin: u64) -> Result<Option<(u64, &[u8])>, RowsError> {
        if begin > 0 {
            return Err(wrong(at(begin), "the text ends within this row".to_owned()));
        }
        if self.list == Some(List::Open) {
            return Err(wrong(at(self.line), "the text ends within its list".to_owned()));
        }
        Ok(None)
    }
}

pub(super) fn at(line: u64) -> String {
    format!("line {line}")
}

/// The form of the text after a byte between two objects.
fn between(list: Option<List>, byte: u8) -> Result<Option<List>, String> {
    match (list, byte) {
        (list, b' ' | b'\t' | b'\r' | b'\n') => Ok(list),
        (None, b'[') => Ok(Some(List::Open)),
        (Some(List::Open), b']') => Ok(Some(List::Closed)),
        (Some(List::Open), b',') => Ok(list),
        (Some(List::Open | List::No), b'{') => Ok(list),
        (Some(List::Closed), _) => Err("the list has ended".to_owned()),
        _ => {
            let found = char::from(byte).escape_default();
            Err(format!("'{found}', expected a row: {{\"key\": ..., \"value\": ...}}"))
        }
    }
}
