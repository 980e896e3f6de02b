//! Queues of packets, and the ports that take packets out of them, as the API shows them.

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde::{Deserialize, Serialize};
use towpath_engine::{DequeueHook, Port};
use towpath_objects::MapObject;
use towpath_xdp::FrameQueue;
use utoipa::ToSchema;

use crate::control::Inner;
use crate::metrics::{Encoded, family};

/// A queue: a map of kind `pifo_xdp`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// The map's id.
    pub map_id: u32,
    /// Its name.
    pub name: String,
    /// Packets in it now.
    pub depth: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many packets there is room for.
    pub max_entries: u32,
    /// For how long half of the packets waited that left lately, in nanoseconds.
    pub wait_p50_ns: u64,
    /// For how long all but one in a hundred of them waited at most.
    pub wait_p99_ns: u64,
    /// Packets that came in since the map was made.
    pub enqueued: u64,
    /// Packets that were taken out.
    pub dequeued: u64,
    /// Packets it had no room for.
    pub drops_full: u64,
    /// Packets whose rank was below the window.
    pub drops_rank: u64,
    /// Packets that the dequeue program dropped.
    pub drops_program: u64,
    /// Ports whose dequeue programs know it.
    pub ports: Vec<String>,
}

/// A port with a dequeue program.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DequeueView {
    /// The port.
    pub port: String,
    /// The program.
    pub program: String,
    /// The worker that runs it.
    pub worker: usize,
    /// Bytes that may be on their way at the port; 0 when it does not say how much room it has.
    pub limit_bytes: u64,
    /// Bytes that are.
    pub in_flight_bytes: u64,
    /// Packets out of queues that the port had no room for yet.
    pub kept: u64,
}

/// All queues, by map.
pub(crate) fn all(inner: &Inner) -> Vec<QueueView> {
    inner.session().maps().iter().filter_map(|object| view(inner, object)).collect()
}

fn view(inner: &Inner, object: &MapObject) -> Option<QueueView> {
    let map = object.map();
    let status = FrameQueue::of(map)?.status();
    let knows = |port: &&Port| port.dequeue.as_ref().is_some_and(|hook| hook.knows(map));
    let ports = inner.live.engine.read(|_, snapshot| {
        let ports = snapshot.ports.iter().flatten().map(|port| &**port).filter(knows);
        ports.map(|port| port.name.to_string()).collect()
    });
    let counts = status.counts;
    Some(QueueView {
        map_id: object.id(),
        name: object.name().to_string(),
        depth: counts.depth,
        bytes: counts.bytes,
        max_entries: map.max_entries(),
        wait_p50_ns: status.wait_p50_ns,
        wait_p99_ns: status.wait_p99_ns,
        enqueued: counts.enqueued,
        dequeued: counts.dequeued,
        drops_full: counts.drops_full,
        drops_rank: counts.drops_rank,
        drops_program: counts.drops_program,
        ports,
    })
}

/// All ports with a dequeue program.
pub(crate) fn dequeues(inner: &Inner) -> Vec<DequeueView> {
    let view = |port: &Port, hook: &DequeueHook| DequeueView {
        port: port.name.to_string(),
        program: hook.link().program.name().to_owned(),
        worker: hook.worker,
        limit_bytes: hook.schedule.limit_bytes(),
        in_flight_bytes: hook.schedule.in_flight_bytes(),
        kept: hook.schedule.kept(),
    };
    inner.live.engine.read(|_, snapshot| {
        let ports = snapshot.ports.iter().flatten();
        ports.filter_map(|port| Some(view(port, port.dequeue.as_ref()?))).collect()
    })
}

/// Queues and ports as metrics.
pub(crate) fn encode(
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
