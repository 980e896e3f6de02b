//! Metrics of packet queues.

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encode::{Encoded, family};
use crate::model::messages::{DequeueView, QueueView};

/// Encodes all packet queues, and the ports with dequeue programs.
pub(super) fn encode(
    queues: &[QueueView],
    dequeues: &[DequeueView],
    encoder: &mut DescriptorEncoder<'_>,
) -> Encoded {
    type Read<T> = fn(&T) -> u64;
    let labels = |it: &QueueView| [("queue", it.name.clone()), ("map", it.map_id.to_string())];
    let with = |it: &QueueView, name, value| (labels(it), [(name, value)]);
    let gauges: [(&str, &str, Read<QueueView>); 2] = [
        ("queue_depth", "Packets in a queue", |it| it.depth),
        ("queue_bytes", "Bytes in a queue", |it| it.bytes),
    ];
    for (name, help, read) in gauges {
        let gauge = |it| (labels(it), ConstGauge::new(read(it) as i64));
        family(encoder, name, help, queues.iter().map(gauge))?;
    }
    let help = "Seconds that packets waited which left a queue lately";
    let waits = queues.iter().flat_map(|it| {
        let quantiles = [("0.5", it.wait_p50_ns), ("0.99", it.wait_p99_ns)];
        let seconds = |ns| ConstGauge::new(ns as f64 / 1e9);
        quantiles.map(|(quantile, ns)| (with(it, "quantile", quantile), seconds(ns)))
    });
    family(encoder, "queue_wait_seconds", help, waits)?;
    let counters: [(&str, &str, Read<QueueView>); 2] = [
        ("queue_enqueued", "Packets that came into a queue", |it| it.enqueued),
        ("queue_dequeued", "Packets that were taken out of a queue", |it| it.dequeued),
    ];
    for (name, help, read) in counters {
        let counter = |it| (labels(it), ConstCounter::new(read(it)));
        family(encoder, name, help, queues.iter().map(counter))?;
    }
    let drops = queues.iter().flat_map(|it| {
        let counts = [
            ("queue_full", it.drops_full),
            ("queue_rank", it.drops_rank),
            ("dequeue", it.drops_program),
        ];
        counts.map(|(reason, count)| (with(it, "reason", reason), ConstCounter::new(count)))
    });
    let help = "Packets that a queue or its dequeue program dropped";
    family(encoder, "queue_drops", help, drops)?;
    let gauges: [(&str, &str, Read<DequeueView>); 3] = [
        ("port_dequeue_limit_bytes", "Bytes that may be on their way at a port", |it| {
            it.limit_bytes
        }),
        ("port_dequeue_in_flight_bytes", "Bytes on their way at a port", |it| it.in_flight_bytes),
        ("port_dequeue_kept", "Packets out of queues that a port has no room for", |it| it.kept),
    ];
    for (name, help, read) in gauges {
        let gauge =
            |it: &DequeueView| ([("port", it.port.clone())], ConstGauge::new(read(it) as i64));
        family(encoder, name, help, dequeues.iter().map(gauge))?;
    }
    Ok(())
}
