//! Metrics for Prometheus, read from the workers' counters at each request.

mod encode;
mod maps;
mod queues;
mod sas;
mod state;
#[cfg(test)]
mod tests;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Context;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::control::Control;
use crate::control::log;
use crate::doors::api::answer::look;
use crate::doors::api::error::ApiError;
use crate::doors::bonds;
use crate::doors::view;
use crate::model::failure::Failure;
use crate::model::messages::bonds::{BondView, MemberView};
use crate::model::messages::{LinkView, PortStats, SaView, StatsView, WorkerView, XskView};
use encode::{Encoded, family, single};
use maps::MapReading;
use state::{Fill, PortStates, build, encode_fills, fills};

/// The router for `/metrics`.
pub(crate) fn router(control: &Arc<Control>) -> axum::Router {
    let router = axum::Router::new().route("/metrics", axum::routing::get(metrics));
    router.with_state(Arc::clone(control))
}

async fn metrics(Context(control): Context<Arc<Control>>) -> Result<Response, ApiError> {
    let text = look(&control, |control| Ok(text(read(control)))).await?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}

fn read(control: &Control) -> Reading {
    control.read(|inner| Reading {
        failures: inner.all_failures(),
        stats: view::stats(inner),
        links: view::links(inner),
        sas: crate::doors::sas::all(inner),
        bonds: bonds::all(inner),
        sockets: view::sockets(inner),
        workers: crate::doors::workers::all(inner),
        states: PortStates::of(inner),
        fills: fills(inner),
        maps: MapReading::all(&control.map_metrics(), &inner.live.registry),
    })
}

/// Formats everything as OpenMetrics text.
fn text(reading: Reading) -> String {
    let mut registry = Registry::with_prefix("towpath");
    registry.register_collector(Box::new(reading));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _written = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Reading {
    failures: Vec<Failure>,
    stats: StatsView,
    links: Vec<LinkView>,
    sas: Vec<SaView>,
    bonds: Vec<BondView>,
    sockets: Vec<XskView>,
    workers: Vec<WorkerView>,
    states: PortStates,
    fills: Vec<Fill>,
    maps: Vec<MapReading>,
}

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        build(&mut encoder)?;
        self.failures(&mut encoder)?;
        workers::encode(&self.workers, &mut encoder)?;
        self.frames(&mut encoder)?;
        self.ports(&mut encoder)?;
        self.states.encode(&mut encoder)?;
        self.by_reason(&mut encoder)?;
        self.programs(&mut encoder)?;
        self.bond_members(&mut encoder)?;
        queues::encode(&self.stats.queues, &self.stats.dequeues, &mut encoder)?;
        sas::encode(&self.sas, &mut encoder)?;
        self.sockets(&mut encoder)?;
        encode_fills(&self.fills, &mut encoder)?;
        self.maps.iter().try_for_each(|map| map.encode(&mut encoder))?;
        maps::encode_state(&self.maps, &mut encoder)
    }
}

impl Reading {
    /// Encodes failures. Their number is the first metric, for monitors that watch only one.
    fn failures(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Parts of the wanted state that could not be established";
        single(encoder, "failures", help, &ConstGauge::new(self.failures.len() as i64))?;
        let help = "Lines of the log that could not be written";
        single(encoder, "log_lines_lost", help, &ConstCounter::new(log::lost()))?;
        // Only one per kind and subject, since these are the labels that distinguish lines.
        let mut begun: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for failure in &self.failures {
            let since = begun.entry((failure.code.name(), &failure.subject));
            let since = since.or_insert(failure.since);
            *since = since.min(failure.since);
        }
        let begun = begun.into_iter().map(|((code, subject), since)| {
            ([("code", code), ("subject", subject)], ConstGauge::new(since))
        });
        family(
            encoder,
            "failure_since_seconds",
            "Time at which each failure began, in seconds since 1970",
            begun,
        )
    }

    /// Encodes the accounting of frames.
    fn frames(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let frames = &self.stats.frames;
        let sides = [
            ("frames_received", "Frames taken out of a receive queue", frames.received),
            ("frames_created", "Frames made by Towpath: copies, segments", frames.created),
            ("frames_delivered", "Frames taken by a transmitter or a socket", frames.delivered),
            ("frames_dropped", "Frames dropped, for any reason", frames.dropped),
            ("frames_freed", "Frames used up without being dropped", frames.freed),
        ];
        for (name, help, value) in sides {
            single(encoder, name, help, &ConstCounter::new(value))?;
        }
        let help = "Frames that wait for another worker, in a queue, or for their launch time";
        single(encoder, "frames_in_flight", help, &ConstGauge::new(frames.in_flight as i64))?;
        let help = "Frames held by workers that have worked on one burst for more than 5 ms";
        single(encoder, "frames_held", help, &ConstGauge::new(frames.held as i64))?;
        let help = "Frames that are lost: 0, unless a worker panicked or there is a fault";
        single(encoder, "frames_missing", help, &ConstGauge::new(frames.missing))
    }

    fn ports(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Read = fn(&PortStats) -> u64;
        let simple: [(&str, &str, Read); 5] = [
            ("port_rx_frames", "Frames received", |it| it.rx_packets),
            ("port_rx_bytes", "Bytes received", |it| it.rx_bytes),
            ("port_rx_missed", "Frames lost before they could be received", |it| it.rx_missed),
            ("port_tx_frames", "Frames sent", |it| it.tx_packets),
            ("port_tx_bytes", "Bytes sent", |it| it.tx_bytes),
        ];
        for (name, help, read) in simple {
            let ports = self.stats.ports.iter();
            let counters =
                ports.map(|(port, it)| ([("port", port.as_str())], ConstCounter::new(read(it))));
            family(encoder, name, help, counters)?;
        }
        Ok(())
    }

    fn by_reason(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Read = fn(&PortStats) -> &BTreeMap<String, u64>;
        let families: [(&str, &str, &str, Read); 3] = [
            ("port_verdicts", "Verdicts on frames that arrived", "verdict", |it| &it.verdicts),
            ("port_drops", "Frames that arrived and were dropped", "reason", |it| &it.drops),
            ("port_tx_drops", "Frames that were not sent", "reason", |it| &it.tx_drops),
        ];
        for (name, help, label, read) in families {
            let counters = self.stats.ports.iter().flat_map(|(port, stats)| {
                read(stats).iter().map(move |(value, count)| {
                    ([("port", &**port), (label, &**value)], ConstCounter::new(*count))
                })
            });
            family(encoder, name, help, counters)?;
        }
        Ok(())
    }

    /// Encodes the state of bonds' members; their frames are counted as those of ports.
    fn bond_members(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        type Read = fn(&MemberView) -> i64;
        let gauges: [(&str, &str, Read); 3] = [
            ("bond_member_can_send", "Frames may leave through the member", |it| {
                it.can_send.into()
            }),
            ("bond_member_active", "Frames that pass on the member are delivered", |it| {
                it.is_active.into()
            }),
            ("bond_member_link", "The member's link counts as up", |it| {
                (it.mii_status == "up").into()
            }),
        ];
        let members = || {
            self.bonds.iter().flat_map(|bond| {
                let members = bond.members.iter();
                members.map(move |it| ([("bond", &*bond.name), ("port", &*it.name)], it))
            })
        };
        for (name, help, read) in gauges {
            let gauges = members().map(|(labels, it)| (labels, ConstGauge::new(read(it))));
            family(encoder, name, help, gauges)?;
        }
        let failures = |it: &MemberView| ConstCounter::new(u64::from(it.link_failure_count));
        let counters = members().map(|(labels, it)| (labels, failures(it)));
        family(encoder, "bond_member_link_failures", "Failures of the member's link", counters)
    }

    fn sockets(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(first) = self.sockets.first() else { return Ok(()) };
        for statistic in first.statistics.keys() {
            let name = format!("xsk_{statistic}");
            let counters = self.sockets.iter().map(|socket| {
                let port = socket.port.clone().unwrap_or_default();
                let queue = socket.queue.map_or_else(String::new, |queue| queue.to_string());
                let labels = [("socket", socket.id.to_string()), ("port", port), ("queue", queue)];
                let count = socket.statistics.get(statistic).copied().unwrap_or(0);
                (labels, ConstCounter::new(count))
            });
            family(encoder, &name, "Counted by an AF_XDP socket", counters)?;
        }
        Ok(())
    }

    fn programs(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counters = self.links.iter().map(|link| {
            let (port, program) = (link.port.clone(), link.name.clone());
            let labels = [("port", port), ("program", program), ("link", link.id.to_string())];
            (labels, ConstCounter::new(link.runs))
        });
        family(encoder, "program_runs", "Frames a program judged", counters)
    }
}
