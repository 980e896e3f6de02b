//! Lines with checksums: damage of a line does not affect others. Two line feeds end a line, so
//! that a damaged line feed does not join two lines.

use crate::live::files::sha256;

/// Formats a text without line feeds as a line.
pub(super) fn line(text: &str) -> String {
    format!("{} {text}\n\n", checksum(text))
}

/// The intact lines in order, and the number of damaged ones. A last line without its end was
/// truncated while it was written, and is ignored.
pub(super) fn whole(bytes: &[u8]) -> (Vec<&str>, usize) {
    let (mut lines, mut damaged) = (Vec::new(), 0);
    for text in bytes.split_inclusive(|byte| *byte == b'\n').filter(|text| *text != b"\n") {
        match (one(text), text.ends_with(b"\n")) {
            (Some(line), _) => lines.push(line),
            (None, true) => damaged += 1,
            (None, false) => {}
        }
    }
    (lines, damaged)
}

fn one(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split_once(' ')?;
    (sum == checksum(text)).then_some(text)
}

/// Checksum of a text.
pub(super) fn checksum(text: &str) -> String {
    sha256(text.as_bytes())[..CHECKSUM_DIGITS].to_owned()
}

const CHECKSUM_DIGITS: usize = 16;
const _: () = assert!(CHECKSUM_DIGITS <= 64, "part of a SHA-256");
