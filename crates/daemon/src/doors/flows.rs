//! Traffic between ports, as the API shows it.

use std::time::Instant;

use crate::control::Inner;
use crate::live::traffic::traffic;
use crate::model::messages::FlowView;

/// Recent traffic, by sending port.
pub(crate) fn all(inner: &Inner) -> Vec<FlowView> {
    let engine = &inner.live.engine;
    let now = Instant::now();
    let before = inner.history.lately(now);
    let seconds = now.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
    let seen: Vec<((u32, u32), u64)> = engine
        .flows()
        .into_iter()
        .map(|(way, count)| {
            (way, count.saturating_sub(before.flows.get(&way).copied().unwrap_or(0)))
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    let all_to = |to: u32| -> u64 {
        seen.iter().filter(|((_, it), _)| *it == to).map(|(_, count)| count).sum()
    };
    let mut flows: Vec<FlowView> = engine.read(|_, snapshot| {
        let flow = |&((from, to), count): &((u32, u32), u64)| {
            let port = snapshot.port_of_ifindex(to)?;
            let sent = traffic(snapshot, port).tx_packets;
            let old = before.ports.get(&port.name).map_or(0, |port| port.tx_packets);
            let share = count as f64 / all_to(to).max(1) as f64;
            let from = snapshot.port_of_ifindex(from).map(|port| port.name.to_string());
            Some(FlowView {
                from,
                to: port.name.to_string(),
                frames_per_second: share * sent.saturating_sub(old) as f64 / seconds,
            })
        };
        seen.iter().filter_map(flow).collect()
    });
    flows.sort_by(|one, other| (&one.from, &one.to).cmp(&(&other.from, &other.to)));
    flows
}
