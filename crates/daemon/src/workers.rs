//! Workers, as the API shows them: what each polls, how busy it is, and with which programs.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};
use towpath_engine::{Mode, Moved, Port, PortId, WorkerLoad};
use towpath_objects::ProgramObject;
use towpath_xdp::Standing;
use utoipa::ToSchema;

use crate::control::{Control, Inner};
use crate::metrics::{Encoded, family};
use crate::natural::natural;

/// A worker: a thread that polls receive queues.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Its number, which programs see as that of their CPU.
    pub worker: usize,
    /// The CPU that it was told to stay on.
    pub cpu: Option<usize>,
    /// `adaptive` or `busy`: whether it sleeps when there is nothing to do.
    pub mode: String,
    /// The receive queues that it polls, by port.
    pub queues: Vec<PolledView>,
    /// Names of ports that spread their flows over workers, this one among them (`spread`).
    #[serde(default)]
    pub shares: Vec<String>,
    /// Share of the last seconds, 0 to 1, in which it had something to do. To look for frames and
    /// find none is not part of it.
    pub busy: f64,
    /// Seconds in which it had something to do, since the daemon started.
    pub busy_seconds: f64,
    /// Frames a second, lately.
    pub frames_per_second: f64,
    /// Frames out of receive queues, from other workers and out of queues of packets, since the
    /// daemon started.
    pub frames: u64,
    /// Programs that it was in when it was looked at in the last ten seconds, the most often first.
    pub programs: Vec<ProgramShare>,
}

/// Receive queues of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolledView {
    /// The port.
    pub port: String,
    /// Numbers of its queues.
    pub queues: Vec<u32>,
}

/// What part of a worker's time a program takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgramShare {
    /// Its id; nothing for a program of a guest.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// Share of the worker's time, 0 to 1.
    pub share: f64,
}

impl Control {
    /// Has a queue move where a worker has too much to do, and tells of it.
    pub(crate) fn balance_workers(&self) {
        let Some(moved) = self.read(|inner| inner.live.engine.balance()) else { return };
        let Moved { port, queue, from, to } = moved;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        self.news().change(&format!(
            "port {port}: queue {queue} goes from worker {}, which was {} busy, to worker {}, {}",
            from.0,
            percent(from.1),
            to.0,
            percent(to.1)
        ));
    }
}

/// All workers, by number.
pub(crate) fn all(inner: &Inner) -> Vec<WorkerView> {
    let engine = &inner.live.engine;
    let polled = polled(inner);
    let known = inner.session().progs();
    // Before the counters: a share is never more than all of it by that.
    let now = Instant::now();
    let before = inner.news.history.lately(now);
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
            // Those of a port stand together.
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

/// The ports whose flows are spread over workers, this one among them.
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

/// Workers as metrics.
pub(crate) fn encode(workers: &[WorkerView], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let label = |it: &WorkerView| [("worker", it.worker.to_string())];
    let help = "Seconds in which a worker had something to do";
    let busy = workers.iter().map(|it| (label(it), ConstCounter::new(it.busy_seconds)));
    family(encoder, "worker_busy_seconds", help, busy)?;
    let help = "Frames that a worker received, or took over";
    let frames = workers.iter().map(|it| (label(it), ConstCounter::new(it.frames)));
    family(encoder, "worker_frames", help, frames)?;
    let queues = workers.iter().map(|it| {
        let count = it.queues.iter().map(|port| port.queues.len()).sum::<usize>();
        (label(it), ConstGauge::new(count as i64))
    });
    family(encoder, "worker_queues", "Receive queues that a worker polls", queues)?;
    let ports = workers.iter().map(|it| (label(it), ConstGauge::new(it.shares.len() as i64)));
    let help = "Ports of which a worker runs the programs on flows of its own";
    family(encoder, "worker_shares", help, ports)?;
    let shares = workers.iter().flat_map(|it| {
        it.programs.iter().map(|program| {
            let id = program.id.map_or_else(String::new, |id| id.to_string());
            let labels =
                [("worker", it.worker.to_string()), ("program", program.name.clone()), ("id", id)];
            (labels, ConstGauge::new(program.share))
        })
    });
    let help = "Share of a worker's time that a program took in the last ten seconds";
    family(encoder, "worker_program_share", help, shares)
}
