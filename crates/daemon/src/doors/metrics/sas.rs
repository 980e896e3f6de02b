//! Metrics of security associations.

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encode::{Encoded, family};
use crate::model::ipsec::DirectionState;
use crate::model::messages::{SaStatus, SaView};

/// Encodes counters and states of all SAs.
pub(super) fn encode(all: &[SaView], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    type Read = fn(&SaView) -> u64;
    let counters: [(&str, &str, Read); 2] = [
        ("sa_packets", "IP packets that an SA encapsulated or decapsulated", |it| it.packets),
        ("sa_bytes", "Bytes of these packets, without what ESP adds", |it| it.bytes),
    ];
    for (name, help, read) in counters {
        let counters = all.iter().map(|sa| (labels(sa), ConstCounter::new(read(sa))));
        family(encoder, name, help, counters)?;
    }
    let help = "The last sequence number that an SA sent, or the highest that it received";
    let gauges = all.iter().map(|sa| (labels(sa), ConstGauge::new(sa.sequence as i64)));
    family(encoder, "sa_sequence", help, gauges)?;
    let is_usable = |sa: &SaView| matches!(sa.status, SaStatus::Active | SaStatus::Dying);
    let gauges = all.iter().map(|sa| (labels(sa), ConstGauge::new(i64::from(is_usable(sa)))));
    family(encoder, "sa_usable", "Packets can use an SA", gauges)?;
    let refused = all.iter().flat_map(|sa| {
        let [name, port, direction] = labels(sa);
        sa.refused.iter().map(move |(reason, count)| {
            ([name, port, direction, ("reason", &**reason)], ConstCounter::new(*count))
        })
    });
    family(encoder, "sa_refused", "Packets that an SA refused", refused)
}

fn labels(sa: &SaView) -> [(&'static str, &str); 3] {
    let direction = match sa.state.direction {
        DirectionState::In => "in",
        DirectionState::Out => "out",
    };
    [("sa", &sa.state.name), ("port", &sa.state.port), ("direction", direction)]
}
