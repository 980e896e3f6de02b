//! The actual state as the API shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_engine::counters::{DropReason, PortCounters};
use towpath_engine::port::RxHints;
use towpath_engine::{DEFAULT_ACTIONS, DEFAULT_PRIORITY, Port, Snapshot, Socket as _};
use towpath_host::tables::Mac;
use towpath_maps::ringbuf::Ringbuf;
use towpath_objects::{LinkObject, MapObject, Object, ProgramObject, Session};

use crate::control::Inner;
use crate::control::population;
use crate::doors::guests;
use crate::doors::queues;
use crate::doors::sas;
use crate::doors::workers;
use crate::live::traffic::outer;
use crate::live::{LiveLink, LivePort, bridges};
use crate::model::clock::wall_clock;
use crate::model::failure::{Failure, FailureCode};
use crate::model::messages::{
    FeatureView, FeaturesView, FrameStats, LinkView, MapView, PortStats, PortView, ProgramView,
    RingView, StatsView, StatusView, TrafficView, XskRing, XskView,
};
use crate::model::natural::natural;
use crate::model::run_config::{ACTIONS, action_names};
use crate::model::state::{HookState, PortState};
use crate::model::thing::Thing;

/// Formats an Ethernet address.
pub(crate) fn mac_text(mac: [u8; 6]) -> String {
    Mac(mac).to_string()
}

/// All ports. Querying an interface may be slow, so each query holds a reference only to its own
/// port, and does not keep other ports from being closed.
pub(crate) fn ports(inner: &Inner) -> Vec<PortView> {
    let wanted = inner.wanted.state().ports_by_name();
    let there = inner.live.ports.iter();
    let there = there
        .filter_map(|(name, port)| self::port(inner, port, wanted.get(name.as_str()).copied()));
    let never =
        inner.wanted.state().ports.iter().filter(|it| !inner.live.ports.contains_key(&it.name));
    let mut all: Vec<PortView> = there.chain(never.map(|state| absent(inner, state))).collect();
    all.sort_by(|one, other| natural(&one.state.name, &other.state.name));
    all
}

/// A port by its name; `None` if it neither exists nor is wanted.
pub(crate) fn port_named(inner: &Inner, name: &str) -> Option<PortView> {
    let wanted = inner.wanted.state().port(name);
    match inner.live.ports.get(name) {
        Some(live) => port(inner, live, wanted),
        None => wanted.map(|state| absent(inner, state)),
    }
}

/// A wanted port that has never been open.
fn absent(inner: &Inner, state: &PortState) -> PortView {
    PortView {
        state: state.clone(),
        wanted_by: inner.wanted.authors(&Thing::port(&state.name)),
        index: 0,
        mac: mac_text([0; 6]),
        queues: 0,
        mtu_now: state.mtu.unwrap_or(0),
        link: false,
        failure: Some(why_not_open(inner, &state.name)),
        tx_error: None,
        finished: false,
        master: None,
        delegated_by: None,
        details: BTreeMap::new(),
    }
}

/// Why a wanted port is not open.
pub(crate) fn why_not_open(inner: &Inner, name: &str) -> String {
    let subject = Thing::port(name).to_string();
    let is_it = |it: &&Failure| it.code == FailureCode::PortOpen && it.subject == subject;
    let found = inner.failures.iter().find(is_it).map(|failure| failure.why.clone());
    found.unwrap_or_else(|| "it is not open yet".to_owned())
}

fn port(inner: &Inner, port: &LivePort, wanted: Option<&PortState>) -> Option<PortView> {
    let state = wanted.or(port.opened.as_ref())?;
    let (slot, master, delegated_by) = inner.live.engine.read(|_, snapshot| {
        let slot = snapshot.port(port.id)?;
        let master = master(snapshot, slot).map(|it| it.name.to_string());
        Some((Arc::clone(slot), master, delegated_by(snapshot, slot)))
    })?;
    let device = &slot.opened.device;
    let details = device.details().into_iter();
    let mut details: BTreeMap<String, String> =
        details.map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(workers) = &slot.spread {
        let workers: Vec<String> = workers.iter().map(usize::to_string).collect();
        details.insert("spread".to_owned(), format!("flows, over workers {}", workers.join(", ")));
    }
    Some(PortView {
        state: state.clone(),
        wanted_by: inner.wanted.authors(&Thing::port(&state.name)),
        index: slot.ifindex,
        mac: mac_text(device.mac()),
        queues: device.queues(),
        mtu_now: slot.mtu,
        link: slot.up && device.link(),
        failure: slot.opened.failure(),
        tx_error: slot.opened.tx_error(),
        finished: device.queues() > 0 && slot.opened.is_finished(),
        master,
        delegated_by,
        details,
    })
}

/// All programs, by id: wanted ones, those that their maps refer to, and those of clients.
pub(crate) fn programs(inner: &Inner) -> Vec<ProgramView> {
    let session = inner.session();
    session.progs().iter().map(|object| program(inner, &session, object)).collect()
}

fn program(inner: &Inner, session: &Session, object: &ProgramObject) -> ProgramView {
    let id = object.id();
    let state = inner.live.programs.get(&id);
    let program = object.program();
    let status = program.exec_status();
    let bytes_jited = program.machine_code().map_or(0, |code| code.code().0.len());
    ProgramView {
        id,
        r#type: object.kind_name(),
        name: object.name().to_string(),
        tag: object.tag().to_string(),
        gpl_compatible: object.is_gpl_compatible(),
        loaded_at: since_1970(object.load_time()),
        uid: object.uid(),
        bytes_xlated: object.bytes_xlated(),
        jited: bytes_jited > 0,
        bytes_jited,
        bytes_memlock: object.bytes_xlated().next_multiple_of(PAGE_BYTES),
        map_ids: object.maps().iter().map(|map| map.id()).collect(),
        btf_id: object.btf().map_or(0, |btf| btf.id()),
        pinned: session.paths(|it| matches!(it, Object::Program(it) if it.id() == id)),
        function: program.name().to_owned(),
        key: state.map(|state| state.key.clone()),
        wanted_by: state
            .map(|state| inner.wanted.authors(&Thing::Program(state.key.clone())))
            .unwrap_or_default(),
        object: state.map(|state| state.object.clone()),
        sha256: state.map(|state| state.sha256.clone()),
        bound_to: object.bound_to().map(|ifindex| port_name(inner, ifindex)),
        frags: program.has_frags(),
        insns: program.verified().map_or(0, |verified| verified.linked().insns.len()),
        exec: status.runs.name().to_owned(),
        fallback: status.fallback,
        measured: status.measured,
    }
}

/// The name of the port with this ifindex; empty without one.
fn port_name(inner: &Inner, ifindex: u32) -> String {
    find_port(inner, ifindex).unwrap_or_default()
}

pub(crate) fn find_port(inner: &Inner, ifindex: u32) -> Option<String> {
    let mut ports = inner.live.ports.iter();
    ports.find(|(_, port)| port.ifindex == ifindex).map(|(name, _)| name.clone())
}

/// Converts a time since the start of the machine to seconds since 1970.
fn since_1970(boot: Duration) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ago = Duration::new(now.tv_sec.unsigned_abs(), 0).saturating_sub(boot);
    wall_clock().saturating_sub(ago).as_secs()
}

/// All links, by port and hook, in the order in which their programs run.
pub(crate) fn links(inner: &Inner) -> Vec<LinkView> {
    let session = inner.session();
    let view = |object: &Arc<LinkObject>| {
        let link = link(inner, &session, object);
        match inner.live.links.iter().find(|live| live.id == link.id) {
            Some(live) => live_link(inner, live, link),
            None => link,
        }
    };
    let mut all: Vec<LinkView> = session.links().iter().map(view).collect();
    all.sort_by(|a, b| {
        let order = |link: &LinkView| (link.port.clone(), link.hook, link.prio, link.name.clone());
        order(a).cmp(&order(b))
    });
    all
}

/// A link in the object registry, which a client may have made, or only a pin keeps.
fn link(inner: &Inner, session: &Session, object: &LinkObject) -> LinkView {
    let (id, program) = (object.id(), object.program());
    let ifindex = object.ifindex().unwrap_or(0);
    let status = program.program().exec_status();
    LinkView {
        id,
        r#type: "xdp".to_owned(),
        port: port_name(inner, ifindex),
        wanted_by: Vec::new(),
        ifindex,
        hook: HookState::Rx,
        prog_id: program.id(),
        name: program.name().to_string(),
        tag: program.tag().to_string(),
        prio: DEFAULT_PRIORITY,
        actions: action_names(DEFAULT_ACTIONS),
        pinned: session.paths(|it| matches!(it, Object::Link(it) if it.id() == id)),
        exec: status.runs.name().to_owned(),
        fallback: status.fallback,
        measured: status.measured,
        runs: 0,
        verdicts: BTreeMap::new(),
        faults: 0,
    }
}

/// Adds the daemon's data to a link that it holds.
fn live_link(inner: &Inner, live: &LiveLink, link: LinkView) -> LinkView {
    let workers = live.link.counters();
    let sum = |read: &dyn Fn(&towpath_engine::counters::ProgramCounters) -> u64| {
        workers.iter().map(read).sum::<u64>()
    };
    LinkView {
        port: live.attach.port.clone(),
        wanted_by: inner.wanted.authors(&Thing::Attachment(live.attach.identity())),
        ifindex: inner.live.ports.get(&live.attach.port).map_or(0, |port| port.ifindex),
        hook: live.attach.hook,
        prog_id: live.program,
        name: live.link.program.name().to_owned(),
        prio: live.link.priority,
        actions: action_names(live.link.chain_call_actions),
        runs: sum(&|worker| worker.runs.get()),
        verdicts: by_action(|action| sum(&|worker| worker.actions[action].get())),
        faults: sum(&|worker| worker.faults.get()),
        ..link
    }
}

/// Counts by name of the verdict.
fn by_action(count: impl Fn(usize) -> u64) -> BTreeMap<String, u64> {
    let named = ACTIONS.iter().enumerate();
    named.map(|(action, name)| (format!("XDP_{name}"), count(action))).collect()
}

/// All maps, by id.
pub(crate) fn maps(inner: &Inner) -> Vec<MapView> {
    let session = inner.session();
    let programs: Vec<(u32, Vec<u32>)> = session
        .progs()
        .iter()
        .map(|program| (program.id(), program.maps().iter().map(|map| map.id()).collect()))
        .collect();
    let view = |object: &Arc<MapObject>| {
        let (id, map) = (object.id(), object.map());
        let def = map.def();
        let users = programs.iter().filter(|(_, maps)| maps.contains(&id));
        MapView {
            id,
            r#type: def.kind.name().to_owned(),
            name: object.name().to_string(),
            flags: object.flags(),
            bytes_key: def.key_size,
            bytes_value: def.value_size,
            max_entries: def.max_entries,
            bytes_memlock: match map.memory_bytes() {
                // Kinds whose memory programs cannot access directly.
                0 => u64::from(def.key_size + def.value_size) * u64::from(def.max_entries),
                bytes => bytes,
            },
            owner_jited: object.owner_is_compiled(),
            entries: map.count(),
            populated_percent: map.population().map(|(done, all)| (done * 100 / all) as u8),
            frozen: map.is_frozen(),
            btf_id: object.btf().map_or(0, |btf| btf.id()),
            pinned: session.paths(|it| matches!(it, Object::Map(it) if it.object().id() == id)),
            prog_ids: users.map(|(program, _)| *program).collect(),
            ring: map.ringbuf().map(ring),
        }
    };
    session.maps().iter().map(view).collect()
}

/// Page size in bytes, the unit in which the kernel charges programs.
const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES.is_power_of_two());

/// The level of a ring buffer.
fn ring(ring: &Ringbuf) -> RingView {
    RingView { size: ring.size(), used: ring.used(), lost: ring.lost() }
}

/// The complete status.
pub(crate) fn status(inner: &Inner) -> StatusView {
    StatusView {
        ports: ports(inner),
        bridges: bridges(&inner.live.engine).into_values().collect(),
        links: links(inner),
        queues: queues::all(inner),
        dequeues: queues::dequeues(inner),
        guests: guests::all(inner),
        failures: inner.all_failures(),
        log_lines_lost: crate::control::log::lost(),
        warnings: warnings(inner),
        overridden: inner.wanted.overridden(),
        restart: inner.restart.clone(),
        not_saved: inner.not_saved(),
        page: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        workers: inner.live.engine.workers(),
        worker_loads: workers::all(inner),
        frames: inner.live.engine.arena().total(),
        huge_pages: inner.live.engine.arena().has_huge_pages(),
        population: {
            let maps = inner.live.registry.maps();
            population::view(maps.iter().map(|map| &**map), &inner.news.unpopulated.lock())
        },
    }
}

/// Probable mistakes, found by test runs of programs and by devices.
fn warnings(inner: &Inner) -> Vec<String> {
    let mut warnings: Vec<String> = inner.warnings.iter().map(|it| it.text.clone()).collect();
    for (name, port) in &inner.live.ports {
        let slot = inner.live.engine.port(port.id);
        let said = slot.map(|slot| slot.opened.device.warnings()).unwrap_or_default();
        warnings.extend(said.into_iter().map(|said| format!("port {name}: {said}")));
    }
    warnings.extend(sas::warnings(inner));
    warnings.extend(inner.news.unpopulated.lock().values().cloned());
    let arena = inner.live.engine.arena();
    if arena.free() == 0 {
        warnings.push(format!(
            "all {} frames are in use: ports receive nothing until some are freed; raise [engine] \
             frames",
            arena.total()
        ));
    }
    warnings
}

/// All counters.
pub(crate) fn stats(inner: &Inner) -> StatsView {
    let time = wall_clock().as_secs_f64();
    let engine = &inner.live.engine;
    let ports: BTreeMap<String, PortStats> = engine.read(|_, snapshot| {
        let slots = snapshot.ports.iter().flatten();
        slots.map(|slot| (slot.name.to_string(), port_stats(snapshot, slot))).collect()
    });
    let total = total(inner, &ports);
    let sum = engine.conservation();
    let frames = FrameStats {
        received: sum.received,
        created: sum.created,
        delivered: sum.delivered,
        dropped: sum.dropped,
        freed: sum.freed,
        in_flight: sum.in_flight,
        held: sum.held,
        missing: sum.missing(),
    };
    let (queues, dequeues) = (queues::all(inner), queues::dequeues(inner));
    StatsView { time, ports, total, frames, queues, dequeues }
}

/// Sums over all ports that count each frame once.
fn total(inner: &Inner, ports: &BTreeMap<String, PortStats>) -> TrafficView {
    let drops = ports.values().map(|port| port.traffic().drops).sum();
    let mut total = TrafficView { drops, ..TrafficView::default() };
    let outer = outer(&inner.live);
    let outer = outer.iter().filter_map(|name| ports.get(*name));
    outer.for_each(|port| total.add_frames(&port.traffic()));
    total
}

/// The bond that a port is a member of.
fn master<'a>(snapshot: &'a Snapshot, slot: &Port) -> Option<&'a Port> {
    snapshot.port(slot.member?.bond).map(|bond| &**bond)
}

/// The bond whose programs a port runs: the outermost one with these programs, since inner bonds
/// have them only by delegation.
fn delegated_by(snapshot: &Snapshot, slot: &Port) -> Option<String> {
    let runs = slot.rx_hook.as_ref().filter(|_| slot.member.is_some_and(|it| it.is_delegate))?;
    let around = std::iter::successors(master(snapshot, slot), |bond| master(snapshot, bond));
    let has = |bond: &&Port| bond.rx_hook.as_ref().is_some_and(|chain| Arc::ptr_eq(chain, runs));
    around.filter(has).last().map(|bond| bond.name.to_string())
}

/// Counters of a port; frames of a bond are those of its members (`bond_get_stats`).
fn port_stats(snapshot: &Snapshot, slot: &Port) -> PortStats {
    let mut stats = own_stats(slot);
    let members = slot.bond.iter().flat_map(|bond| bond.members.iter());
    for member in members.filter_map(|&id| snapshot.port(id)) {
        let member = port_stats(snapshot, member);
        stats.rx_packets += member.rx_packets;
        stats.rx_bytes += member.rx_bytes;
        stats.rx_missed += member.rx_missed;
        stats.tx_packets += member.tx_packets;
        stats.tx_bytes += member.tx_bytes;
    }
    stats
}

fn own_stats(slot: &Port) -> PortStats {
    let workers = &slot.opened.counters;
    let sum = |read: &dyn Fn(&PortCounters) -> u64| workers.iter().map(read).sum::<u64>();
    let reasons = |read: &dyn Fn(&PortCounters, usize) -> u64| -> BTreeMap<String, u64> {
        let all = DropReason::ALL.iter().enumerate();
        all.map(|(at, reason)| (reason.name().to_owned(), sum(&|it| read(it, at)))).collect()
    };
    PortStats {
        rx_packets: sum(&|it| it.rx_packets.get()),
        rx_bytes: sum(&|it| it.rx_bytes.get()),
        rx_missed: sum(&|it| it.rx_missed.get()),
        tx_packets: sum(&|it| it.tx_packets.get()),
        tx_bytes: sum(&|it| it.tx_bytes.get()),
        verdicts: by_action(|action| sum(&|it| it.actions[action].get())),
        drops: reasons(&|it, at| it.drops[at].get()),
        tx_drops: reasons(&|it, at| it.tx_drops[at].get()),
    }
}

/// Whether a port, or each member of a bond, can receive frames.
fn receives(snapshot: &Snapshot, slot: &Port) -> bool {
    let Some(bond) = &slot.bond else { return slot.opened.device.queues() > 0 };
    let mut members = bond.members.iter().filter_map(|&id| snapshot.port(id));
    slot.is_target && members.all(|member| receives(snapshot, member))
}

/// The kernel's feature flags (`NETDEV_XDP_ACT_*`) of a port.
pub(crate) fn features(inner: &Inner, name: &str) -> Option<FeaturesView> {
    let port = inner.live.ports.get(name)?;
    inner.live.engine.read(|_, snapshot| {
        let slot = snapshot.port(port.id)?;
        let (has, device) = (slot.features, &slot.opened.device);
        let receives = receives(snapshot, slot);
        let is_target = slot.bond.is_none() || slot.is_target;
        let none_arrive = "nothing arrives at this port";
        let copies = "AF_XDP sockets get copies of its frames: it does not receive into their \
                      memory";
        let not_here = "programs run in Towpath; no device runs them instead";
        let one_buffer = "what lies behind it does not take frames of several buffers: they are \
                          made linear, or cut into segments, on their way out";
        let RxHints { timestamp, hash, vlan_tag, checksum } = has.rx_hints;
        let (none, stays) = ("the device tells none", "tags stay in frames");
        let one_fits = if receives { "its frames fit into one buffer" } else { none_arrive };
        let down = "it is down, has no members, or a mode without native XDP";
        let free = "other ports may redirect to it, with no program loaded";
        let software = "in software, where the device can't";
        let table = [
            ("XDP_ACT_BASIC", receives, "ABORTED, DROP, PASS, TX on what arrives", none_arrive),
            (
                "XDP_ACT_REDIRECT",
                receives,
                "to ports, workers and sockets, by all maps",
                none_arrive,
            ),
            ("XDP_ACT_NDO_XMIT", is_target, free, down),
            ("XDP_ACT_XSK_ZEROCOPY", has.zero_copy, "sockets get frames without a copy", copies),
            ("XDP_ACT_HW_OFFLOAD", false, "", not_here),
            ("XDP_ACT_RX_SG", has.rx_frags, "frames of several buffers arrive", one_fits),
            ("XDP_ACT_NDO_XMIT_SG", has.tx_frags, "frames of several buffers leave", one_buffer),
            ("XDP_RX_METADATA_TIMESTAMP", timestamp, "when frames arrived", none),
            ("XDP_RX_METADATA_HASH", hash, "a hash over their addresses", none),
            ("XDP_RX_METADATA_VLAN_TAG", vlan_tag, "tags that were taken off", stays),
            ("XDP_RX_METADATA_CHECKSUM", checksum, "whether the checksum was right", none),
            ("XSK_FLAGS_TX_TIMESTAMP", true, "when the port has the frame", ""),
            ("XSK_FLAGS_TX_CHECKSUM", true, software, ""),
        ];
        let feature = |(name, supported, yes, no): (&str, bool, &str, &str)| FeatureView {
            name: format!("NETDEV_{name}"),
            supported,
            note: if supported { yes } else { no }.to_owned(),
        };
        let features = table.map(feature).into();
        Some(FeaturesView { port: name.to_owned(), kind: device.kind().to_owned(), features })
    })
}

/// AF_XDP sockets, by number.
pub(crate) fn sockets(inner: &Inner) -> Vec<XskView> {
    let xsk = &inner.live.xsk;
    let (entries, udp) = (xsk.entries(), xsk.udp());
    let view = |socket: &Arc<towpath_xsk::Socket>| {
        let (id, place) = (socket.id(), socket.bound_to());
        let statistics = socket.statistics();
        let rings = socket.sizes();
        let ring = |at: usize| {
            let (entries, level) = (rings[at], statistics.levels[at]);
            (entries > 0).then_some(XskRing { entries, level })
        };
        let maps = entries.iter().filter(|(socket, ..)| *socket == id);
        let udp = udp.iter().filter(|binding| binding.socket == id);
        let options = socket.get_option(towpath_xsk::abi::OPTIONS, 4).unwrap_or_default();
        XskView {
            id,
            port: place.and_then(|place| find_port(inner, place.ifindex)),
            queue: place.map(|place| place.queue),
            zero_copy: options.first().is_some_and(|bits| bits & 1 == 1),
            rx: ring(0),
            tx: ring(1),
            fill: ring(2),
            completion: ring(3),
            maps: maps.map(|(_, map, key)| format!("{map}[{key}]")).collect(),
            udp: udp.map(ToString::to_string).collect(),
            statistics: counted(&statistics),
        }
    };
    xsk.sockets().all().iter().map(view).collect()
}

pub(crate) fn counted(it: &towpath_xsk::Statistics) -> BTreeMap<String, u64> {
    let named = [
        ("rx_packets", it.rx_packets),
        ("tx_packets", it.tx_packets),
        ("rx_zero_copy", it.rx_zero_copy),
        ("tx_zero_copy", it.tx_zero_copy),
        ("rx_dropped", it.rx_dropped),
        ("rx_invalid_descs", it.rx_invalid_descs),
        ("tx_invalid_descs", it.tx_invalid_descs),
        ("rx_ring_full", it.rx_ring_full),
        ("rx_fill_ring_empty_descs", it.rx_fill_ring_empty_descs),
        ("tx_ring_empty_descs", it.tx_ring_empty_descs),
        ("fill_invalid_descs", it.fill_invalid),
        ("index_jumps", it.index_jumps),
    ];
    named.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
