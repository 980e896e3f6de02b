//! Cases on the running kernel.

use std::sync::Arc;

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_bpf::map::Values;
use towpath_bpf::program::AttachType;
use towpath_bpf::{Linked, MapDef};
use towpath_kernel::{KernelProgram, TestRun, TestRunResult};
use towpath_maps::mapfile::{self, Stored};
use towpath_testing::Hints;
use towpath_xdp::{Poison, Sanitize};

use super::Ran;
use super::compare::{Seen, differences, shown};
use super::file::{Case, Step};
use super::ours::Ready;
use crate::error::CliError;
use crate::kernel_session::KernelSession;

/// Runs a case, and compares the results that the kernel reports: verdict, packet, metadata and
/// maps.
pub(super) fn run(ready: &Ready, case: &Case, sanitize: Sanitize) -> Result<Ran, CliError> {
    let on_one_cpu = || {
        // On one CPU, per-CPU maps count all packets of a case in one value.
        let _stays = stay_here();
        run_here(ready, case, sanitize)
    };
    std::thread::scope(|scope| match scope.spawn(on_one_cpu).join() {
        Ok(ran) => ran,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run_here(ready: &Ready, case: &Case, sanitize: Sanitize) -> Result<Ran, CliError> {
    if let Some(why) = case.steps.iter().find_map(impossible) {
        return Ok(Ran::Skipped(why.to_owned()));
    }
    if ready.has_host {
        return Ok(Ran::Skipped("the kernel has its own routes and neighbours".to_owned()));
    }
    if !case.sockets.is_empty() || !case.connections.is_empty() {
        return Ok(Ran::Skipped("the kernel has its own sockets and connections".to_owned()));
    }
    let linked = ready.opened.link(ready.program(case)?)?;
    if matches!(linked.attach, AttachType::Devmap | AttachType::Cpumap) {
        return Ok(Ran::Skipped("the kernel runs such a program only from its map".to_owned()));
    }
    if linked.attach == AttachType::Dequeue || linked.maps.iter().any(|map| map.kind.is_ours()) {
        return Ok(Ran::Skipped("no kernel has such queues".to_owned()));
    }
    if names_absent_devices(&linked.maps, case) {
        return Ok(Ran::Skipped("it names interfaces that this machine does not have".to_owned()));
    }
    let mut session = match KernelSession::open(&ready.opened, &linked) {
        Err(CliError::Kernel(why)) => return Ok(Ran::Skipped(why.to_string())),
        session => session?,
    };
    session.fill_from(&case.maps).map_err(|message| CliError::Text {
        path: case.file.clone(),
        message: format!("case {:?}: {message}", case.name),
    })?;
    let program = session.load(&linked)?;
    let defs = Arc::clone(&linked.maps);
    let mut found = Vec::new();
    let mut poison = match sanitize {
        Sanitize::Poison(seed) => Some(Poison::new(seed)),
        Sanitize::Off | Sanitize::Track => None,
    };
    for (index, step) in case.steps.iter().enumerate() {
        let (result, called) = match &step.call {
            Some(call) => (TestRunResult::default(), Some(session.call(call)?)),
            None => (run_step(step, &session, (&program, &linked), poison.as_mut())?, None),
        };
        let maps = (!step.expect.maps.is_empty()).then(|| {
            let names: Vec<String> = step.expect.maps.keys().cloned().collect();
            serde_json::to_value(session.contents(&names)).unwrap_or_default()
        });
        let mut packet = result.data;
        let metadata = (result.context.data as usize).min(packet.len());
        let seen = Seen {
            returned: result.retval,
            target: None,
            metadata: packet.drain(..metadata).collect(),
            packet,
            maps,
            printed: None,
            dequeued: None,
            called,
            sent: None,
        };
        let differences = differences(&step.expect, &seen, &defs, session.possible_cpus());
        found.extend(shown(case, index, differences));
    }
    Ok(Ran::Done(found))
}

/// Runs the program on a step's packet; with poison, on a stack whose initial bytes are poisoned.
fn run_step(
    step: &Step,
    session: &KernelSession<'_>,
    (program, linked): (&KernelProgram, &Linked),
    poison: Option<&mut Poison>,
) -> Result<TestRunResult, CliError> {
    let bytes = [&step.metadata[..], &step.packet].concat();
    let run = TestRun {
        meta_bytes: step.metadata.len() as u32,
        ingress_ifindex: step.ifindex,
        rx_queue_index: step.queue,
        ..TestRun::new(&bytes)
    };
    match poison {
        Some(poison) => session.run_poisoned(program, linked, poison, &run),
        None => program.test_run(&run).map_err(|error| CliError::KernelRefused(error.to_string())),
    }
}

/// Whether the case puts an interface into a map that this machine does not have.
fn names_absent_devices(defs: &[MapDef], case: &Case) -> bool {
    let fillings = mapfile::parse(&case.maps, defs, 1).unwrap_or_default();
    let of_devices = fillings.iter().filter(|it| defs[it.map].kind.values() == Values::Device);
    let mut targets = of_devices.flat_map(|it| &it.steps).filter_map(|step| match step.stored {
        Stored::Target(ifindex, _) => Some(ifindex),
        _ => None,
    });
    targets.any(is_absent)
}

fn is_absent(ifindex: u32) -> bool {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let name = socket.and_then(|socket| index_to_name(&socket, ifindex));
    name.is_err()
}

fn stay_here() -> rustix::io::Result<()> {
    let mut here = CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    sched_setaffinity(None, &here)
}

/// The reason why `BPF_PROG_TEST_RUN` can't run a step, if there is one.
fn impossible(step: &Step) -> Option<&'static str> {
    if !step.advance.is_zero() {
        Some("the kernel's clock can't be set")
    } else if step.hints != Hints::default() {
        Some("a test run in the kernel has no hints")
    } else if !step.send.is_empty() {
        Some("user ring buffers in the kernel can't be written here")
    } else if is_absent(step.ifindex) || step.queue != 0 {
        Some("this machine lacks the step's interface or queue")
    } else {
        None
    }
}
