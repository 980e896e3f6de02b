//! Metrics of workers.

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encode::{Encoded, family};
use crate::model::messages::WorkerView;

/// Encodes all workers.
pub(super) fn encode(workers: &[WorkerView], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
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
