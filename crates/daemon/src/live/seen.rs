//! What there is, for those who only look: a copy that the next reconciliation leaves alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_engine::Engine;
use towpath_engine::bridge::Bridge;
use towpath_guest::Guest;
use towpath_objects::Objects;
use towpath_ports::bond::Observer;

use super::{Live, LiveLink, LivePort, Xsk};
use crate::state::{BridgeState, ProgramState};

/// What there was when the last reconciliation was done. The engine and the objects are what they
/// are now.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    engine: Arc<Engine>,
    registry: Arc<Objects>,
    xsk: Xsk,
    ports: BTreeMap<String, LivePort>,
    bonds: BTreeMap<String, Observer>,
    guests: BTreeMap<String, Arc<Guest>>,
    programs: BTreeMap<u32, ProgramState>,
    links: Vec<LiveLink>,
}

impl Live {
    /// All of it, as it is now.
    pub(crate) fn seen(&self) -> Seen {
        let programs = self.programs.values().map(|live| (live.id(), live.state.clone()));
        let bonds = self.bonds.iter().map(|(name, it)| (name.clone(), it.observer()));
        Seen {
            engine: Arc::clone(&self.engine),
            registry: Arc::clone(&self.registry),
            xsk: self.xsk.clone(),
            ports: self.ports.clone(),
            bonds: bonds.collect(),
            guests: self.seen_guests(),
            programs: programs.collect(),
            links: self.links.clone(),
        }
    }
}

impl Seen {
    /// The engine: counters, ports, conservation.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Programs, maps and links with their ids and pins, whoever made them.
    pub(crate) fn registry(&self) -> &Arc<Objects> {
        &self.registry
    }

    /// AF_XDP sockets of applications.
    pub(crate) fn xsk(&self) -> &Xsk {
        &self.xsk
    }

    /// Open ports by name.
    pub(crate) fn ports(&self) -> &BTreeMap<String, LivePort> {
        &self.ports
    }

    /// Bridges by name.
    pub(crate) fn bridges(&self) -> BTreeMap<String, BridgeState> {
        bridges(&self.engine)
    }

    /// How bonds are, by their names.
    pub(crate) fn bonds(&self) -> &BTreeMap<String, Observer> {
        &self.bonds
    }

    /// Virtual machines that have programs run, by their ports.
    pub(crate) fn guests(&self) -> &BTreeMap<String, Arc<Guest>> {
        &self.guests
    }

    /// What was wanted of loaded programs, by their ids.
    pub(crate) fn programs(&self) -> &BTreeMap<u32, ProgramState> {
        &self.programs
    }

    /// Programs on hooks.
    pub(crate) fn links(&self) -> &[LiveLink] {
        &self.links
    }
}

/// The bridges that the engine has, by name.
pub(super) fn bridges(engine: &Engine) -> BTreeMap<String, BridgeState> {
    let state = |bridge: &Arc<Bridge>| {
        let (name, ageing) = (bridge.name().to_owned(), bridge.ageing().as_secs());
        (name.clone(), BridgeState { name, ageing })
    };
    engine.read(|config, _| config.bridges().iter().map(state).collect())
}
