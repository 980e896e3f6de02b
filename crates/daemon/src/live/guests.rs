//! Guests of ports: their channels, and the hooks of their programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_engine::{Config, Engine, Error, Hook, Link, PortId};
use towpath_guest::{Channel, Edge, Guest, Target};
use towpath_guest_client::wire::{Counters, Direction};
use towpath_xdp::Program;

use super::{Live, Report};
use crate::control::News;
use crate::failure::FailureCode;
use crate::guests::OffloadState;
use crate::state::State;

/// A port's guest, with its channel.
#[derive(Debug)]
pub(super) struct LiveGuest {
    state: OffloadState,
    /// The port's kind: what another kind of port has behind it is another guest.
    kind: String,
    guest: Arc<Guest>,
    edge: Arc<PortEdge>,
    /// Goes first: nobody asks for anything any more.
    channel: Option<Channel>,
}

impl Live {
    /// Makes the guests' channels what is wanted. What a guest has stays as long as its port does.
    pub(super) fn set_guests(&mut self, wanted: &State, report: &mut Report) {
        let wanted_ports = wanted.ports_by_name();
        let state_of = |name: &str| wanted_ports.get(name).and_then(|port| port.offload.as_ref());
        let ports = &self.ports;
        let is_there = |name: &str, guest: &LiveGuest| {
            ports.get(name).is_some_and(|port| port.kind == guest.kind)
        };
        let stays =
            |name: &String, guest: &LiveGuest| state_of(name).is_some() && is_there(name, guest);
        let gone = self.guests.extract_if(.., |name, guest| !stays(name, guest));
        for (name, mut guest) in gone.collect::<Vec<_>>() {
            guest.channel = None;
            guest.guest.reset("offload is not offered any more");
            report.change(format!("port {name}: offers its guest nothing any more"));
        }
        for port in &wanted.ports {
            let (Some(state), Some(live)) = (&port.offload, self.ports.get(&port.name)) else {
                continue;
            };
            if self.guests.get(&port.name).is_some_and(|guest| guest.is_as(state)) {
                continue;
            }
            let kind = live.kind.clone();
            match self.set_guest(&port.name, &kind, state) {
                Ok(()) => report.change(format!("port {}: offers its guest offload", port.name)),
                Err(why) => report.fail(
                    FailureCode::PortOffload,
                    format!("port {}: offload", port.name),
                    why,
                ),
            }
        }
    }

    fn set_guest(&mut self, name: &str, kind: &str, state: &OffloadState) -> Result<(), String> {
        let limits = state.limits().map_err(|problem| problem.to_string())?;
        let endpoint = state.endpoint().map_err(|problem| problem.to_string())?;
        let guest = self.guests.entry(name.to_owned()).or_insert_with(|| {
            let edge = Arc::new(PortEdge::new(name, &self.engine, &self.news));
            let workers = self.engine.workers();
            let guest = Guest::new(name, workers, limits.clone(), Arc::clone(&edge) as _);
            LiveGuest {
                state: OffloadState::default(),
                kind: kind.to_owned(),
                guest: Arc::new(guest),
                edge,
                channel: None,
            }
        });
        guest.guest.set_limits(limits);
        guest.edge.set_targets(state).map_err(|error| error.to_string())?;
        let is_same = guest.state.endpoint().is_ok_and(|before| before == endpoint);
        if guest.channel.is_none() || !is_same {
            // The socket may be the same one.
            guest.channel = None;
            let channel = Channel::start(&guest.guest, &endpoint);
            guest.channel = Some(channel.map_err(|error| format!("its channel: {error}"))?);
        }
        guest.state = state.clone();
        Ok(())
    }

    /// Guests by their ports.
    pub(super) fn seen_guests(&self) -> BTreeMap<String, Arc<Guest>> {
        let guests = self.guests.iter();
        guests.map(|(name, live)| (name.clone(), Arc::clone(&live.guest))).collect()
    }
}

impl LiveGuest {
    fn is_as(&self, wanted: &OffloadState) -> bool {
        self.channel.is_some() && self.state == *wanted
    }
}

/// A port as its guest's programs run there.
#[derive(Debug)]
struct PortEdge {
    port: String,
    engine: Arc<Engine>,
    news: Arc<News>,
    targets: Mutex<Vec<(u32, String)>>,
    restarts: Mutex<Restarts>,
}

/// How often a guest began anew, whatever became of its port's device meanwhile.
#[derive(Debug, Default)]
struct Restarts {
    total: u64,
    /// What the device counted.
    of_device: u64,
}

impl PortEdge {
    fn new(port: &str, engine: &Arc<Engine>, news: &Arc<News>) -> PortEdge {
        PortEdge {
            port: port.to_owned(),
            engine: Arc::clone(engine),
            news: Arc::clone(news),
            targets: Mutex::default(),
            restarts: Mutex::default(),
        }
    }

    fn set_targets(&self, state: &OffloadState) -> Result<(), Error> {
        let targets = state.numbered_targets();
        self.change(|config, port| config.set_guest_targets(port, targets.clone()))?;
        *self.targets.lock() = targets;
        Ok(())
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Config, PortId) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.engine.change(|config| {
            let port = config.find(&self.port)?;
            change(config, port)
        })
    }
}

impl Edge for PortEdge {
    fn set_program(&self, direction: Direction, program: Option<&Program>) -> Result<(), String> {
        let link = program.map(|it| Link::new(it.clone(), GUEST_LINK, self.engine.workers()));
        let set = self.change(|config, port| {
            config.set_links(port, hook(direction), link.into_iter().collect())
        });
        set.map_err(|error| error.to_string())
    }

    fn counters(&self, direction: Direction) -> Option<Counters> {
        self.engine.read(|config, _| {
            let port = config.find(&self.port).ok()?;
            let link = config.links(port, hook(direction)).ok()?.first()?;
            let mut sum = Counters::default();
            for counters in link.counters() {
                sum.runs += counters.runs.get();
                sum.faults += counters.faults.get();
                let actions = sum.actions.iter_mut().zip(&counters.actions);
                actions.for_each(|(sum, counter)| *sum += counter.get());
            }
            Some(sum)
        })
    }

    fn targets(&self) -> Vec<Target> {
        let targets = self.targets.lock();
        self.engine.read(|config, snapshot| {
            let target = |(ifindex, name): &(u32, String)| {
                let port = config.find(name).ok().and_then(|id| snapshot.port(id));
                Target {
                    ifindex: *ifindex,
                    name: name.clone(),
                    mtu: port.map_or(0, |port| port.mtu),
                    mac: port.map_or([0; 6], |port| port.opened.device.mac()),
                    is_up: port.is_some_and(|port| port.is_target),
                }
            };
            targets.iter().map(target).collect()
        })
    }

    fn restarts(&self) -> u64 {
        let now = self.engine.read(|config, snapshot| {
            let port = snapshot.port(config.find(&self.port).ok()?)?;
            Some(port.opened.device.restarts())
        });
        let mut restarts = self.restarts.lock();
        if let Some(now) = now {
            // A device that was opened anew counts from 0, and its guest is the same.
            restarts.total += now.saturating_sub(restarts.of_device);
            restarts.of_device = now;
        }
        restarts.total
    }

    fn tell(&self, text: &str) {
        self.news.change(text);
    }
}

fn hook(direction: Direction) -> Hook {
    match direction {
        Direction::Ingress => Hook::GuestRx,
        Direction::Egress => Hook::GuestTx,
    }
}

/// The number of a guest's link on its own hooks.
const GUEST_LINK: u32 = 1;
