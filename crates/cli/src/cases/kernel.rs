//! Cases on the running kernel.

use std::sync::Arc;

use rustix::thread::{CpuSet, sched_setaffinity};
use towpath_kernel::TestRun;

use super::Ran;
use super::compare::{Seen, differences, shown};
use super::file::{Case, Hints, Step};
use super::ours::Ready;
use crate::error::CliError;
use crate::kernel_session::KernelSession;

/// Runs a case, and compares what the kernel tells: verdict, packet, metadata and maps.
pub(super) fn run(ready: &Ready, case: &Case) -> Result<Ran, CliError> {
    let on_one_cpu = || {
        // One CPU counts all packets of a case.
        let _stays = stay_here();
        run_here(ready, case)
    };
    std::thread::scope(|scope| match scope.spawn(on_one_cpu).join() {
        Ok(ran) => ran,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run_here(ready: &Ready, case: &Case) -> Result<Ran, CliError> {
    if let Some(why) = case.steps.iter().find_map(impossible) {
        return Ok(Ran::Skipped(why.to_owned()));
    }
    if ready.has_host {
        return Ok(Ran::Skipped("the kernel has its own routes and neighbours".to_owned()));
    }
    let linked = ready.opened.link(ready.index)?;
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
    for (index, step) in case.steps.iter().enumerate() {
        let bytes = [&step.metadata[..], &step.packet].concat();
        let run = TestRun {
            meta_bytes: step.metadata.len() as u32,
            ingress_ifindex: step.ifindex,
            rx_queue_index: step.queue,
            ..TestRun::new(&bytes)
        };
        let result =
            program.test_run(&run).map_err(|error| CliError::KernelRefused(error.to_string()))?;
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
        };
        let differences = differences(&step.expect, &seen, &defs, session.possible_cpus());
        found.extend(shown(case, index, differences));
    }
    Ok(Ran::Done(found))
}

fn stay_here() -> rustix::io::Result<()> {
    let mut here = CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    sched_setaffinity(None, &here)
}

/// What `BPF_PROG_TEST_RUN` can't be told.
fn impossible(step: &Step) -> Option<&'static str> {
    if !step.advance.is_zero() {
        Some("the kernel's clock is not ours to set")
    } else if step.hints != Hints::default() {
        Some("a test run in the kernel has no hints")
    } else {
        None
    }
}
