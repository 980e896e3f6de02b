//! What executes a test run: the interpreter or the running kernel, with the same result type.

use std::collections::BTreeSet;
use std::time::Instant;

use towpath_bpf::Linked;
use towpath_bpf::program::SlotInit;
use towpath_kernel::{Kernel, KernelProgram, LoadError as KernelLoadError, MapSet, TestRun};
use towpath_xdp::{Frame, RxInfo};

use super::context::Context;
use crate::args::{ProgRunArgs, Selection};
use crate::error::CliError;
use crate::events::Events;
use crate::mapfile::{self, Contents};
use crate::program::Opened;
use crate::session::Session;

/// What a test run gives back.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The program's return value.
    pub(super) retval: u32,
    /// Metadata followed by the packet, as the program left them.
    pub(super) data: Vec<u8>,
    /// Where they are in `data`.
    pub(super) context: Context,
    /// Of one run, on average.
    pub(super) duration_ns: u64,
    /// Where a redirected packet goes, as far as the engine tells.
    pub(super) target: Option<String>,
    /// Maps afterwards, when they were asked for.
    pub(super) maps: Option<Contents>,
    /// What came through ring buffers and perf events.
    pub(super) events: Events,
    /// What the program printed.
    pub(super) trace: Vec<String>,
}

/// Runs the packet through the interpreter.
pub(super) fn interpret(
    args: &ProgRunArgs,
    data: &[u8],
    context: Context,
) -> Result<Outcome, CliError> {
    let ProgRunArgs { object, selection, program, surroundings, .. } = args;
    let mut session = Session::open(object, selection, program, surroundings)?;
    let mut frame = Frame::with_metadata(data, context.data as usize)
        .map_err(|source| CliError::Frame { path: args.data_in.clone(), source })?;
    frame.rx = RxInfo {
        ifindex: context.ingress_ifindex,
        queue_index: context.rx_queue_index,
        ..frame.rx
    };
    let Session { program, worker } = &mut session;
    let start = Instant::now();
    let mut verdict = None;
    // As in the kernel, a repeated run gets the packet as the run before left it.
    for _ in 0..args.repeat {
        let run = program.run(worker, &mut frame);
        verdict = Some(run.map_err(|fault| CliError::Fault { frame: 1, fault: Box::new(fault) })?);
    }
    let elapsed = start.elapsed();
    let mut events = Events::default();
    events.drain(program.maps());
    let metadata = frame.metadata().to_vec();
    let offset = metadata.len() as u32;
    let data = [metadata, frame.to_vec()].concat();
    let verdict = verdict.as_ref();
    Ok(Outcome {
        retval: verdict.map_or(0, |verdict| verdict.returned),
        context: Context {
            data: offset,
            // The kernel reports the linear part only (`xdp_convert_buff_to_md`).
            data_end: offset + frame.linear_len() as u32,
            ..context
        },
        data,
        duration_ns: per_run(elapsed.as_nanos(), args.repeat),
        target: verdict.and_then(|verdict| verdict.target.as_ref()).map(ToString::to_string),
        maps: surroundings.dump_maps.as_deref().map(|names| Contents::of(program, names)),
        events,
        trace: program.surroundings().trace.take(),
    })
}

/// Loads the program into the running kernel and lets it run the packet.
pub(super) fn ask_kernel(
    args: &ProgRunArgs,
    data: &[u8],
    context: Context,
) -> Result<Outcome, CliError> {
    let refused = |message: String| CliError::KernelRefused(message);
    let ProgRunArgs { object, selection, program, surroundings, .. } = args;
    let opened = Opened::new(object, program)?;
    let names = surroundings.dump_maps.as_deref().unwrap_or_default();
    mapfile::check_names(names, opened.object.maps())?;
    let linked = opened.link(opened.select(selection)?)?;
    let kernel = Kernel::open()?;
    let maps = kernel.load_maps(&linked.maps).map_err(|error| refused(error.to_string()))?;
    if let Some(path) = &surroundings.map_init {
        mapfile::fill_kernel(path, &linked.maps, &maps, kernel.possible_cpus())?;
    }
    let _tail_called = load_slots(&kernel, &opened, &linked, &maps)?;
    let program = kernel.load(&linked, &maps).map_err(|error| refused(load_message(&error)))?;
    let run = TestRun {
        meta_bytes: context.data,
        ingress_ifindex: context.ingress_ifindex,
        rx_queue_index: context.rx_queue_index,
        repeat: args.repeat,
        ..TestRun::new(data)
    };
    let result = program.test_run(&run).map_err(|error| refused(error.to_string()))?;
    let after = result.context;
    Ok(Outcome {
        retval: result.retval,
        data: result.data,
        context: Context {
            data: after.data,
            data_end: after.data_end,
            data_meta: after.data_meta,
            ingress_ifindex: after.ingress_ifindex,
            rx_queue_index: after.rx_queue_index,
            egress_ifindex: after.egress_ifindex,
        },
        duration_ns: result.duration_ns.into(),
        target: None,
        maps: surroundings
            .dump_maps
            .as_deref()
            .map(|names| Contents::of_kernel(&linked.maps, &maps, kernel.possible_cpus(), names)),
        events: Events::default(),
        trace: Vec::new(),
    })
}

/// Loads the programs that the object file puts into program arrays; they live as long as the
/// result.
fn load_slots(
    kernel: &Kernel,
    opened: &Opened,
    linked: &Linked,
    maps: &MapSet,
) -> Result<Vec<KernelProgram>, CliError> {
    let slots = linked.maps.iter().flat_map(|map| &map.slots);
    let names: BTreeSet<&str> = slots
        .filter_map(|(_, init)| match init {
            SlotInit::Program(name) => Some(name.as_str()),
            SlotInit::Map(_) => None,
        })
        .collect();
    let mut programs = Vec::with_capacity(names.len());
    for name in names {
        let selection = Selection { name: Some(name.to_owned()), section: None };
        let linked = opened.link(opened.select(&selection)?)?;
        let program = kernel.load(&linked, maps).map_err(|error| {
            CliError::KernelRefused(format!("{name}: {}", load_message(&error)))
        })?;
        maps.set_program(&program).map_err(|error| CliError::KernelRefused(error.to_string()))?;
        programs.push(program);
    }
    Ok(programs)
}

/// The kernel's last words in its log say what is wrong; the first say how it got there.
fn load_message(error: &KernelLoadError) -> String {
    let log: Vec<&str> =
        error.log().lines().filter(|line| !line.starts_with("processed")).collect();
    let tail = log[log.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
    match error.errno() {
        Some(errno) if !tail.is_empty() => format!("the program is refused: {errno}\n  {tail}"),
        _ => error.to_string(),
    }
}

fn per_run(nanoseconds: u128, runs: u32) -> u64 {
    u64::try_from(nanoseconds / u128::from(runs.max(1))).unwrap_or(u64::MAX)
}

const LOG_LINES_SHOWN: usize = 8;
