//! The journal: what users changed in maps since the document was written, a line each. A line is
//! written before its change is acknowledged, and has a checksum of its own: the last one may have
//! been cut, and what is damaged of one hurts no other.

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
    /// Of whole lines.
    len: u64,
}

impl Journal {
    pub(super) fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal { file: File::create(path)?, len: 0 })
    }

    /// Adds a line. One that does not fit leaves nothing.
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

    /// From now on, a machine that loses its power keeps it, too.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a journal says, and how many of its lines are damaged.
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

/// The lines of a file; none when there is no file.
pub(super) fn load(path: &Path) -> io::Result<(Vec<Line>, usize)> {
    Ok(read_if_there(path, BYTES_MAX)?.map_or((Vec::new(), 0), |bytes| parse(&bytes)))
}

/// Longer than any that a daemon writes: it starts a new one with each document.
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
            // A line is whole with the first of its two ends.
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
            // One that is cut by a bit that became a line feed is two.
            assert!(lines.len() == 4 || (1..=2).contains(&damaged), "bit {at}: {damaged}");
        }
    }
}
