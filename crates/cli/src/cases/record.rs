//! Cases from a capture: what a program does now is what it is expected to do.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use towpath_capture::Reader;
use towpath_daemon::globals::hex;
use towpath_xdp::program::LoadOptions;
use towpath_xdp::{Exec, Frame, RxInfo};

use super::compare::verdict;
use super::file::{CaseDocument, Document, ExpectDocument};
use crate::args::{ProgramArgs, Selection, TestArgs};
use crate::error::{CliError, Status};
use crate::files;
use crate::output::Output;
use crate::program::Opened;
use crate::session::Session;

/// Runs each frame of a capture on fresh maps, and writes it as a case.
pub(super) fn record(
    args: &TestArgs,
    capture: &Path,
    output: &mut Output,
) -> Result<Status, CliError> {
    let ([to], Some(object)) = (&args.paths[..], &args.object) else {
        let message = "--record writes one file of cases: towpath test --object OBJ --record \
                       A.pcap CASES.toml";
        return Err(CliError::Usage(message.to_owned()));
    };
    let opened = Opened::new(object, &ProgramArgs::default())?;
    let selection = Selection { name: args.name.clone(), section: None };
    let program = opened.program_name(opened.select(&selection)?).to_owned();
    let broken = |source| CliError::Capture { path: capture.to_owned(), source };
    let bytes = files::read(capture, "a capture", CAPTURE_BYTES_MAX)?;
    let mut reader = Reader::new(bytes.as_slice()).map_err(broken)?.limited(CAPTURE_BYTES_MAX);
    let mut cases = Vec::new();
    while let Some(packet) = reader.next_packet().map_err(broken)? {
        cases.push(case(&opened, &program, packet.data, cases.len() + 1)?);
    }
    let count = cases.len();
    let document = Document {
        object: Some(beside(object, to)),
        program: Some(program),
        cases,
        ..Document::default()
    };
    let text = toml::to_string(&document)
        .map_err(|error| CliError::Usage(format!("{}: {error}", to.display())))?;
    files::write(to, text.as_bytes())?;
    output.line(&format!("{}: {count} cases", to.display()))?;
    Ok(Status::Ok)
}

fn case(
    opened: &Opened,
    program: &str,
    packet: &[u8],
    number: usize,
) -> Result<CaseDocument, CliError> {
    let options = LoadOptions { exec: Exec::Interp, ..LoadOptions::default() };
    let mut session = Session::load(opened, program, &options, |_| Ok(()))?;
    let mut frame = Frame::new(packet)
        .map_err(|source| CliError::Frame { path: format!("frame {number}").into(), source })?;
    frame.rx = RxInfo { ifindex: 1, ..frame.rx };
    let run = session.program.run(&mut session.worker, &mut frame);
    let run =
        run.map_err(|fault| CliError::Fault { frame: number as u64, fault: Box::new(fault) })?;
    let after = frame.to_vec();
    let is_kept = matches!(run.returned, 2..=4);
    let expected = match after == packet {
        true => "unchanged".to_owned(),
        false => hex(&after),
    };
    Ok(CaseDocument {
        name: format!("frame {number}"),
        packet: Some(Json::from(hex(packet))),
        expect: Some(ExpectDocument {
            verdict: Some(Json::from(verdict(run.returned))),
            target: run.target.as_ref().map(ToString::to_string),
            packet: is_kept.then(|| Json::from(expected)),
            ..ExpectDocument::default()
        }),
        ..CaseDocument::default()
    })
}

/// The object's path from where the file of cases is.
fn beside(object: &Path, cases: &Path) -> PathBuf {
    let directory = cases.parent().filter(|it| !it.as_os_str().is_empty());
    let absolute = std::path::absolute(object).unwrap_or_else(|_no_directory| object.to_owned());
    match directory {
        None => object.to_owned(),
        Some(directory) => {
            let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
            let inside = absolute.strip_prefix(&directory).map(Path::to_owned);
            inside.unwrap_or(absolute)
        }
    }
}

const CAPTURE_BYTES_MAX: u64 = 256 << 20;
