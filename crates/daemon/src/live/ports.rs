//! Ports and bridges: closing, opening, and settings that change while frames flow.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use towpath_engine::port::Device;
use towpath_engine::{
    Config, Engine, Error, Hook, Opened, Port, PortId, PortOptions, Spread, UpperName,
};
use towpath_host::Presence;
use towpath_ipsec::Table;
use towpath_xdp::Arena;

use super::Live;
use super::links::Missing;
use super::parts::{LiveLink, LivePort};
use super::report::Report;
use crate::live::layers;
use crate::model::failure::FailureCode;
use crate::model::kinds::{self, Kind, Reopening, bond};
use crate::model::state::{BridgeState, PortState, SpreadState, State};

impl Live {
    /// Removes ports and bridges that are no longer wanted, and closes the devices of ports that
    /// must be reopened, with those of their peers. The latter ports stay, and are down.
    pub(super) fn close_ports(&mut self, wanted: &State, report: &mut Report) {
        let gone = self.unwanted(wanted);
        let stale = self.stale(wanted, &gone, report);
        let named = |bridge: &String| wanted.bridges.iter().any(|it| it.name == *bridge);
        let bridges: Vec<String> = self.bridges().into_keys().filter(|it| !named(it)).collect();
        if gone.is_empty() && stale.is_empty() && bridges.is_empty() {
            return;
        }
        gone.iter().chain(&stale).for_each(|name| self.remove_shadow(name, report));
        let (shared, alone): (Vec<_>, Vec<_>) =
            stale.iter().partition(|name| self.kind(name).is_some_and(|kind| kind.is_shared));
        let devices = self.devices(gone.iter().chain(alone));
        let aside = self.slots(shared.into_iter());
        let closed = self.engine.change(|config| {
            let below = |upper: &str| gone.contains(upper) || bridges.iter().any(|it| it == upper);
            clear_uppers(config, below)?;
            gone.iter().try_for_each(|name| config.remove_port(self.ports[name].id))?;
            stale.iter().try_for_each(|name| config.close_port(self.ports[name].id))?;
            bridges.iter().try_for_each(|name| config.remove_bridge(name))
        });
        if let Err(error) = closed {
            report.fail(FailureCode::Engine, "closing ports", error.to_string());
            return;
        }
        close_aside(aside);
        wait_closed(&devices);
        for name in stale {
            if let Some(port) = self.ports.get_mut(&name) {
                port.opened = None;
            }
        }
        let ifindex = |name: &String| Some((name.clone(), self.ports.get(name)?.ifindex));
        self.forget_devices(&gone.iter().filter_map(ifindex).collect());
        for name in gone {
            self.bonds.remove(&name);
            self.ports.remove(&name);
            report.change(format!("port {name}: removed"));
        }
        bridges.iter().for_each(|name| report.change(format!("bridge {name}: removed")));
        self.tell_ifindexes();
    }

    /// Existing ports that are not wanted. A change from or to the kind `bond` counts as a removal.
    fn unwanted(&self, wanted: &State) -> BTreeSet<String> {
        let is_bond = |kind: &str| kind == bond::NAME;
        let by_name = wanted.ports_by_name();
        let is_wanted = |(name, port): &(&String, &LivePort)| {
            let wanted = by_name.get(name.as_str());
            wanted.is_some_and(|it| is_bond(&it.kind) == is_bond(&port.kind))
        };
        let unwanted = self.ports.iter().filter(|port| !is_wanted(port));
        unwanted.map(|(name, _)| name.clone()).collect()
    }

    /// Ports whose open devices must be reopened.
    fn stale(
        &self,
        wanted: &State,
        gone: &BTreeSet<String>,
        report: &mut Report,
    ) -> BTreeSet<String> {
        let mut stale = BTreeSet::new();
        let wanted = wanted.ports_by_name();
        for (name, port) in self.ports.iter().filter(|(name, _)| !gone.contains(*name)) {
            let (Some(opened), Some(next)) = (&port.opened, wanted.get(name.as_str())) else {
                continue;
            };
            let peers = [kinds::peer(opened), kinds::peer(next)];
            let has_lost_peer = peers[0].is_some_and(|it| gone.contains(it));
            let lost = self.lost(port).or_else(|| self.failed(port));
            if let Some(what) = &lost {
                report.change(format!("port {name}: {what}"));
            }
            if !is_same_device(opened, next) || has_lost_peer || lost.is_some() {
                stale.insert(name.clone());
                stale.extend(peers.into_iter().flatten().map(str::to_owned));
            }
        }
        stale.retain(|name| {
            let is_open = |port: &LivePort| port.opened.is_some();
            !gone.contains(name) && self.ports.get(name).is_some_and(is_open)
        });
        stale
    }

    /// Closes all devices in parallel after the workers have stopped: for each device the kernel
    /// waits for an RCU grace period, and a restart waits for all of them.
    pub(crate) fn close_all(&mut self) {
        let open =
            self.ports.iter().filter(|(_, port)| port.opened.is_some() && port.kind != bond::NAME);
        let open: Vec<String> = open.map(|(name, _)| name.clone()).collect();
        let slots = self.slots(open.iter());
        let closed = self.engine.change(|config| {
            open.iter().try_for_each(|name| config.close_port(self.ports[name].id))
        });
        if closed.is_ok() {
            let arena = self.engine.arena();
            std::thread::scope(|scope| {
                // In parallel, since the memory would be freed at the end of the process otherwise.
                let _trimming = std::thread::Builder::new().spawn_scoped(scope, || arena.trim());
                for slot in slots {
                    // If the thread cannot start, the device is closed right here.
                    let thread = std::thread::Builder::new().name("closing".to_owned());
                    let _closing = thread.spawn_scoped(scope, move || drop(slot));
                }
            });
        }
    }

    /// Weak references to the devices of ports, valid as long as they are open.
    fn devices<'a>(&self, names: impl Iterator<Item = &'a String>) -> Vec<Weak<()>> {
        self.slots(names).into_iter().map(|slot| slot.opened.is_open()).collect()
    }

    fn slots<'a>(&self, names: impl Iterator<Item = &'a String>) -> Vec<Arc<Port>> {
        names.filter_map(|name| self.engine.port(self.ports.get(name)?.id)).collect()
    }

    fn kind(&self, name: &str) -> Option<&'static Kind> {
        kinds::find(&self.ports.get(name)?.kind).ok()
    }

    /// Removes what was attached to devices that are gone, as the kernel does: map entries, AF_XDP
    /// sockets and links. `gone` has the ports' ifindexes.
    fn forget_devices(&mut self, gone: &BTreeMap<String, u32>) {
        if gone.is_empty() {
            return;
        }
        self.note_entries(gone);
        for &ifindex in gone.values() {
            self.xsk.forget_port(ifindex);
            self.registry.device_removed(ifindex);
        }
        let goes = |link: &mut LiveLink| gone.contains_key(&link.attach.port);
        self.links.extract_if(.., goes).for_each(|link| link.object.detach());
    }

    /// Creates bridges, and recreates those with a changed ageing time, to which their ports stay
    /// attached.
    pub(super) fn make_bridges(&mut self, wanted: &State, report: &mut Report) {
        let there = self.bridges();
        for bridge in &wanted.bridges {
            let before = there.get(&bridge.name);
            if before == Some(bridge) {
                continue;
            }
            let what = if before.is_none() { "added" } else { "changed" };
            match self.engine.change(|config| make_bridge(config, bridge, before.is_none())) {
                Ok(()) => report.change(format!("bridge {}: {what}", bridge.name)),
                Err(error) => report.fail(
                    FailureCode::Bridge,
                    format!("bridge {}", bridge.name),
                    error.to_string(),
                ),
            }
        }
    }

    /// Opens wanted ports that are closed. The workers get all of them in one change, and the ports
    /// are down until their programs are attached.
    pub(super) fn open_ports(&mut self, wanted: &State, patience: Duration, report: &mut Report) {
        self.make_tables(wanted);
        let reopening = |port: &PortState| kinds::find(&port.kind).map(|kind| kind.reopening);
        let closed = self.closed(wanted).into_iter();
        // A port's interface may be another port's tap.
        let (late, first): (Vec<_>, Vec<_>) =
            closed.partition(|it| reopening(it[0]).is_ok_and(|it| it == Reopening::WithInterface));
        let mut opened = Vec::new();
        for ports in first.chunks(1).chain(late.chunks(OPENED_AT_ONCE)) {
            opened.extend(self.open_side_by_side(ports, patience));
        }
        if !opened.is_empty() {
            self.put_in_place(opened, report);
            self.tell_ifindexes();
        }
    }

    /// Wanted ports that are closed, in order; a pair is one element, in the place of its first
    /// port.
    fn closed<'a>(&self, wanted: &'a State) -> Vec<Vec<&'a PortState>> {
        let by_name = wanted.ports_by_name();
        let mut closed = Vec::new();
        let mut before = HashSet::new();
        for port in &wanted.ports {
            let peer = kinds::peer(port).and_then(|peer| by_name.get(peer).copied());
            let is_second = peer.is_some_and(|peer| before.contains(peer.name.as_str()));
            before.insert(port.name.as_str());
            if !self.is_open(&port.name) && !is_second {
                closed.push(std::iter::once(port).chain(peer).collect());
            }
        }
        closed
    }

    fn is_open(&self, name: &str) -> bool {
        self.ports.get(name).is_some_and(|port| port.opened.is_some())
    }

    /// Opens devices in parallel, since the kernel mostly sleeps meanwhile. The ports of one
    /// element are opened together, or not at all.
    fn open_side_by_side<'a>(
        &self,
        all: &[Vec<&'a PortState>],
        patience: Duration,
    ) -> Vec<Opening<'a>> {
        self.news.doing(format!("opening port {}", names(&all.concat(), ", ")));
        // Read before opening, so that an interface that disappears meanwhile is noticed later.
        let presences: Vec<_> = all.iter().map(|ports| self.interfaces.find(ports[0])).collect();
        let (engine, tables) = (&self.engine, &self.ipsec.tables);
        if all.concat().iter().any(|port| kinds::find(&port.kind).is_ok_and(|it| it.pins_frames)) {
            populate(engine.arena());
        }
        let opened = side_by_side(all, |ports| open_devices(engine, tables, ports, patience));
        let all = all.iter().cloned().zip(presences).zip(opened);
        all.map(|((ports, presence), devices)| Opening { ports, presence, devices }).collect()
    }

    /// Installs the devices of new and reopened ports in one change.
    fn put_in_place(&mut self, all: Vec<Opening<'_>>, report: &mut Report) {
        let others = self.forget_others(&all);
        let elements: Vec<_> = all.iter().map(|it| (it.ports.clone(), it.presence)).collect();
        let placed = self.engine.change(|config| {
            Ok(all.into_iter().map(|it| it.put_in_place(config, &others)).collect::<Vec<_>>())
        });
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => elements.iter().map(|_| Err(error.to_string())).collect(),
        };
        assert_eq!(elements.len(), placed.len(), "each has an outcome");
        for ((ports, presence), ids) in elements.into_iter().zip(placed) {
            let is_new = ports.iter().any(|port| !self.ports.contains_key(&port.name));
            let done = ids.and_then(|ids| {
                let known = ports.iter().zip(ids);
                known.clone().for_each(|(port, id)| self.note_opened(port, id, presence));
                known.into_iter().try_for_each(|(port, id)| self.look_after_bond(port, id))
            });
            let what = if is_new { "added" } else { "opened again" };
            match done {
                Ok(()) => report.change(format!(
                    "port {}: {what}, kind {}",
                    names(&ports, " and "),
                    ports[0].kind
                )),
                Err(why) => {
                    report.fail(FailureCode::PortOpen, format!("port {}", ports[0].name), why);
                }
            }
        }
    }

    /// Removes what was attached to ports whose interface has another ifindex than before, and
    /// returns their names.
    fn forget_others(&mut self, all: &[Opening<'_>]) -> BTreeSet<String> {
        let devices = all.iter().flat_map(|it| it.devices.iter().flatten());
        let others = devices.filter_map(|(port, device)| {
            let before = self.ports.get(&port.name)?.ifindex;
            let now = port.ifindex.or(device.device.ifindex()).unwrap_or(before);
            (now != before).then(|| (port.name.clone(), before))
        });
        let others: BTreeMap<String, u32> = others.collect();
        self.forget_devices(&others);
        others.into_keys().collect()
    }

    pub(super) fn note_opened(&mut self, port: &PortState, id: PortId, presence: Option<Presence>) {
        let ifindex = self.engine.port(id).map_or(0, |slot| slot.ifindex);
        let live =
            LivePort { kind: port.kind.clone(), opened: Some(port.clone()), presence, id, ifindex };
        self.ports.insert(port.name.clone(), live);
    }

    /// Sets uppers, MTU, linearization, up and down in one change, if something differs from the
    /// engine's settings.
    pub(super) fn set_ports(
        &mut self,
        wanted: &State,
        incomplete: &BTreeMap<String, Missing>,
        report: &mut Report,
    ) {
        let mut changed: Vec<(PortId, &str, Setting, Setting)> = Vec::new();
        for port in &wanted.ports {
            let Some(live) = self.ports.get(&port.name) else { continue };
            let Ok(now) = self.engine.read(|config, _| Setting::of(config, live.id)) else {
                continue;
            };
            let next = self.setting(port, &now, incomplete, report);
            if next != now {
                changed.push((live.id, &port.name, now, next));
            }
        }
        if changed.is_empty() {
            return;
        }
        let result = self.engine.change(|config| {
            changed.iter().try_for_each(|(id, _, now, next)| next.put(config, *id, now))
        });
        match result {
            Ok(()) => {
                let told = changed.iter().flat_map(|(_, name, now, next)| now.told(next, name));
                report.changes.extend(told);
            }
            Err(error) => report.fail(FailureCode::PortSet, "ports", error.to_string()),
        }
    }

    /// The wanted settings of a port, limited to what is possible now.
    fn setting(
        &self,
        port: &PortState,
        now: &Setting,
        incomplete: &BTreeMap<String, Missing>,
        report: &mut Report,
    ) -> Setting {
        let mut next = Setting::wanted(port);
        let what = || format!("port {}", port.name);
        if let Some(upper) = &port.upper
            && !self.ports.contains_key(upper)
            && self.engine.read(|it, _| it.bridges().iter().all(|bridge| bridge.name() != upper))
        {
            report.fail(FailureCode::PortSet, what(), format!("its upper {upper} is missing"));
            next.upper = UpperName::None;
        }
        if self.shadows.contains_key(&port.name) {
            // The upper is the port's shadow.
            next.upper = now.upper.clone();
        }
        if let Some(missing) = incomplete.get(&port.name) {
            let has_passed = now.up && !now.shut;
            next.shut = if self.is_trying { !has_passed } else { missing.is_open || !has_passed };
            if next.shut {
                let why = format!("it drops everything until it has its programs: {}", missing.why);
                report.fail(FailureCode::PortShut, what(), why);
            }
        }
        next
    }

    pub(super) fn tell_ifindexes(&self) {
        self.known.set_ifindexes(self.ports.values().map(|port| port.ifindex).collect());
    }
}

/// Ports that are opened together, with the result of opening their devices.
struct Opening<'a> {
    ports: Vec<&'a PortState>,
    /// The host interface of the first port before opening, if it was known.
    presence: Option<Presence>,
    devices: Result<Vec<(PortState, Opened)>, String>,
}

/// Options of a new port, which is down until its programs are attached.
fn port_options(port: &PortState) -> PortOptions {
    PortOptions {
        name: port.name.clone(),
        ifindex: port.ifindex,
        mtu: port.mtu,
        linearize: port.linearize,
        workers: port.workers.clone(),
        spread: spread_of(port),
        up: false,
    }
}

/// Creates a bond without members.
fn add_bond(
    config: &mut Config,
    port: &PortState,
    wanted: &bond::Wanted,
) -> Result<PortId, String> {
    let options = wanted.settings.engine_options();
    let id = config.add_bond(port_options(port), options, wanted.mac);
    id.map_err(|error| error.to_string())
}

/// The engine's spread mode for a port.
fn spread_of(port: &PortState) -> Spread {
    match port.spread.unwrap_or_default() {
        SpreadState::Off => Spread::Off,
        SpreadState::Flow => Spread::Flow,
    }
}

/// Whether the change between both states needs no new device.
fn is_same_device(one: &PortState, other: &PortState) -> bool {
    let mut set = PortState {
        name: other.name.clone(),
        upper: other.upper.clone(),
        up: other.up,
        mtu: other.mtu,
        linearize: other.linearize,
        spread: other.spread,
        shadow: other.shadow.clone(),
        offload: other.offload.clone(),
        ..one.clone()
    };
    if set.kind == bond::NAME {
        set.options.clone_from(&other.options);
    }
    set == *other
}

fn make_bridge(config: &mut Config, bridge: &BridgeState, is_new: bool) -> Result<(), Error> {
    let named = UpperName::Named(bridge.name.clone());
    let ids: Vec<PortId> = config.ports().collect();
    let mut below = Vec::new();
    if !is_new {
        for id in ids {
            if *config.upper(id)? == named {
                below.push(id);
                config.set_upper(id, UpperName::None)?;
            }
        }
        config.remove_bridge(&bridge.name)?;
    }
    config.add_bridge(&bridge.name, Duration::from_secs(bridge.ageing))?;
    below.into_iter().try_for_each(|id| config.set_upper(id, named.clone()))
}

/// Closes devices that their ports no longer use, without waiting.
fn close_aside(ports: Vec<Arc<Port>>) {
    if !ports.is_empty() {
        // If the thread cannot start, the devices are closed right here.
        let thread = std::thread::Builder::new().name("closing".to_owned());
        let _closing = thread.spawn(move || drop(ports));
    }
}

/// Waits until devices are closed: a thread that reads a device's state keeps it open, and until
/// then its interface cannot be opened again.
fn wait_closed(devices: &[Weak<()>]) {
    let start = Instant::now();
    let is_open = |device: &Weak<()>| device.strong_count() > 0;
    while devices.iter().any(is_open) && start.elapsed() < CLOSE_TIME_MAX {
        std::thread::sleep(CLOSE_POLL);
    }
}

/// Opens the devices of ports that belong together; a bond has none.
fn open_devices(
    engine: &Engine,
    tables: &BTreeMap<String, Arc<Table>>,
    ports: &[&PortState],
    patience: Duration,
) -> Result<Vec<(PortState, Opened)>, String> {
    if ports[0].kind == bond::NAME {
        return Ok(Vec::new());
    }
    let kind = kinds::find(&ports[0].kind).map_err(|problem| problem.to_string())?;
    let devices: Vec<Box<dyn Device>> = match tables.get(&ports[0].name) {
        Some(table) if kind.name == kinds::ipsec::NAME => {
            vec![Box::new(kinds::ipsec::device(ports[0], Arc::clone(table))?)]
        }
        _ => (kind.open)(ports, patience)?,
    };
    let devices = ports.iter().zip(devices);
    let open = |(port, device): (&&PortState, Box<dyn Device>)| {
        let device = engine.open(&port.name, layers::wrap(port, device)?);
        Ok(((*port).clone(), device.map_err(|error| error.to_string())?))
    };
    devices.map(open).collect()
}

/// Populates the memory of all frames while the kernel is busy opening devices.
fn populate(arena: &Arc<Arena>) {
    let arena = Arc::clone(arena);
    let thread = std::thread::Builder::new().name("frames".to_owned());
    // If the thread cannot start, the kernel populates the memory when it needs it.
    let _populating = thread.spawn(move || arena.populate());
}

/// Calls `what` for each element in parallel, as far as threads can be started.
fn side_by_side<T: Sync, U: Send>(all: &[T], what: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let what = &what;
    std::thread::scope(|scope| {
        let start = |one| std::thread::Builder::new().spawn_scoped(scope, move || what(one));
        let (last, others) =
            all.split_last().map_or((None, all), |(it, others)| (Some(it), others));
        let started: Vec<_> = others.iter().map(|one| start(one).map_err(|_none| one)).collect();
        let last = last.map(what);
        let done = started.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(one) => what(one),
        });
        done.chain(last).collect()
    })
}

impl Opening<'_> {
    /// Installs the devices of all ports, or of none.
    fn put_in_place(
        self,
        config: &mut Config,
        others: &BTreeSet<String>,
    ) -> Result<Vec<PortId>, String> {
        let mut placed: Vec<(PortId, bool)> = Vec::new();
        if let Some(bond) = bond::wanted(self.ports[0]) {
            let bond = bond.map_err(|problem| problem.to_string())?;
            return add_bond(config, self.ports[0], &bond).map(|id| vec![id]);
        }
        for (port, device) in self.devices? {
            let before = config.named(&port.name);
            match place(config, &port, device, (before, others.contains(&port.name))) {
                Ok(id) => placed.push((id, before.is_none())),
                Err(error) => {
                    // If one port fails, the others are undone.
                    for (id, is_new) in placed {
                        let undo = if is_new { Config::remove_port } else { Config::close_port };
                        undo(config, id).map_err(|error| error.to_string())?;
                    }
                    return Err(error.to_string());
                }
            }
        }
        Ok(placed.into_iter().map(|(id, _)| id).collect())
    }
}

/// Installs a port's device.
fn place(
    config: &mut Config,
    port: &PortState,
    device: Opened,
    (before, is_another): (Option<PortId>, bool),
) -> Result<PortId, Error> {
    let options = port_options(port);
    let Some(id) = before else { return config.add_port(options, Arc::new(device)) };
    if is_another {
        Hook::ALL.iter().try_for_each(|&hook| config.set_links(id, hook, Vec::new()))?;
    }
    config.reopen_port(id, options, device).map(|()| id)
}

fn names(ports: &[&PortState], between: &str) -> String {
    ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(between)
}

/// Clears the upper of all ports whose upper goes.
fn clear_uppers(config: &mut Config, goes: impl Fn(&str) -> bool) -> Result<(), Error> {
    let ids: Vec<PortId> = config.ports().collect();
    for id in ids {
        if let UpperName::Named(upper) = config.upper(id)?
            && goes(upper)
        {
            config.set_upper(id, UpperName::None)?;
        }
    }
    Ok(())
}

/// Settings of a port that change while frames flow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    upper: UpperName,
    up: bool,
    /// Whether the port drops everything.
    shut: bool,
    mtu: Option<u32>,
    linearize: bool,
    spread: Spread,
}

impl Setting {
    fn wanted(port: &PortState) -> Setting {
        let upper = port.upper.clone().map_or(UpperName::None, UpperName::Named);
        let (up, mtu, linearize) = (port.up, port.mtu, port.linearize);
        Setting { upper, up, shut: false, mtu, linearize, spread: spread_of(port) }
    }

    /// The settings in the engine.
    fn of(config: &Config, id: PortId) -> Result<Setting, Error> {
        let (upper, options) = (config.upper(id)?.clone(), config.options(id)?);
        let PortOptions { up, mtu, linearize, spread, .. } = *options;
        Ok(Setting { upper, up, shut: config.is_shut(id)?, mtu, linearize, spread })
    }

    fn put(&self, config: &mut Config, id: PortId, now: &Setting) -> Result<(), Error> {
        if self.upper != now.upper {
            config.set_upper(id, self.upper.clone())?;
        }
        config.set_mtu(id, self.mtu)?;
        config.set_linearize(id, self.linearize)?;
        config.set_spread(id, self.spread)?;
        config.set_shut(id, self.shut)?;
        config.set_up(id, self.up)
    }

    /// Describes a change to `next`, for the log.
    fn told(&self, next: &Setting, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if self.upper != next.upper {
            let upper = match &next.upper {
                UpperName::Named(upper) => upper,
                UpperName::None => "nothing",
            };
            lines.push(format!("port {name}: upper is {upper}"));
        }
        if self.mtu != next.mtu {
            let mtu = next.mtu.map_or("the device's".to_owned(), |mtu| mtu.to_string());
            lines.push(format!("port {name}: mtu is {mtu}"));
        }
        if self.linearize != next.linearize {
            let on = if next.linearize { "on" } else { "off" };
            lines.push(format!("port {name}: linearize is {on}"));
        }
        if self.spread != next.spread {
            let whose = match next.spread {
                Spread::Off => "by the workers that poll its queues",
                Spread::Flow => "by several workers, each on its flows",
            };
            lines.push(format!("port {name}: programs run {whose}"));
        }
        if self.shut != next.shut {
            let does = if next.shut { "drops everything" } else { "is filtered as it is wanted" };
            lines.push(format!("port {name}: {does}"));
        }
        if self.up != next.up {
            lines.push(format!("port {name}: {}", if next.up { "up" } else { "down" }));
        }
        lines
    }
}

/// Longest time that a reader of a device's state keeps it open.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
const CLOSE_POLL: Duration = Duration::from_micros(500);
/// Devices opened in parallel, each by a thread.
const OPENED_AT_ONCE: usize = 16;
const _: () = assert!(OPENED_AT_ONCE > 0, "ports are opened");
const _: () = assert!(CLOSE_POLL.as_nanos() < CLOSE_TIME_MAX.as_nanos());
