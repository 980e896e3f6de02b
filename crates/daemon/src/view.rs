//! What there is, as the API shows it.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_engine::Slot;
use towpath_engine::counters::{Drop, PortCounters};
use towpath_maps::Map;

use crate::api::types::{
    FeatureView, FeaturesView, FrameStats, LinkView, MapView, PortStats, PortView, ProgramView,
    StatsView, StatusView,
};
use crate::control::Inner;
use crate::live::{LiveLink, LiveProgram};
use crate::run_config::{ACTIONS, action_names};

/// All ports.
pub(crate) fn ports(inner: &Inner) -> Vec<PortView> {
    inner.live.engine().read(|_, snapshot| {
        let ports = inner.live.ports().values();
        ports
            .filter_map(|port| Some((port, snapshot.port(port.id)?)))
            .map(|(port, slot)| {
                let device = &slot.opened.device;
                let mac = device.mac().map(|byte| format!("{byte:02x}")).join(":");
                let details = device.details().into_iter();
                PortView {
                    state: inner.wanted.port(&port.state.name).unwrap_or(&port.state).clone(),
                    index: slot.ifindex,
                    mac,
                    queues: device.queues(),
                    mtu_now: slot.mtu,
                    link: slot.up && device.link(),
                    failure: slot.opened.failure(),
                    finished: device.queues() > 0 && slot.opened.is_finished(),
                    details: details.map(|(name, value)| (name.to_owned(), value)).collect(),
                }
            })
            .collect()
    })
}

/// All programs, by id.
pub(crate) fn programs(inner: &Inner) -> Vec<ProgramView> {
    let mut all: Vec<ProgramView> = inner.live.programs().values().map(program).collect();
    all.sort_by_key(|program| program.id);
    all
}

fn program(live: &LiveProgram) -> ProgramView {
    let status = live.program.exec_status();
    let loaded = live.loaded.duration_since(UNIX_EPOCH).unwrap_or_default();
    ProgramView {
        id: live.id,
        name: live.program.name().to_owned(),
        r#type: "xdp".to_owned(),
        tag: live.tag.clone(),
        key: live.state.key.clone(),
        object: live.state.object.clone(),
        sha256: live.state.sha256.clone(),
        loaded_at: loaded.as_secs(),
        frags: live.program.has_frags(),
        insns: live.program.verified().map_or(0, |verified| verified.linked().insns.len()),
        exec: status.runs.name().to_owned(),
        fallback: status.fallback,
        map_ids: live.maps.keys().copied().collect(),
    }
}

/// All links, by port and hook, in the order their programs run.
pub(crate) fn links(inner: &Inner) -> Vec<LinkView> {
    let mut all: Vec<LinkView> = inner.live.links().iter().map(|it| link(inner, it)).collect();
    all.sort_by(|a, b| {
        let order = |link: &LinkView| (link.port.clone(), link.hook, link.prio, link.name.clone());
        order(a).cmp(&order(b))
    });
    all
}

fn link(inner: &Inner, live: &LiveLink) -> LinkView {
    let program = inner.live.programs().get(&live.attach.program);
    let status = live.link.program.exec_status();
    let workers = live.link.counters();
    let sum = |read: &dyn Fn(&towpath_engine::counters::ProgramCounters) -> u64| {
        workers.iter().map(read).sum::<u64>()
    };
    let verdicts = ACTIONS
        .iter()
        .enumerate()
        .map(|(action, name)| (format!("XDP_{name}"), sum(&|worker| worker.actions[action].get())));
    LinkView {
        id: live.id,
        port: live.attach.port.clone(),
        ifindex: inner.live.ports().get(&live.attach.port).map_or(0, |port| port.ifindex),
        hook: live.attach.hook,
        prog_id: live.program,
        name: live.link.program.name().to_owned(),
        tag: program.map_or_else(String::new, |program| program.tag.clone()),
        prio: live.link.priority,
        actions: action_names(live.link.chain_call_actions),
        exec: status.runs.name().to_owned(),
        fallback: status.fallback,
        runs: sum(&|worker| worker.runs.get()),
        verdicts: verdicts.collect(),
        faults: sum(&|worker| worker.faults.get()),
    }
}

/// All maps, by id.
pub(crate) fn maps(inner: &Inner) -> Vec<MapView> {
    let mut all: Vec<MapView> = Vec::new();
    for program in inner.live.programs().values() {
        all.extend(program.maps.iter().map(|(&id, it)| map(id, it, program.id)));
    }
    all.sort_by_key(|map| map.id);
    all
}

fn map(id: u32, map: &Map, program: u32) -> MapView {
    MapView {
        id,
        name: map.name().to_owned(),
        r#type: map.kind().name().to_owned(),
        key_size: map.key_size(),
        value_size: map.value_size(),
        max_entries: map.max_entries(),
        flags: map.flags(),
        prog_ids: vec![program],
    }
}

/// Everything at once.
pub(crate) fn status(inner: &Inner) -> StatusView {
    let failures = inner.failures.iter();
    StatusView {
        ports: ports(inner),
        bridges: inner.live.bridges().values().cloned().collect(),
        links: links(inner),
        failures: failures.map(|failure| format!("{}: {}", failure.what, failure.why)).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        workers: inner.live.engine().workers(),
    }
}

/// Counters of everything.
pub(crate) fn stats(inner: &Inner) -> StatsView {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let engine = inner.live.engine();
    let ports = engine.read(|_, snapshot| {
        let slots = snapshot.ports.iter().flatten();
        slots.map(|slot| (slot.name.to_string(), port_stats(slot))).collect()
    });
    let sum = engine.conservation();
    let frames = FrameStats {
        received: sum.received,
        created: sum.created,
        delivered: sum.delivered,
        dropped: sum.dropped,
        freed: sum.freed,
        in_flight: sum.in_flight,
        missing: sum.missing(),
    };
    StatsView { time, ports, frames }
}

fn port_stats(slot: &Slot) -> PortStats {
    let workers = &slot.opened.counters;
    let sum = |read: &dyn Fn(&PortCounters) -> u64| workers.iter().map(read).sum::<u64>();
    let reasons = |read: &dyn Fn(&PortCounters, usize) -> u64| -> BTreeMap<String, u64> {
        let all = Drop::ALL.iter().enumerate();
        all.map(|(at, reason)| (reason.name().to_owned(), sum(&|it| read(it, at)))).collect()
    };
    let verdicts = ACTIONS.iter().enumerate();
    PortStats {
        rx_packets: sum(&|it| it.rx_packets.get()),
        rx_bytes: sum(&|it| it.rx_bytes.get()),
        rx_missed: sum(&|it| it.rx_missed.get()),
        tx_packets: sum(&|it| it.tx_packets.get()),
        tx_bytes: sum(&|it| it.tx_bytes.get()),
        verdicts: verdicts
            .map(|(at, name)| (format!("XDP_{name}"), sum(&|it| it.actions[at].get())))
            .collect(),
        drops: reasons(&|it, at| it.drops[at].get()),
        tx_drops: reasons(&|it, at| it.tx_drops[at].get()),
    }
}

/// The kernel's feature flags (`NETDEV_XDP_ACT_*`) of a port.
pub(crate) fn features(inner: &Inner, name: &str) -> Option<FeaturesView> {
    let port = inner.live.ports().get(name)?;
    inner.live.engine().read(|_, snapshot| {
        let slot = snapshot.port(port.id)?;
        let (has, device) = (slot.features, &slot.opened.device);
        let receives = device.queues() > 0;
        let none_arrive = "nothing arrives at this port";
        let flag = |name: &str, supported: bool, yes: &str, no: &str| FeatureView {
            name: format!("NETDEV_XDP_ACT_{name}"),
            supported,
            note: if supported { yes } else { no }.to_owned(),
        };
        let copies = "AF_XDP sockets get copies of its frames: they do not lie in the socket's \
                      memory";
        let not_here = "programs run in Towpath; no device runs them instead";
        let one_buffer = "what lies behind it does not take frames of several buffers: they are \
                          made linear, or cut into segments, on their way out";
        let features = vec![
            flag("BASIC", receives, "ABORTED, DROP, PASS, TX on what arrives", none_arrive),
            flag("REDIRECT", receives, "to ports, workers and sockets, by all maps", none_arrive),
            flag("NDO_XMIT", true, "other ports may redirect to it, with no program loaded", ""),
            flag("XSK_ZEROCOPY", has.zero_copy, "sockets get frames without a copy", copies),
            flag("HW_OFFLOAD", false, "", not_here),
            flag(
                "RX_SG",
                has.rx_frags,
                "frames of several buffers arrive",
                if receives { "its frames fit into one buffer" } else { none_arrive },
            ),
            flag("NDO_XMIT_SG", has.tx_frags, "frames of several buffers leave", one_buffer),
        ];
        Some(FeaturesView { port: name.to_owned(), kind: device.kind().to_owned(), features })
    })
}
