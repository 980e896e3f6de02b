//! `towpath run`: every frame of a capture through a program, and the verdicts.

mod burst;
mod report;
mod sample;
mod sink;
mod tally;
mod time;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use towpath_capture::{LINK_TYPE_ETHERNET, Reader};
use towpath_xdp::Finding;

use crate::args::{RunArgs, RunPeer};
use crate::bench;
use crate::error::{CliError, Status};
use crate::interrupt::Interrupt;
use crate::output::{Output, Progress};
use crate::session::Session;
use burst::Burst;
use sample::Sample;
use sink::Sink;
use tally::Tally;
use time::Time;

use report::{Compared, Report};
pub(crate) use report::{executed_by, print_trace};

/// Runs a program over a capture.
pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<Status, CliError> {
    if args.repeat > 1 && args.input == Path::new("-") {
        return Err(CliError::RepeatStdin);
    }
    let RunArgs { object, selection, program, surroundings, .. } = args;
    let mut session = Session::open(object, selection, program, surroundings, args.exec.into())?;
    let mut sink = args.output.as_deref().map(Sink::create).transpose()?;
    if args.output.as_deref() == Some(Path::new("-")) {
        output.step_aside()?;
    }
    let (mut tally, mut sample) = (Tally::default(), Sample::default());
    let mut time = Time::new(args.clock);
    let progress = Progress::new(total_bytes(args));
    // An error in a capture is reported after the frames before it were counted and written.
    let mut broken = None;
    let interrupt = Interrupt::expect();
    for pass in 0..args.repeat {
        time.begin_pass();
        let (tally, sample, time, progress) = (&mut tally, &mut sample, &mut time, &progress);
        let mut pass = Pass { args, pass, tally, sample, time, progress, interrupt: &interrupt };
        let result = pass.over_capture(&mut session, sink.as_mut());
        if let Some(sink) = sink.take() {
            sink.finish()?;
        }
        match result {
            // A frame that was being read at the interrupt does not count.
            _ if interrupt.is_seen() => break,
            Ok(()) => {}
            Err(error @ CliError::Capture { .. }) => {
                broken = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    progress.finish();
    if interrupt.is_seen() {
        output.note("interrupted: these are the results so far");
    }
    match broken.or(tally.fault.take()) {
        Some(error) if tally.frames == 0 => Err(error),
        None if tally.is_of_other_links() => Err(CliError::LinkType {
            path: args.input.clone(),
            link_type: tally.links.keys().next().copied().unwrap_or_default(),
        }),
        broken => {
            let beside = match broken.is_some() || interrupt.is_seen() {
                true => None,
                false => beside(args, &tally, &sample, output),
            };
            let findings = session.findings();
            let is_refused = findings.iter().any(Finding::is_error);
            let (program, tally) = (&session.program, &tally);
            let report = Report { args, program, tally, beside, findings };
            report.print(broken.as_ref(), output)?;
            let otherwise = if is_refused { Status::Refused } else { Status::Ok };
            Ok(broken.map_or(otherwise, |error| error.status()))
        }
    }
}

/// The program on one of its frames in the running kernel, if the report is to show it.
fn beside(args: &RunArgs, tally: &Tally, sample: &Sample, output: &Output) -> Option<Compared> {
    let is_wanted = match args.against {
        Some(peer) => peer == RunPeer::Kernel,
        None => !output.json && tally.judged() >= FRAMES_WORTH_IT,
    };
    let (number, action, bytes) = sample.typical().filter(|_| is_wanted)?;
    let is_called = !args.surroundings.calls.is_empty();
    let called = is_called.then_some("programs that --call names are not called there");
    let outcome = match unfit(tally).or(called) {
        Some(why) => Err(why.to_owned()),
        None => bench::beside_kernel(args, bytes.to_vec()),
    };
    Some(Compared { number, action, bytes: bytes.len(), outcome })
}

/// Reason why a program is not run some thousand times in the kernel just to measure its speed.
fn unfit(tally: &Tally) -> Option<&'static str> {
    if !tally.trace.is_empty() {
        return Some("its output would fill the kernel's trace");
    }
    let is_slow = tally.ns_per_frame() > FRAME_NS_MAX;
    is_slow.then_some("a frame takes more than 0.1 ms: towpath bench takes its time")
}

/// Number of bytes to read over all passes, if known.
fn total_bytes(args: &RunArgs) -> Option<u64> {
    let metadata = std::fs::metadata(&args.input).ok().filter(std::fs::Metadata::is_file)?;
    Some(metadata.len().saturating_mul(args.repeat.into()))
}

/// One pass over the capture.
struct Pass<'a> {
    args: &'a RunArgs,
    /// Number of the pass, from 0.
    pass: u32,
    tally: &'a mut Tally,
    sample: &'a mut Sample,
    time: &'a mut Time,
    progress: &'a Progress,
    interrupt: &'a Interrupt,
}

impl Pass<'_> {
    fn over_capture(
        &mut self,
        session: &mut Session,
        sink: Option<&mut Sink>,
    ) -> Result<(), CliError> {
        if self.args.input == Path::new("-") {
            let stdin = BufReader::with_capacity(1 << 18, self.interrupt.ends(std::io::stdin()));
            return self.over(Reader::new(stdin), session, sink);
        }
        let path = &self.args.input;
        let file =
            File::open(path).map_err(|source| CliError::File { path: path.clone(), source })?;
        let file = BufReader::with_capacity(1 << 18, self.interrupt.ends(file));
        self.over(Reader::new(file), session, sink)
    }

    fn over<R: std::io::Read>(
        &mut self,
        reader: Result<Reader<R>, towpath_capture::Error>,
        session: &mut Session,
        mut sink: Option<&mut Sink>,
    ) -> Result<(), CliError> {
        let failed = |source| CliError::Capture { path: self.args.input.clone(), source };
        let mut reader = reader.map_err(failed)?;
        let mut burst = Burst::new(self.args.surroundings.ifindex);
        let mut number = 0;
        let mut result = Ok(());
        loop {
            let full = match reader.next_packet().map_err(failed) {
                Ok(Some(packet)) => {
                    number += 1;
                    self.tally.frame(&packet);
                    if packet.link_type != LINK_TYPE_ETHERNET {
                        self.tally.skip_link(packet.link_type);
                        continue;
                    }
                    let clock_ns = self.time.of(packet.timestamp_ns);
                    match burst.push(&packet, number, clock_ns) {
                        Ok(()) => self.sample.frame(number, packet.data),
                        Err(error) => self.tally.skip(error),
                    }
                    burst.is_full()
                }
                Ok(None) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            if full && self.interrupt.is_seen() {
                break;
            }
            if full {
                self.judge(&mut burst, &reader, session, sink.as_deref_mut())?;
            }
        }
        self.judge(&mut burst, &reader, session, sink)?;
        result
    }

    /// Runs the burst, counts its verdicts and writes the frames that survived.
    fn judge<R: std::io::Read>(
        &mut self,
        burst: &mut Burst,
        reader: &Reader<R>,
        session: &mut Session,
        sink: Option<&mut Sink>,
    ) -> Result<(), CliError> {
        self.tally.elapsed += burst.run(session, &mut self.tally.fault);
        self.tally.events.drain(session.program.maps());
        self.tally.printed(session.program.surroundings().trace.take());
        for judged in burst.judged() {
            self.tally.verdict(judged.verdict, judged.frame.len() as u64);
            self.sample.verdict(judged.verdict);
        }
        if let Some(sink) = sink {
            for judged in burst.judged() {
                sink.write(&judged, reader.interfaces())?;
            }
        }
        burst.clear();
        let size = self.progress.total().unwrap_or(0) / u64::from(self.args.repeat);
        self.progress.at(u64::from(self.pass) * size + reader.offset(), self.tally.frames);
        Ok(())
    }
}

/// Number of frames below which speed is of no interest.
const FRAMES_WORTH_IT: u64 = 1000;
const FRAME_NS_MAX: f64 = 100_000.0;
