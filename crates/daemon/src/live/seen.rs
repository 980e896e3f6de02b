//! A copy of the actual state for readers, which a reconciliation in progress does not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_engine::Engine;
use towpath_engine::bridge::Bridge;
use towpath_guest::Guest;
use towpath_objects::Objects;
use towpath_ports::bond::Observer;
use towpath_xfrm::Door;

use super::parts::{LiveLink, LivePort};
use super::{Live, LiveSa, Xsk};
use crate::model::state::{BridgeState, ProgramState};

/// The actual state after the last reconciliation. The engine and the object registry are shared,
/// and therefore current.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The engine: counters, ports, conservation.
    pub(crate) engine: Arc<Engine>,
    /// Programs, maps and links with their ids and pins, including those of `bpf(2)` clients.
    pub(crate) registry: Arc<Objects>,
    /// AF_XDP sockets of applications.
    pub(crate) xsk: Xsk,
    /// Open ports by name.
    pub(crate) ports: BTreeMap<String, LivePort>,
    /// Readers of the state of bonds, by the bond's name.
    pub(crate) bonds: BTreeMap<String, Observer>,
    /// Virtual machines with programs in the host, by their port's name.
    pub(crate) guests: BTreeMap<String, Arc<Guest>>,
    /// Wanted states of loaded programs, by id.
    pub(crate) programs: BTreeMap<u32, ProgramState>,
    /// SAs by name.
    pub(crate) sas: BTreeMap<String, Arc<LiveSa>>,
    /// Doors for IKE daemons, by the names of their ports.
    pub(crate) doors: BTreeMap<String, Arc<Door>>,
    /// Programs on hooks.
    pub(crate) links: Vec<LiveLink>,
}

impl Live {
    /// Bridges by name.
    pub fn bridges(&self) -> BTreeMap<String, BridgeState> {
        bridges(&self.engine)
    }

    /// A copy of the current state.
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
            sas: self.sas().clone(),
            doors: self.doors(),
            links: self.links.clone(),
        }
    }
}

/// The engine's bridges, by name.
pub(crate) fn bridges(engine: &Engine) -> BTreeMap<String, BridgeState> {
    let state = |bridge: &Arc<Bridge>| {
        let (name, ageing) = (bridge.name().to_owned(), bridge.ageing().as_secs());
        (name.clone(), BridgeState { name, ageing })
    };
    engine.read(|config, _| config.bridges().iter().map(state).collect())
}
