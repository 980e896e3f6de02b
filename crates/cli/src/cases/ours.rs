//! Cases on Towpath: in the interpreter, as machine code, or observed for coverage.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::Env;
use towpath_bpf::interp::Fault;
use towpath_bpf::program::AttachType;
use towpath_maps::MapSet;
use towpath_testing::{Coverage, Watch, why_not_entered};
use towpath_xdp::host::Live;
use towpath_xdp::program::{LoadOptions, Select};
use towpath_xdp::{
    Dequeued, Exec, Finding, Frame, FrameQueue, Program, RedirectTarget, RxInfo, Sanitize, Tally,
    Worker,
};

use super::Ran;
use super::compare::{Seen, differences, shown};
use super::file::{Case, Step, Subject};
use crate::args::{ProgramCall, Selection, TestExec};
use crate::error::CliError;
use crate::mapfile::{self, Contents};
use crate::program::Opened;
use crate::session::{self, Session};

/// A program that is tested, read once for all cases of a file.
pub(super) struct Ready {
    pub(super) opened: Opened,
    /// The file's choice of a program in the object.
    selection: Selection,
    pub(super) cpus: usize,
    host: Arc<Live>,
    /// Whether the file brings its own table of routes.
    pub(super) has_host: bool,
}

impl Ready {
    /// Reads the object and the table of routes.
    pub(super) fn new(subject: &Subject, env: &Env) -> Result<Ready, CliError> {
        let opened = Opened::with_env(&subject.path, &subject.linking, env.clone())?;
        let host = subject.fib.as_deref().map(session::read_host).transpose()?.unwrap_or_default();
        let (host, has_host) = (Arc::new(host.into()), subject.fib.is_some());
        let selection = subject.selection.clone();
        Ok(Ready { opened, selection, cpus: subject.cpus, host, has_host })
    }

    /// Notes of the sanitizer on all cases together.
    pub(super) fn notes(&self, tally: &mut Tally) -> Vec<Finding> {
        if !tally.findings().is_empty() {
            self.opened.look_at_all(tally);
        }
        tally.findings()
    }

    /// The index of the program that a case is about.
    pub(super) fn program(&self, case: &Case) -> Result<usize, CliError> {
        match &case.program {
            Some(_) => self.opened.select(&Selection { name: case.program.clone(), section: None }),
            None => self.opened.select(&self.selection),
        }
    }
}

/// How the sanitizer runs in a case, and its findings.
pub(super) struct Watched<'a> {
    pub(super) sanitize: Sanitize,
    /// Findings in this case.
    pub(super) findings: Vec<Finding>,
    /// Findings in all cases of a file.
    pub(super) tally: &'a mut Tally,
}

/// Runs a case and compares its results. The sanitizer's findings are added, also if a run ends
/// early.
pub(super) fn run(
    ready: &Ready,
    case: &Case,
    exec: TestExec,
    watched: &mut Watched<'_>,
) -> Result<Ran, CliError> {
    let sanitize = watched.sanitize;
    let exec = match exec {
        TestExec::Jit => Exec::Jit,
        TestExec::Llvm => Exec::Llvm,
        _ => Exec::Interp,
    };
    if exec == Exec::Llvm
        && let Err(why) = towpath_jit::llvm_library()
    {
        return Ok(Ran::Skipped(format!("no LLVM: {why}")));
    }
    let (mut session, sources) = open(ready, case, exec, sanitize)?;
    session.program.wait_for_tier2(TIER2_TIMEOUT);
    if session.program.exec() != exec {
        let why = session.program.exec_status().fallback;
        return Ok(Ran::Skipped(why.unwrap_or_else(|| "not compiled in time".to_owned())));
    }
    // `track` works in the interpreter only, whatever `--exec` says.
    if sanitize != Sanitize::Track || exec == Exec::Interp {
        sanitize.begin(&mut session.worker);
    }
    let ran = compare(ready, case, &mut session, &sources);
    if let Some(sanitizer) = session.worker.sanitizer() {
        watched.findings.extend(sanitizer.take());
        watched.tally.add(sanitizer);
    }
    ran.map(Ran::Done)
}

/// Runs a case's steps; gives the differences from the expected results.
fn compare(
    ready: &Ready,
    case: &Case,
    session: &mut Session,
    sources: &Sources,
) -> Result<Vec<String>, CliError> {
    let defs = session.program.maps().defs();
    let mut found = Vec::new();
    each_step(case, session, |session, index, step, frame| {
        let faulted = |fault| CliError::Fault { frame: index as u64 + 1, fault: Box::new(fault) };
        let (mut verdict, mut dequeued, mut called) = (None, None, None);
        if let Some(name) = &step.dequeue {
            let mut out = Dequeued::default();
            let ran = sources[name].dequeue(&mut session.worker, (step.ifindex, 1), 0, &mut out);
            ran.map_err(faulted)?;
            dequeued = Some(left(out, frame).map_err(faulted)?);
        } else if let Some(call) = &step.call {
            called = Some(call_program(ready, &sources[&call.name], call, &mut session.worker)?);
        } else {
            verdict = Some(session.program.run(&mut session.worker, frame).map_err(faulted)?);
        }
        let target = verdict.as_ref().and_then(|verdict| verdict.target.as_ref());
        let maps = (!step.expect.maps.is_empty()).then(|| {
            let names: Vec<String> = step.expect.maps.keys().cloned().collect();
            serde_json::to_value(Contents::of(&session.program, &names)).unwrap_or_default()
        });
        let metadata = frame.metadata_len();
        let mut packet = frame.to_vec_with_metadata();
        let seen = Seen {
            returned: verdict.as_ref().map_or(0, |verdict| verdict.returned),
            target: Some(target.map(ToString::to_string)),
            metadata: packet.drain(..metadata).collect(),
            packet,
            maps,
            printed: Some(session.program.surroundings().trace.take()),
            dequeued,
            called,
            sent: Some(sent(session.program.maps())),
        };
        put_into_queue(target, frame);
        let differences = differences(&step.expect, &seen, &defs, ready.cpus);
        found.extend(shown(case, index, differences));
        Ok(())
    })?;
    Ok(found)
}

/// Runs a case in the interpreter, and adds what it reached.
pub(super) fn observe(ready: &Ready, case: &Case, coverage: &mut Coverage) -> Result<(), CliError> {
    let watch = Arc::new(Watch::default());
    let (mut session, sources) = open(ready, case, Exec::Interp, Sanitize::Off)?;
    session.worker.set_observer(Some(Arc::clone(&watch) as _));
    each_step(case, &mut session, |session, _, step, frame| {
        let worker = &mut session.worker;
        if let Some(name) = &step.dequeue {
            let mut out = Dequeued::default();
            let _told = sources[name].dequeue(worker, (step.ifindex, 1), 0, &mut out);
        } else if let Some(call) = &step.call {
            let _told = sources[&call.name].call(worker, &mut call.context.clone());
        } else if let Ok(verdict) = session.program.run(worker, frame) {
            put_into_queue(verdict.target.as_ref(), frame);
        }
        Ok(())
    })?;
    coverage.add(session.program.code().linked(), &watch);
    Ok(())
}

/// The other programs that a case runs, by name: dequeue programs, and those that it calls.
type Sources = BTreeMap<String, Program>;

/// Loads the programs that a case runs.
fn open(
    ready: &Ready,
    case: &Case,
    exec: Exec,
    sanitize: Sanitize,
) -> Result<(Session, Sources), CliError> {
    let mut options = LoadOptions {
        workers: ready.cpus,
        host: host(ready, case),
        exec,
        ..LoadOptions::default()
    };
    sanitize.prepare(&mut options);
    // Hints are for programs that are bound to a port: this one is bound to the port of the case.
    options.verifier.device_bound = true;
    let opened = &ready.opened;
    let index = ready.program(case)?;
    let mut sources = Sources::new();
    let session = Session::load(opened, opened.program_name(index), &options, |loader| {
        for step in &case.steps {
            let (name, attach, kind) = match (&step.dequeue, &step.call) {
                (Some(name), _) => (name, AttachType::Dequeue, "dequeue"),
                (_, Some(call)) => (&call.name, AttachType::Syscall, "syscall"),
                _ => continue,
            };
            let program = loader.program(Select::Name(name));
            let program = program.map_err(|error| opened.load_error(error))?;
            if program.attach() != attach {
                let message = format!("case {:?}: {name} is not a {kind} program", case.name);
                return Err(refused(&case.file, &message));
            }
            sources.insert(name.clone(), program);
        }
        let filled = mapfile::fill_from(&case.maps, loader);
        filled.map_err(|message| refused(&case.file, &format!("case {:?}: {message}", case.name)))
    })?;
    session.program.surroundings().clock.set(CLOCK_START.as_nanos() as u64);
    for (index, connection) in case.connections.iter().enumerate() {
        session.program.enter_connection(connection).map_err(|errno| {
            let why = why_not_entered(errno);
            let message = format!("case {:?}: connection {}: {why}", case.name, index + 1);
            refused(&case.file, &message)
        })?;
    }
    Ok((session, sources))
}

/// The file's host, with the sockets of a case.
fn host(ready: &Ready, case: &Case) -> Arc<Live> {
    if case.sockets.is_empty() {
        return Arc::clone(&ready.host);
    }
    let mut host = ready.host.current().host().clone();
    host.sockets.clone_from(&case.sockets);
    Arc::new(host.into())
}

/// Calls a program; gives its result, and the context that it leaves.
fn call_program(
    ready: &Ready,
    program: &Program,
    call: &ProgramCall,
    worker: &mut Worker,
) -> Result<(u32, Vec<u8>), CliError> {
    let mut context = call.context.clone();
    let returned = program.call(worker, &mut context);
    let returned = returned.map_err(|error| refused(&ready.opened.path, &error.to_string()))?;
    Ok((returned, context))
}

/// Takes the packet that a dequeue program sends as the step's frame; gives whether there is one,
/// and the number of packets that the program dropped.
fn left(mut out: Dequeued, frame: &mut Frame) -> Result<(bool, u64), Fault> {
    if let Some((_, fault)) = out.faults.pop() {
        return Err(fault);
    }
    let sent = out.frames.pop();
    let sends = sent.is_some();
    if let Some(sent) = sent {
        *frame = sent;
    }
    Ok((sends, out.dropped.len() as u64))
}

/// Puts a packet that is redirected into a queue there, to wait for a dequeue program.
fn put_into_queue(target: Option<&RedirectTarget>, frame: &mut Frame) {
    if let Some(RedirectTarget::Entry { map, key, .. }) = target
        && let Some(queue) = FrameQueue::of(map)
    {
        let mut frame = std::mem::take(frame);
        frame.set_rank(*key);
        // Packets that do not fit are dropped, as in an engine.
        queue.push_all(&mut vec![frame], 0, &mut Vec::new());
    }
}

/// Runs each step, with the clock advanced as the case says.
fn each_step(
    case: &Case,
    session: &mut Session,
    mut run: impl FnMut(&mut Session, usize, &Step, &mut Frame) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut now = CLOCK_START;
    for (index, step) in case.steps.iter().enumerate() {
        now += step.advance;
        session.program.surroundings().clock.set(now.as_nanos() as u64);
        if step.dequeue.is_some() || step.call.is_some() {
            run(session, index, step, &mut Frame::default())?;
            continue;
        }
        let bytes = [&step.metadata[..], &step.packet].concat();
        let frame = Frame::with_metadata(&bytes, step.metadata.len());
        let mut frame = frame.map_err(|error| {
            refused(&case.file, &format!("case {:?}: packet {}: {error}", case.name, index + 1))
        })?;
        frame.rx = RxInfo { ifindex: step.ifindex, queue_index: step.queue, ..frame.rx };
        step.hints.put_on(&mut frame);
        send(session.program.maps(), step).map_err(|message| {
            refused(&case.file, &format!("case {:?}: packet {}: {message}", case.name, index + 1))
        })?;
        run(session, index, step, &mut frame)?;
    }
    Ok(())
}

/// Puts the samples that user space sends into user ring buffers.
fn send(maps: &MapSet, step: &Step) -> Result<(), String> {
    for (name, samples) in &step.send {
        let map = maps.maps().iter().find(|map| map.name() == name);
        let ring = map.and_then(|map| map.user_ringbuf());
        let ring = ring.ok_or_else(|| format!("send: no user ring buffer {name:?}"))?;
        for sample in samples {
            ring.send(sample).map_err(|errno| format!("send.{name}: {errno}"))?;
        }
    }
    Ok(())
}

/// Takes the program's records out of ring buffers and perf events, by the maps' names.
fn sent(maps: &MapSet) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut all: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for map in maps.maps() {
        let mut records = Vec::new();
        if let Some(ring) = map.ringbuf() {
            ring.consume(|record| {
                records.push(record.to_vec());
                ControlFlow::Continue(())
            });
        } else if let Some(perf) = map.perf() {
            records.extend(
                (0..perf.slots()).flat_map(|slot| std::iter::from_fn(move || perf.read(slot))),
            );
        } else {
            continue;
        }
        all.insert(map.name().to_owned(), records);
    }
    all
}

fn refused(path: &Path, message: &str) -> CliError {
    CliError::Text { path: path.to_owned(), message: message.to_owned() }
}

/// Time at which clocks begin: programs that compare it with a time of 0 in a map see a time long
/// ago.
const CLOCK_START: Duration = Duration::from_secs(3600);
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);
