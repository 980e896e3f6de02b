//! The thread that controls a bond.

mod arp;
mod notify;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use towpath_engine::bond::control::{Mail, Mailbox};
use towpath_engine::bond::{Bond, BondMode, MemberState};
use towpath_engine::port::Speed;
use towpath_engine::{Engine, Error, PortId};

use super::active::{Candidate, choose};
use super::arp::ArpMonitor;
use super::lacp::{Event, Lacp, Link};
use super::links::{Mii, Monitor, ticks};
use super::settings::{FailOverMac, PrimaryReselect, Settings};
use super::status::{MemberStatus, Status};

/// A receiver of a bond's events, one line each.
pub type Tell = Box<dyn Fn(String) + Send>;

/// A running control plane of a bond; it ends when this is dropped.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the control thread and its users.
#[derive(Debug, Default)]
struct Shared {
    stops: AtomicBool,
    settings: Mutex<Option<Settings>>,
    status: Mutex<Status>,
}

impl Controller {
    /// Starts control of a bond of the engine. It stops by itself when the bond is removed.
    ///
    /// # Errors
    ///
    /// Fails if the bond does not exist, or no thread can be started.
    pub fn start(
        engine: &Arc<Engine>,
        bond: PortId,
        settings: Settings,
        tell: Tell,
    ) -> io::Result<Controller> {
        let mailbox = engine.read(|config, _| config.bond(bond).map(|it| Arc::clone(it.mailbox())));
        let mailbox = mailbox.map_err(io::Error::other)?;
        let shared = Arc::new(Shared::default());
        let mut keeper = ControlLoop {
            engine: Arc::clone(engine),
            bond,
            name: engine.read(|config, _| config.name(bond).unwrap_or_default().to_owned()),
            shared: Arc::clone(&shared),
            mailbox: Arc::clone(&mailbox),
            settings,
            tell,
            members: Vec::new(),
            active: None,
            has_new_order: true,
            forces_primary: false,
            carrier: None,
            notices: 0,
            questions: 0,
            next_question: Instant::now(),
            joined_by: None,
            lacp: None,
            arp: None,
            started: Instant::now(),
            next_look: Instant::now(),
            looks: 0,
        };
        // The first look is done when this returns, so no bond is visible before it.
        keeper.look();
        let thread = std::thread::Builder::new().name("bond".to_owned());
        let thread = thread.spawn(move || keeper.run())?;
        Ok(Controller { shared, mailbox, thread: Some(thread) })
    }

    /// Changes the settings.
    pub fn set(&self, settings: Settings) {
        *self.shared.settings.lock() = Some(settings);
        self.mailbox.ring();
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.observer().status()
    }

    /// A view of the bond's state that does not keep it running.
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.shared))
    }
}

/// A view of a bond's state: of its last state, once its control has ended.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// The present status.
    pub fn status(&self) -> Status {
        self.0.status.lock().clone()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        self.mailbox.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _panicked = thread.join();
        }
    }
}

/// The state of the thread that controls a bond.
struct ControlLoop {
    engine: Arc<Engine>,
    bond: PortId,
    name: String,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    settings: Settings,
    tell: Tell,
    members: Vec<Kept>,
    active: Option<PortId>,
    /// The best member may have changed.
    has_new_order: bool,
    /// The primary member was set or joined, and becomes active as soon as its link is up, whatever
    /// `primary_reselect` says (`force_primary`).
    forces_primary: bool,
    /// The carrier reported last; `None` before the first report.
    carrier: Option<bool>,
    /// Remaining announcements, times the ticks between two (`send_peer_notif`).
    notices: u32,
    /// Remaining queries for multicast groups, the time of the next one, and the member that
    /// carried the groups at the last query.
    questions: u8,
    next_question: Instant,
    joined_by: Option<PortId>,
    /// LACP, in mode 802.3ad.
    lacp: Option<Lacp>,
    /// The ARP monitor, if configured.
    arp: Option<ArpMonitor>,
    started: Instant,
    next_look: Instant,
    looks: u64,
}

/// A member and its state.
struct Kept {
    seen: MemberView,
    monitor: Monitor,
    /// Frames received when the ARP monitor was last told of traffic.
    received_before: u64,
    /// Its link when the active member was chosen last.
    link_before: Mii,
    /// Its speed; `speed_asked` is when that was read, which may take a while.
    speed: Speed,
    speed_asked: Instant,
}

/// The engine's view of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemberView {
    port: PortId,
    name: String,
    mac: [u8; 6],
    /// Whether it is up and has a carrier.
    carrier: bool,
    /// Frames received.
    received: u64,
    /// Its speed, if that was read.
    speed: Option<Speed>,
}

impl Kept {
    fn new(seen: MemberView, is_monitored: bool) -> Kept {
        Kept {
            monitor: Monitor::new(seen.carrier || !is_monitored),
            received_before: seen.received,
            link_before: Mii::Down,
            speed: seen.speed.unwrap_or_default(),
            speed_asked: Instant::now(),
            seen,
        }
    }

    /// Whether to read its speed. A link that came back may have another speed.
    fn wants_speed(&self, carrier: bool) -> bool {
        carrier && !self.seen.carrier || self.speed_asked.elapsed() > SPEED_PERIOD
    }

    /// Updates the member with the present view.
    fn meet(&mut self, seen: MemberView) {
        if let Some(speed) = seen.speed {
            (self.speed, self.speed_asked) = (speed, Instant::now());
        }
        self.seen = seen;
    }

    /// The event of a link change.
    fn link_line(&self) -> String {
        format!("member {}: link {}", self.seen.name, self.monitor.state.name())
    }
}

impl ControlLoop {
    fn run(mut self) {
        while !self.shared.stops.load(Ordering::Acquire) {
            let limit = self.next_step().saturating_duration_since(Instant::now());
            let mail = self.mailbox.wait(limit);
            self.read(&mail);
            let changed = self.shared.settings.lock().take();
            let is_due = Instant::now() >= self.next_look || changed.is_some();
            changed.into_iter().for_each(|settings| self.change(settings));
            let exists = if is_due { self.look() } else { self.talk() };
            if !exists {
                return;
            }
        }
    }

    fn next_step(&self) -> Instant {
        let tick = self.lacp.as_ref().and_then(Lacp::next_tick).map(|tick| self.started + tick);
        tick.map_or(self.next_look, |tick| tick.min(self.next_look))
    }

    fn read(&mut self, mail: &[Mail]) {
        for Mail { port, packet } in mail {
            if let Some(lacp) = &mut self.lacp {
                lacp.receive(port.0, packet);
            }
            if let Some(arp) = &mut self.arp {
                arp.hear(port.0, packet, self.started.elapsed());
            }
        }
    }

    /// Sends LACP's frames and reports its events. Returns whether the bond still exists.
    fn talk(&mut self) -> bool {
        let Some(lacp) = &mut self.lacp else { return true };
        lacp.tick(self.started.elapsed());
        let (frames, events) = (lacp.take_frames(), lacp.take_events());
        for (member, frame) in frames {
            self.engine.inject(PortId(member), &frame);
        }
        let is_news = !events.is_empty();
        if events.iter().any(|event| matches!(event, Event::Member { distributing: true, .. })) {
            self.owe_notices();
        }
        events.into_iter().for_each(|event| self.tell_event(event));
        !is_news || self.conclude()
    }

    fn tell_event(&self, event: Event) {
        let name = |member| {
            let found = self.members.iter().find(|it| it.seen.port == PortId(member));
            found.map_or("?", |it| &it.seen.name)
        };
        let does = |yes: bool| if yes { "" } else { "not " };
        match event {
            Event::Aggregator(Some(id)) => self.tell(format!("active aggregator is {id}")),
            Event::Aggregator(None) => self.tell("no active aggregator".to_owned()),
            Event::Member { member, collecting, distributing } => self.tell(format!(
                "member {}: {}collecting, {}distributing",
                name(member),
                does(collecting),
                does(distributing)
            )),
            Event::Loopback { member } => {
                self.tell(format!(
                    "member {}: it receives its own LACPDUs: is there a loop?",
                    name(member)
                ));
            }
            // Reported with the bond's carrier.
            Event::Carrier(_) => {}
        }
    }

    /// Updates LACP with the present members and links.
    fn inform_lacp(&mut self) {
        if self.settings.options.mode != BondMode::Lacp {
            self.lacp = None;
            return;
        }
        let mac = self.mac().unwrap_or_default();
        let config = self.settings.lacp_config(mac);
        let lacp = self.lacp.get_or_insert_with(|| Lacp::new(config.clone()));
        if *lacp.config() != config {
            lacp.configure(config);
        }
        let known: Vec<u32> = lacp.members().map(|it| it.member).collect();
        for &member in &known {
            if self.members.iter().all(|it| it.seen.port.0 != member) {
                lacp.remove(member);
            }
        }
        for it in &self.members {
            let works = it.monitor.state == Mii::Up && it.seen.carrier;
            let Speed { mbps: speed_mbps, is_full_duplex: full_duplex } = it.speed;
            let link = Link { up: true, speed_mbps, full_duplex };
            let link = if works { link } else { Link::down() };
            match known.contains(&it.seen.port.0) {
                true => lacp.link(it.seen.port.0, link),
                false => lacp.add(it.seen.port.0, it.seen.mac, PORT_PRIORITY, link),
            }
        }
    }

    fn period(&self) -> Duration {
        self.settings.link_period().or(self.settings.arp_period()).unwrap_or(PERIOD)
    }

    fn change(&mut self, settings: Settings) {
        let asked = settings.active_slave.clone();
        if asked.is_some() && asked != self.settings.active_slave {
            let found = self.members.iter().find(|it| Some(&it.seen.name) == asked.as_ref());
            if let Some(port) = found.map(|it| it.seen.port) {
                self.make_active(Some(port));
            }
        }
        let order = |it: &Settings| (it.primary.clone(), it.primary_reselect, it.prio.clone());
        self.has_new_order |= order(&settings) != order(&self.settings);
        let is_other = settings.primary != self.settings.primary;
        self.settings = settings;
        if is_other {
            let mut names = self.members.iter().map(|it| Some(&it.seen.name));
            self.forces_primary = names.any(|name| name == self.settings.primary.as_ref());
        }
    }

    /// Inspects all links, decides, and updates the engine. Returns whether the bond still exists.
    fn look(&mut self) -> bool {
        self.next_look = Instant::now() + self.period();
        self.looks += 1;
        let Some(seen) = self.see() else { return false };
        self.meet(seen);
        self.watch_links();
        self.watch_answers();
        self.inform_lacp();
        self.talk();
        self.choose_active();
        self.ask();
        self.announce();
        self.ask_for_groups();
        self.conclude()
    }

    /// Reports the state to the engine and to observers. Returns whether the bond still exists.
    fn conclude(&mut self) -> bool {
        // A member removed meanwhile is not an error: the next look notices it.
        let _published = self.publish();
        self.show();
        self.engine.read(|config, _| config.bond(self.bond).is_ok())
    }

    /// The present members; `None` if the bond does not exist.
    fn see(&self) -> Option<Vec<MemberView>> {
        let members = self.engine.read(|config, _| {
            let members = config.bond(self.bond).ok()?.members().iter();
            Some(members.map(|it| it.port).collect::<Vec<_>>())
        })?;
        Some(members.into_iter().filter_map(|port| self.see_member(port)).collect())
    }

    /// The engine's view of a member. The kernel may be slow to answer; no other thread waits for
    /// it, and only this member's device is kept open.
    fn see_member(&self, port: PortId) -> Option<MemberView> {
        let slot = self.engine.port(port)?;
        let device = &slot.opened.device;
        let has_failed = slot.opened.failed.load(Ordering::Relaxed);
        let carrier = slot.up && !has_failed && device.link();
        let mut known = self.members.iter();
        let known = known.find(|it| it.seen.port == port && it.seen.name == *slot.name);
        let wants_speed = known.is_none_or(|known| known.wants_speed(carrier));
        Some(MemberView {
            port,
            name: slot.name.to_string(),
            mac: device.mac(),
            carrier,
            received: slot.opened.counters.iter().map(|it| it.rx_packets.get()).sum(),
            speed: wants_speed.then(|| device.speed()),
        })
    }

    /// Updates the list of members.
    fn meet(&mut self, seen: Vec<MemberView>) {
        let mut before = std::mem::take(&mut self.members);
        for seen in seen {
            let name = seen.name.clone();
            let known = before.iter().position(|it| it.seen.port == seen.port);
            let same = known.filter(|&place| before[place].seen.name == seen.name);
            let member = match same.map(|place| before.swap_remove(place)) {
                Some(mut known) => {
                    known.meet(seen);
                    known
                }
                None => Kept::new(seen, self.is_monitored()),
            };
            if known.is_none() {
                let link = member.monitor.state.name();
                self.tell(format!("member {} joined, link {link}", member.seen.name));
            }
            self.has_new_order |= same.is_none();
            self.forces_primary |= same.is_none() && Some(&name) == self.settings.primary.as_ref();
            self.members.push(member);
        }
        before.retain(|it| self.members.iter().all(|member| member.seen.port != it.seen.port));
        for gone in before {
            self.tell(format!("member {} left", gone.seen.name));
        }
        if self.active.is_some_and(|active| self.members.iter().all(|it| it.seen.port != active)) {
            self.active = None;
        }
    }

    fn watch_links(&mut self) {
        let Some(period) = self.settings.link_period() else { return };
        let (up, down) = (self.settings.updelay, self.settings.downdelay);
        let delays = (ticks(up, period), ticks(down, period));
        let mut hurries = match self.settings.options.mode {
            BondMode::ActiveBackup => self.active.is_none(),
            _ => !self.members.iter().any(|it| self.can_send(it)),
        };
        let mut news = Vec::new();
        for member in &mut self.members {
            let before = member.monitor.state;
            member.monitor.tick(member.seen.carrier, delays, &mut hurries);
            if member.monitor.state != before {
                news.push(member.link_line());
            }
        }
        news.into_iter().for_each(|line| self.tell(line));
    }

    fn choose_active(&mut self) {
        if self.settings.options.mode != BondMode::ActiveBackup {
            return;
        }
        let candidate = |it: &Kept| Candidate {
            link: it.monitor.state,
            delay: it.monitor.delay,
            prio: self.settings.prio.get(&it.seen.name).copied().unwrap_or(0),
            speed: it.speed,
        };
        let candidates: Vec<Candidate> = self.members.iter().map(candidate).collect();
        let place = |port| self.members.iter().position(|it| Some(it.seen.port) == port);
        let primary = self.settings.primary.as_ref();
        let primary = self.members.iter().position(|it| Some(&it.seen.name) == primary);
        let current = place(self.active);
        if !self.is_open_question(&candidates, current, primary) {
            return;
        }
        let primary_works = primary.is_some_and(|place| candidates[place].link == Mii::Up);
        let reselect = match (primary, &self.settings.active_slave) {
            _ if primary_works && std::mem::take(&mut self.forces_primary) => {
                PrimaryReselect::Always
            }
            // A member selected by hand stays until it fails.
            (None, Some(_)) => PrimaryReselect::Failure,
            _ => self.settings.primary_reselect,
        };
        let updelay = ticks(self.settings.updelay, self.period());
        let best = choose(&candidates, current, primary, reselect, updelay);
        let best = best.map(|place| self.members[place].seen.port);
        if best != self.active {
            self.make_active(best);
        }
    }

    /// Whether to choose the active member again. A link that came back is no reason by itself, if
    /// the active member's link is up and its preference is not lower (`do_failover` in
    /// `bond_miimon_commit`).
    fn is_open_question(
        &mut self,
        candidates: &[Candidate],
        current: Option<usize>,
        primary: Option<usize>,
    ) -> bool {
        let mut is_open = std::mem::take(&mut self.has_new_order);
        let current = current.map(|place| candidates[place]).filter(|it| it.link == Mii::Up);
        for (place, member) in self.members.iter_mut().enumerate() {
            let is_new = member.monitor.state == Mii::Up && member.link_before != Mii::Up;
            let prio = candidates[place].prio;
            let is_preferred = current.is_none_or(|current| prio > current.prio);
            is_open |= is_new && (is_preferred || primary == Some(place));
            member.link_before = member.monitor.state;
        }
        is_open || current.is_none()
    }

    fn make_active(&mut self, active: Option<PortId>) {
        self.active = active;
        let found = self.members.iter_mut().find(|it| Some(it.seen.port) == active);
        let Some(found) = found else { return self.tell("no active member".to_owned()) };
        if found.monitor.state == Mii::Back {
            // There is no better member to wait for (`bond_change_active_slave`).
            (found.monitor.state, found.monitor.delay) = (Mii::Up, 0);
        }
        let line = format!("active member is {}", found.seen.name);
        self.tell(line);
        self.owe_notices();
    }

    /// The bond's address, if it follows the active member.
    fn mac(&self) -> Option<[u8; 6]> {
        let active = self.members.iter().find(|it| Some(it.seen.port) == self.active);
        match self.settings.fail_over_mac {
            FailOverMac::Active => active.map(|it| it.seen.mac),
            FailOverMac::None | FailOverMac::Follow => {
                self.engine.read(|config, _| config.bond(self.bond).ok().and_then(Bond::mac))
            }
        }
    }

    fn state(&self, member: &Kept) -> MemberState {
        let number = member.seen.port.0;
        let lacp = self.lacp.as_ref();
        MemberState {
            link_up: member.monitor.state == Mii::Up && member.seen.carrier,
            enabled: lacp.is_none_or(|lacp| lacp.collects(number)),
            aggregated: lacp.is_none_or(|lacp| lacp.usable().contains(&number)),
        }
    }

    fn is_active(&self, member: &Kept) -> bool {
        match self.settings.options.mode {
            BondMode::ActiveBackup => Some(member.seen.port) == self.active,
            _ => self.state(member).enabled,
        }
    }

    fn can_send(&self, member: &Kept) -> bool {
        let state = self.state(member);
        state.link_up && state.aggregated && self.is_active(member)
    }

    fn has_carrier(&self) -> bool {
        match self.settings.options.mode {
            BondMode::ActiveBackup => self.active.is_some(),
            BondMode::Lacp => self.lacp.as_ref().is_some_and(Lacp::carrier),
            _ => self.members.iter().any(|it| it.monitor.state == Mii::Up),
        }
    }

    /// Applies changed state to the engine.
    fn publish(&mut self) -> Result<(), Error> {
        let wanted: Vec<(PortId, MemberState)> =
            self.members.iter().map(|it| (it.seen.port, self.state(it))).collect();
        let (active, carrier, mac) = (self.active, self.has_carrier(), self.mac());
        let by_active = self.settings.options.mode == BondMode::ActiveBackup;
        let is_known = |bond: &Bond| {
            bond.members().iter().map(|it| (it.port, it.state)).eq(wanted.iter().copied())
                && (!by_active || bond.active() == active)
                && bond.mac() == mac
                && bond.carrier() == Some(carrier)
        };
        if self.carrier != Some(carrier) {
            self.carrier = Some(carrier);
            self.tell(if carrier { "carrier is on" } else { "carrier is off" }.to_owned());
        }
        if self.engine.read(|config, _| config.bond(self.bond).is_ok_and(is_known)) {
            return Ok(());
        }
        self.engine.change(|config| {
            wanted
                .iter()
                .try_for_each(|&(port, state)| config.set_member(self.bond, port, state))?;
            if by_active {
                config.set_active(self.bond, active)?;
            }
            if let Some(mac) = mac {
                config.set_bond_mac(self.bond, mac)?;
            }
            config.set_carrier(self.bond, Some(carrier))
        })
    }

    fn show(&self) {
        let name = |port| self.members.iter().find(|it| Some(it.seen.port) == port);
        let lacp = self.lacp.as_ref();
        let port = |number| lacp?.members().find(|port| port.member == number);
        let member = |it: &Kept| MemberStatus {
            name: it.seen.name.clone(),
            link: it.monitor.state,
            failures: it.monitor.failures,
            mac: it.seen.mac,
            speed: it.seen.carrier.then_some(it.speed),
            can_send: self.can_send(it),
            is_active: self.is_active(it),
            prio: self.settings.prio.get(&it.seen.name).copied().unwrap_or(0),
            lacp: port(it.seen.port.0),
        };
        let status = Status {
            settings: self.settings.clone(),
            looks: self.looks,
            carrier: self.has_carrier(),
            mac: self.mac().unwrap_or_default(),
            active: name(self.active).map(|it| it.seen.name.clone()),
            period: self.settings.link_period(),
            aggregator: lacp.and_then(Lacp::active),
            members: self.members.iter().map(member).collect(),
        };
        *self.shared.status.lock() = status;
    }

    fn tell(&self, mut what: String) {
        what.insert_str(0, &format!("bond {}: ", self.name));
        (self.tell)(what);
    }
}

/// Default period of inspecting members.
const PERIOD: Duration = Duration::from_millis(100);
/// Interval at which the speed of a link that stays up is read; a driver may ask its hardware.
const SPEED_PERIOD: Duration = Duration::from_secs(1);
const _: () = assert!(PERIOD.as_nanos() < SPEED_PERIOD.as_nanos(), "speed is asked for less often");
/// `ad_actor_port_prio`
const PORT_PRIORITY: u16 = 255;
