//! Workers as the API shows them: queues, load and programs.

use std::sync::Arc;
use std::time::Instant;

use towpath_engine::{Mode, Port, PortId, WorkerLoad};
use towpath_objects::ProgramObject;
use towpath_xdp::Standing;

use crate::control::Inner;
use crate::model::messages::{PolledView, ProgramShare, WorkerView};
use crate::model::natural::natural;

/// All workers, by number.
pub(crate) fn all(inner: &Inner) -> Vec<WorkerView> {
    let engine = &inner.live.engine;
    let polled = polled(inner);
    let known = inner.session().progs();
    // Read before the counters, so that a share does not exceed 1 for that reason.
    let now = Instant::now();
    let before = inner.history.lately(now);
    let seconds = now.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
    let view = |(load, queues): (WorkerLoad, Vec<PolledView>)| {
        let (worked, frames) = before.workers.get(load.worker).copied().unwrap_or_default();
        let all = load.received + load.taken_over;
        let busy = load.worked.saturating_sub(worked).as_secs_f64() / seconds;
        WorkerView {
            worker: load.worker,
            cpu: load.cpu,
            mode: mode(load.mode).to_owned(),
            queues,
            shares: shared(inner, load.worker),
            busy: busy.min(1.0),
            busy_seconds: load.worked.as_secs_f64(),
            frames_per_second: all.saturating_sub(frames) as f64 / seconds,
            frames: all,
            programs: load.programs.iter().map(|it| share(&known, it)).collect(),
        }
    };
    engine.loads().into_iter().zip(polled).map(view).collect()
}

/// The queues that each worker polls.
fn polled(inner: &Inner) -> Vec<Vec<PolledView>> {
    let engine = &inner.live.engine;
    let mut all: Vec<Vec<PolledView>> = engine.read(|_, snapshot| {
        let of_worker = |polls: &Vec<(PortId, u32)>| {
            let mut found: Vec<PolledView> = Vec::new();
            // Queues of the same port are adjacent.
            for &(id, queue) in polls {
                let Some(port) = snapshot.port(id) else { continue };
                match found.last_mut().filter(|last| *last.port == *port.name) {
                    Some(last) => last.queues.push(queue),
                    None => {
                        found.push(PolledView { port: port.name.to_string(), queues: vec![queue] });
                    }
                }
            }
            found.sort_by(|one, other| natural(&one.port, &other.port));
            found
        };
        snapshot.polls.iter().map(of_worker).collect()
    });
    all.resize_with(engine.workers(), Vec::new);
    all
}

/// Ports that spread their flows over workers including this one.
fn shared(inner: &Inner, worker: usize) -> Vec<String> {
    let mut names: Vec<String> = inner.live.engine.read(|_, snapshot| {
        let takes_part = |port: &&Arc<Port>| {
            port.up && port.spread.as_ref().is_some_and(|all| all.contains(&worker))
        };
        let ports = snapshot.ports.iter().flatten().filter(takes_part);
        ports.map(|port| port.name.to_string()).collect()
    });
    names.sort_by(|one, other| natural(one, other));
    names
}

fn share(known: &[Arc<ProgramObject>], (standing, share): &(Arc<Standing>, f64)) -> ProgramShare {
    let is_it = |it: &&Arc<ProgramObject>| Arc::ptr_eq(it.program().standing(), standing);
    ProgramShare {
        id: known.iter().find(is_it).map(|it| it.id()),
        name: standing.program().to_owned(),
        share: *share,
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Adaptive => "adaptive",
        Mode::Busy => "busy",
    }
}
