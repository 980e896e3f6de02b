//! The journal: what users changed in maps since the document was written, a line each. A line is
//! written before its change is acknowledged, and has a checksum of its own: the last one may have
//! been cut.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::document::Change;
use super::read_if_there;
use crate::file::sha256;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The map's id, as the document has it.
    pub map: u32,
    /// What became of an element.
    pub change: Change,
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// Of whole lines.
    len: u64,
}

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal { file: File::create(path)?, len: 0 })
    }

    /// Adds a line. One that does not fit leaves nothing.
    pub(super) fn add(&mut self, line: &Line) -> io::Result<()> {
        let json = serde_json::to_string(line)?;
        let text = format!("{} {json}\n", checksum(&json));
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            self.file.set_len(self.len)?;
            io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.len))?;
            return Err(error);
        }
        self.len += text.len() as u64;
        Ok(())
    }

    /// From now on, a machine that loses its power keeps it, too.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a journal says, up to the first line that is damaged; and whether there is one that is not
/// just the last.
pub fn parse(bytes: &[u8]) -> (Vec<Line>, bool) {
    let mut lines = Vec::new();
    let mut texts = bytes.split_inclusive(|byte| *byte == b'\n');
    for text in texts.by_ref() {
        let Some(line) = one(text) else { return (lines, texts.next().is_some()) };
        lines.push(line);
    }
    (lines, false)
}

fn one(text: &[u8]) -> Option<Line> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    let (sum, json) = text.split_once(' ')?;
    if sum != checksum(json) {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// The lines of a file; none when there is no file.
pub(super) fn load(path: &Path) -> io::Result<(Vec<Line>, bool)> {
    Ok(read_if_there(path, BYTES_MAX)?.map_or((Vec::new(), false), |bytes| parse(&bytes)))
}

fn checksum(json: &str) -> String {
    sha256(json.as_bytes())[..CHECKSUM_DIGITS].to_owned()
}

const CHECKSUM_DIGITS: usize = 16;
/// Longer than any that a daemon writes: it starts a new one with each document.
const BYTES_MAX: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_may_be_cut_anywhere() {
        let path = std::env::temp_dir().join(format!("towpath-journal-{}", std::process::id()));
        let mut journal = Journal::create(&path).expect("there is room");
        let line = |key: u32| Line {
            map: 1,
            change: Change { key: key.into(), value: (key != 2).then(|| 9.into()), port: None },
        };
        (0..4).try_for_each(|key| journal.add(&line(key))).expect("there is room");
        let bytes = std::fs::read(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(parse(&bytes), ((0..4).map(line).collect(), false));
        for len in 0..bytes.len() {
            let whole = bytes[..len].iter().filter(|byte| **byte == b'\n').count() as u32;
            assert_eq!(parse(&bytes[..len]), ((0..whole).map(line).collect(), false), "{len}");
        }
        let mut changed = bytes.clone();
        changed[3] ^= 1;
        assert_eq!(parse(&changed), (Vec::new(), true));
    }
}
