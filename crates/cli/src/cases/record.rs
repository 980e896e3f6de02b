//! Cases from a capture: the program's present results become the expected ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use towpath_capture::Reader;
use towpath_daemon::globals::hex;
use towpath_testing::{Watch, Way};
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

/// Runs each frame of a capture on fresh maps, and writes the first one of each path through the
/// program, and of each verdict, as a case.
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
    let (mut cases, mut known, mut frames) = (Vec::new(), BTreeSet::new(), 0);
    while let Some(packet) = reader.next_packet().map_err(broken)? {
        frames += 1;
        let start = Start::new(&opened, &program, packet.data, frames)?;
        if known.insert(start.way(frames)?) {
            let start = Start::new(&opened, &program, packet.data, frames)?;
            cases.push(start.case(packet.data, frames)?);
        }
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
    let line = format!(
        "{}: {count} cases, one for each path and verdict of {frames} frames",
        to.display()
    );
    output.line(&line)?;
    Ok(Status::Ok)
}

/// A frame and a program with fresh maps.
struct Start {
    session: Session,
    frame: Frame,
}

impl Start {
    fn new(opened: &Opened, program: &str, packet: &[u8], number: u64) -> Result<Start, CliError> {
        let options = LoadOptions { exec: Exec::Interp, ..LoadOptions::default() };
        let session = Session::load(opened, program, &options, |_| Ok(()))?;
        let mut frame = Frame::new(packet)
            .map_err(|source| CliError::Frame { path: format!("frame {number}").into(), source })?;
        frame.rx = RxInfo { ifindex: 1, ..frame.rx };
        Ok(Start { session, frame })
    }

    /// The verdict, and the path through the program to it.
    fn way(mut self, number: u64) -> Result<(u32, Way), CliError> {
        let (watch, Session { program, worker, .. }) = (Watch::default(), &mut self.session);
        let returned = program.run_observed(worker, &mut self.frame, &watch);
        let faulted = |fault| CliError::Fault { frame: number, fault: Box::new(fault) };
        Ok((returned.map_err(faulted)?, watch.way()))
    }

    /// A case that expects the program's present results.
    fn case(mut self, packet: &[u8], number: u64) -> Result<CaseDocument, CliError> {
        let Session { program, worker, .. } = &mut self.session;
        let run = program.run(worker, &mut self.frame);
        let run = run.map_err(|fault| CliError::Fault { frame: number, fault: Box::new(fault) })?;
        let after = self.frame.to_vec();
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
}

/// Path of the object, relative to the file of cases.
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
