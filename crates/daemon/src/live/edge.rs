//! A guest, its channel, and the hooks of its programs on its port.

use std::sync::Arc;

use parking_lot::Mutex;
use towpath_engine::{Config, Engine, Error, Hook, Link, PortId};
use towpath_guest::{Channel, Edge, Guest, Target};
use towpath_guest_client::wire::{Counters, Direction};
use towpath_xdp::Program;

use crate::live::news::News;
use crate::model::offload::OffloadState;

/// The guest of a port, with its channel.
#[derive(Debug)]
pub(super) struct LiveGuest {
    pub(super) state: OffloadState,
    /// The port's kind: a port of another kind has another guest.
    pub(super) kind: String,
    pub(super) guest: Arc<Guest>,
    pub(super) edge: Arc<PortEdge>,
    /// Dropped first, so that no more requests arrive.
    pub(super) channel: Option<Channel>,
}

impl LiveGuest {
    pub(super) fn is_as(&self, wanted: &OffloadState) -> bool {
        self.channel.is_some() && self.state == *wanted
    }
}

/// The port on whose hooks the guest's programs run.
#[derive(Debug)]
pub(super) struct PortEdge {
    port: String,
    engine: Arc<Engine>,
    news: Arc<News>,
    targets: Mutex<Vec<(u32, String)>>,
    restarts: Mutex<Restarts>,
}

/// Number of restarts of a guest, kept across replacements of the port's device.
#[derive(Debug, Default)]
struct Restarts {
    total: u64,
    /// The device's count at the last look.
    of_device: u64,
}

impl PortEdge {
    pub(super) fn new(port: &str, engine: &Arc<Engine>, news: &Arc<News>) -> PortEdge {
        PortEdge {
            port: port.to_owned(),
            engine: Arc::clone(engine),
            news: Arc::clone(news),
            targets: Mutex::default(),
            restarts: Mutex::default(),
        }
    }

    pub(super) fn set_targets(&self, state: &OffloadState) -> Result<(), Error> {
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
            // A reopened device counts from 0, while its guest is the same.
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

/// Id of a guest's link on its own hooks.
const GUEST_LINK: u32 = 1;
const _: () = assert!(GUEST_LINK != super::devices::FOREIGN, "a guest's program has an id");
