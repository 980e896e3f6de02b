//! The journal: changes of maps by users since the document was written, one per line. A line is
//! written before its change is acknowledged, and has a checksum of its own: the last line may be
//! truncated, and a damaged line does not affect others.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use super::lines;
use crate::live::files::read_if_there;
use crate::model::saved::Line;

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    /// Length in bytes of all complete lines.
    len: u64,
}

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal { file: File::create(path)?, len: 0 })
    }

    /// Appends a line. If that fails, the file is truncated to its previous length.
    pub(super) fn add(&mut self, line: &Line) -> io::Result<()> {
        let text = lines::line(&serde_json::to_string(line)?);
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            self.file.set_len(self.len)?;
            io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.len))?;
            return Err(error);
        }
        self.len += text.len() as u64;
        Ok(())
    }

    /// Flushes the journal, so that it survives a loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Parses the intact lines of a journal; also returns the number of damaged ones.
pub fn parse(bytes: &[u8]) -> (Vec<Line>, usize) {
    let (whole, mut damaged) = lines::whole(bytes);
    let mut read = Vec::new();
    for line in whole {
        match serde_json::from_str(line) {
            Ok(line) => read.push(line),
            Err(_another) => damaged += 1,
        }
    }
    (read, damaged)
}

/// Parses a journal file; empty if there is no file.
pub(super) fn load(path: &Path) -> io::Result<(Vec<Line>, usize)> {
    Ok(read_if_there(path, BYTES_MAX)?.map_or((Vec::new(), 0), |bytes| parse(&bytes)))
}

/// Larger than any journal, since each document starts a new one.
const BYTES_MAX: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::saved::{Change, What};

    #[test]
    fn a_journal_may_be_cut_anywhere() {
        let path = std::env::temp_dir().join(format!("towpath-journal-{}", std::process::id()));
        let mut journal = Journal::create(&path).expect("there is room");
        let line = |key: u32| Line {
            map: 1,
            what: What::Element {
                change: Change { key: key.into(), value: (key != 2).then(|| 9.into()), port: None },
            },
        };
        (0..4).try_for_each(|key| journal.add(&line(key))).expect("there is room");
        let bytes = std::fs::read(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(parse(&bytes), ((0..4).map(line).collect(), 0));
        for len in 0..bytes.len() {
            // The first of the two line feeds completes a line.
            let ends = bytes[..len].iter().filter(|byte| **byte == b'\n').count();
            let whole = ends.div_ceil(2) as u32;
            assert_eq!(parse(&bytes[..len]), ((0..whole).map(line).collect(), 0), "{len}");
        }
    }

    #[test]
    fn a_damaged_line_of_a_journal_takes_no_other_with_it() {
        let line = |key: u32| Line {
            map: 1,
            what: What::Contents {
                contents: "0123".to_owned(),
                changes: vec![Change { key: key.into(), value: Some(9.into()), port: None }],
            },
        };
        let text = |key| lines::line(&serde_json::to_string(&line(key)).expect("it is JSON"));
        let bytes = (0..4).map(text).collect::<String>().into_bytes();
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let (lines, damaged) = parse(&bytes);
            assert!(lines.len() >= 3, "bit {at}: {lines:?}");
            assert!(lines.iter().all(|read| (0..4).any(|key| *read == line(key))), "bit {at}");
            // A flipped bit that makes a line feed splits a line into two.
            assert!(lines.len() == 4 || (1..=2).contains(&damaged), "bit {at}: {damaged}");
        }
    }
}
