//! `towpath bond hash`: the choice of a member for a flow, without a bond.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use towpath_capture::{LINK_TYPE_ETHERNET, PACKET_BYTES_MAX, Reader};
use towpath_engine::bond;

use super::hex;
use crate::args::BondHashArgs;
use crate::error::CliError;
use crate::output::Output;

/// Prints a line for each frame, also for those before one that can't be read.
pub(crate) fn hash(args: &BondHashArgs, output: &mut Output) -> Result<(), CliError> {
    match (&args.input, args.frame.as_deref()) {
        (Some(path), _) => of_capture(path, args, output),
        (None, Some("-")) => of_lines(args, output),
        (None, text) => {
            let mut frame = Vec::new();
            hex::parse(text.unwrap_or_default(), &mut frame).map_err(|problem| {
                CliError::Usage(format!("FRAME_HEX: line 1, column {}: {problem}", problem.column))
            })?;
            print(&frame, 1, args, output)
        }
    }
}

fn of_capture(path: &Path, args: &BondHashArgs, output: &mut Output) -> Result<(), CliError> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path);
        Box::new(file.map_err(|source| CliError::File { path: path.to_owned(), source })?)
    };
    let reader = Reader::new(BufReader::with_capacity(1 << 18, input));
    let mut reader =
        reader.map_err(|source| CliError::Capture { path: path.to_owned(), source })?;
    let mut number = 0;
    let broken = |source| CliError::Capture { path: path.to_owned(), source };
    while let Some(packet) = reader.next_packet().map_err(broken)? {
        number += 1;
        if packet.link_type != LINK_TYPE_ETHERNET {
            output.note(&format!("frame {number} is left out: link type {}", packet.link_type));
            continue;
        }
        print(packet.data, number, args, output)?;
    }
    Ok(())
}

/// Reads one frame from each line: an empty line, or a lone `-`, is the empty frame.
fn of_lines(args: &BondHashArgs, output: &mut Output) -> Result<(), CliError> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    let mut frame = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        let read = read.map_err(|source| CliError::File { path: PathBuf::from("-"), source })?;
        if read == 0 {
            break;
        }
        if read as u64 > LINE_BYTES_MAX {
            return Err(in_line(number, &format!("longer than {LINE_BYTES_MAX} characters")));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        let text = if text == "-" { "" } else { text };
        hex::parse(text, &mut frame)
            .map_err(|problem| in_line(number, &format!("column {}: {problem}", problem.column)))?;
        print(&frame, number, args, output)?;
    }
    Ok(())
}

fn in_line(number: u64, message: &str) -> CliError {
    CliError::Usage(format!("standard input: line {number}, {message}"))
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line {
    /// Number of the frame, from 1.
    frame: u64,
    hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<u32>,
}

fn print(
    frame: &[u8],
    number: u64,
    args: &BondHashArgs,
    output: &mut Output,
) -> Result<(), CliError> {
    let hash = bond::hash(args.policy, frame);
    let member = args.members.map(|members| hash % members);
    if output.json {
        return output.json(&Line { frame: number, hash: format!("{hash:08x}"), member });
    }
    match member {
        Some(member) => output.line(&format!("{hash:08x} {member}")),
        None => output.line(&format!("{hash:08x}")),
    }
}

/// Room for the longest frame of a capture, with a blank after each byte.
const LINE_BYTES_MAX: u64 = 3 * PACKET_BYTES_MAX as u64;
