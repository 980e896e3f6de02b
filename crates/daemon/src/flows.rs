//! Which way frames go from port to port, as the API shows it.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::control::Inner;
use crate::view;

/// Frames that arrive at one port and leave by another one, or by the same.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowView {
    /// The port where they arrive; nothing for what AF_XDP sockets send and what is made here.
    pub from: Option<String>,
    /// The port that sends them.
    pub to: String,
    /// Frames a second, lately: what the port sends is counted, and divided among those it comes
    /// from as in the bursts that were looked at.
    pub frames_per_second: f64,
}

/// All that was seen lately, by port.
pub(crate) fn all(inner: &Inner) -> Vec<FlowView> {
    let engine = &inner.live.engine;
    let now = Instant::now();
    let before = inner.news.history.lately(now);
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
            let sent = view::traffic(snapshot, port).tx_packets;
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
