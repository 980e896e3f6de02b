//! Executors of a test run: Towpath or the running kernel, with the same result type.

use std::path::Path;
use std::time::{Duration, Instant};

use towpath_kernel::TestRun;
use towpath_xdp::{Exec, ExecStatus, Finding, Frame, Poison, RxInfo, Sanitize};

use super::context::Context;
use crate::args::ProgRunArgs;
use crate::error::CliError;
use crate::events::Events;
use crate::kernel_session::KernelSession;
use crate::mapfile::{self, Contents};
use crate::program::Opened;
use crate::session::Session;

/// Time that a test run waits for LLVM; a program that takes longer runs on tier 1.
const TIER2_TIMEOUT: Duration = Duration::from_secs(60);

/// Result of a test run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The program's return value.
    pub(super) retval: u32,
    /// Metadata followed by the packet, as the program left them.
    pub(super) data: Vec<u8>,
    /// Positions of metadata and packet in `data`, among others.
    pub(super) context: Context,
    /// Average time of one run, in nanoseconds.
    pub(super) duration_ns: u64,
    /// Target of a redirected packet, as far as the engine has it.
    pub(super) target: Option<String>,
    /// Contents of the maps after the run, if they were asked for.
    pub(super) maps: Option<Contents>,
    /// Records from ring buffers and perf events.
    pub(super) events: Events,
    /// Lines that the program printed.
    pub(super) trace: Vec<String>,
    /// The engine in Towpath that ran the program.
    pub(super) exec: Option<ExecStatus>,
    /// Findings of the sanitizer.
    pub(super) findings: Vec<Finding>,
}

/// Runs the packet in Towpath.
pub(super) fn run_here(
    args: &ProgRunArgs,
    exec: Exec,
    (path, data): (&Path, &[u8]),
    context: Context,
) -> Result<Outcome, CliError> {
    let ProgRunArgs { selection, program, surroundings, .. } = args;
    let mut session = Session::open(args.object(), selection, program, surroundings, exec)?;
    let mut frame = Frame::with_metadata(data, context.data as usize)
        .map_err(|source| CliError::Frame { path: path.to_owned(), source })?;
    frame.rx = RxInfo {
        ifindex: context.ingress_ifindex,
        queue_index: context.rx_queue_index,
        ..frame.rx
    };
    let Session { program, worker, .. } = &mut session;
    // A single packet is most useful if it runs on the engine that was asked for.
    program.wait_for_tier2(TIER2_TIMEOUT);
    let start = Instant::now();
    let mut verdict = None;
    // As in the kernel, a repeated run gets the packet as the previous run left it.
    for _ in 0..args.repeat {
        let run = program.run(worker, &mut frame);
        verdict = Some(run.map_err(|fault| CliError::Fault { frame: 1, fault: Box::new(fault) })?);
    }
    let elapsed = start.elapsed();
    let findings = session.findings();
    let program = &session.program;
    let mut events = Events::default();
    events.drain(program.maps());
    let offset = frame.metadata_len() as u32;
    let verdict = verdict.as_ref();
    Ok(Outcome {
        retval: verdict.map_or(0, |verdict| verdict.returned),
        context: Context {
            data: offset,
            // The kernel reports the linear part only (`xdp_convert_buff_to_md`).
            data_end: offset + frame.linear_len() as u32,
            ..context
        },
        data: frame.to_vec_with_metadata(),
        duration_ns: per_run(elapsed.as_nanos(), args.repeat),
        target: verdict.and_then(|verdict| verdict.target.as_ref()).map(ToString::to_string),
        maps: surroundings.dump_maps.as_deref().map(|names| Contents::of(program, names)),
        events,
        trace: program.surroundings().trace.take(),
        exec: Some(program.exec_status()),
        findings,
    })
}

/// Loads the program into the running kernel and lets it run the packet.
pub(super) fn ask_kernel(
    args: &ProgRunArgs,
    data: &[u8],
    context: Context,
) -> Result<Outcome, CliError> {
    let ProgRunArgs { selection, program, surroundings, .. } = args;
    let opened = Opened::new(args.object(), program)?;
    let names = surroundings.dump_maps.as_deref().unwrap_or_default();
    mapfile::check_names(names, opened.object.maps())?;
    let linked = opened.link(opened.select(selection)?)?;
    let mut session = KernelSession::open(&opened, &linked)?;
    if let Some(path) = &surroundings.map_init {
        session.fill(path)?;
    }
    for call in &surroundings.calls {
        session.call(call)?;
    }
    let program = session.load(&linked)?;
    let run = TestRun {
        meta_bytes: context.data,
        ingress_ifindex: context.ingress_ifindex,
        rx_queue_index: context.rx_queue_index,
        repeat: args.repeat,
        ..TestRun::new(data)
    };
    let result = match surroundings.sanitize {
        Sanitize::Poison(seed) => {
            session.run_poisoned(&program, &linked, &mut Poison::new(seed), &run)?
        }
        Sanitize::Off => {
            program.test_run(&run).map_err(|error| CliError::KernelRefused(error.to_string()))?
        }
        Sanitize::Track => {
            let message = "--sanitize=track: what runs in the kernel can't be followed: leave out \
                           --exec kernel";
            return Err(CliError::Usage(message.to_owned()));
        }
    };
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
        maps: surroundings.dump_maps.as_deref().map(|names| session.contents(names)),
        events: Events::default(),
        trace: Vec::new(),
        exec: None,
        findings: Vec::new(),
    })
}

fn per_run(nanoseconds: u128, runs: u32) -> u64 {
    u64::try_from(nanoseconds / u128::from(runs.max(1))).unwrap_or(u64::MAX)
}
