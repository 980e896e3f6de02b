//! Packet queues, and the ports whose dequeue programs empty them, as the API shows them.

use towpath_engine::{DequeueHook, Port};
use towpath_objects::MapObject;
use towpath_xdp::FrameQueue;

use crate::control::Inner;
use crate::model::messages::{DequeueView, QueueView};

/// All packet queues, by map.
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
