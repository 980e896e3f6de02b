//! The configuration that control code changes: ports, uppers, hooks, bridges, bonds.

mod bond;
mod index;
mod places;
mod queues;
mod reopen;
mod socket;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use strum::EnumCount;
use towpath_bpf::program::AttachType;
use towpath_xdp::Program;

use crate::bond::Bond;
use crate::bridge::Bridge;
use crate::chain::{Chain, Hook, Link};
use crate::dequeue::Schedule;
use crate::error::Error;
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::options::{PortOptions, UpperName};
use crate::sockets::Served;
use crate::spread::Spread;
use crate::tap::{self, Tap};
use index::Index;

#[derive(Debug, Clone)]
struct PortConfig {
    options: PortOptions,
    ifindex: u32,
    upper: UpperName,
    /// By the hooks' numbers.
    hooks: [Option<Arc<Chain>>; Hook::COUNT],
    /// Names of ports that programs of the guest behind this port may redirect to, by the guest's
    /// numbers.
    guest_targets: Vec<(u32, String)>,
    /// Schedule of its dequeue program; the same object for the port's lifetime.
    schedule: Arc<Schedule>,
    taps: Vec<Arc<Tap>>,
    opened: Arc<Opened>,
    /// Its device is closed, and a placeholder stands in for it.
    is_closed: bool,
    /// The port drops all frames because a required program is missing.
    is_shut: bool,
    /// The bond's settings, if the port is a bond.
    bond: Option<Bond>,
    /// The bond that it is a member of.
    master: Option<PortId>,
    /// The workers that serve it, if its options pin none.
    places: places::Places,
}

impl PortConfig {
    /// MTU in bytes: the configured one, or else the device's.
    fn mtu(&self) -> u32 {
        self.options.mtu.unwrap_or_else(|| self.opened.device.mtu())
    }

    fn hook(&self, hook: Hook) -> Option<&Arc<Chain>> {
        self.hooks[hook as usize].as_ref()
    }

    /// Taps that get copies of the frames of a hook.
    fn taps_on(&self, hook: Hook) -> Vec<Arc<Tap>> {
        let taps = self.taps.iter().filter(|tap| tap.options.points(hook).is_any());
        taps.cloned().collect()
    }
}

/// The whole configuration. A change is made to a copy, which replaces the original when it is
/// complete; unchanged parts are shared.
#[derive(Debug, Clone, Default)]
pub struct Config {
    workers: usize,
    ports: BTreeMap<PortId, Arc<PortConfig>>,
    index: Arc<Index>,
    bridges: Vec<Arc<Bridge>>,
    /// Programs that entries of devmaps and cpumaps name.
    entry_programs: HashMap<u32, Arc<Chain>>,
    sockets: Vec<Arc<Served>>,
}

impl Config {
    pub(crate) fn new(workers: usize) -> Config {
        Config { workers, ..Config::default() }
    }

    /// Adds a port with an opened device.
    pub fn add_port(&mut self, options: PortOptions, opened: Arc<Opened>) -> Result<PortId, Error> {
        self.check_name(&options.name)?;
        self.check_worker_numbers(&options)?;
        let ifindex = options.ifindex.or(opened.device.ifindex());
        if let Some((ifindex, owner)) = ifindex.and_then(|it| Some((it, self.owner_of(it)?))) {
            return Err(Error::IfindexTaken { ifindex, owner: owner.to_owned() });
        }
        let index = Arc::make_mut(&mut self.index);
        let ifindex = ifindex.unwrap_or_else(|| index.free_ifindex());
        let id = index.add(&options.name, ifindex);
        let port = PortConfig {
            options,
            ifindex,
            upper: UpperName::None,
            hooks: Default::default(),
            guest_targets: Vec::new(),
            schedule: Arc::default(),
            taps: Vec::new(),
            opened,
            is_closed: false,
            is_shut: false,
            bond: None,
            master: None,
            places: places::Places::default(),
        };
        self.ports.insert(id, Arc::new(port));
        Ok(id)
    }

    fn check_worker_numbers(&self, options: &PortOptions) -> Result<(), Error> {
        let unknown = options.workers.iter().find(|&&worker| worker >= self.workers);
        unknown.map_or(Ok(()), |&worker| Err(Error::NoWorker(worker, self.workers)))
    }

    /// Removes a port.
    ///
    /// # Errors
    ///
    /// Fails if the port does not exist, or is the upper of another port.
    pub fn remove_port(&mut self, id: PortId) -> Result<(), Error> {
        let name = self.port(id)?.options.name.clone();
        self.check_unused(&name)?;
        self.forget_member(id)?;
        self.forget_members(id)?;
        for bridge in &self.bridges {
            bridge.forget(id);
        }
        if let Some(port) = self.ports.remove(&id) {
            Arc::make_mut(&mut self.index).remove(id, &name, port.ifindex, &port.upper);
        }
        Ok(())
    }

    /// Makes a bridge that forgets addresses after `ageing`.
    pub fn add_bridge(&mut self, name: &str, ageing: Duration) -> Result<(), Error> {
        self.check_name(name)?;
        self.bridges.push(Arc::new(Bridge::new(name, ageing)));
        Ok(())
    }

    /// Removes a bridge.
    ///
    /// # Errors
    ///
    /// Fails if the bridge does not exist, or is the upper of a port.
    pub fn remove_bridge(&mut self, name: &str) -> Result<(), Error> {
        self.check_unused(name)?;
        let before = self.bridges.len();
        self.bridges.retain(|bridge| bridge.name() != name);
        if self.bridges.len() == before { Err(Error::NoBridge(name.to_owned())) } else { Ok(()) }
    }

    /// All bridges.
    pub fn bridges(&self) -> &[Arc<Bridge>] {
        &self.bridges
    }

    /// Sets the destination of a port's passed frames.
    pub fn set_upper(&mut self, id: PortId, upper: UpperName) -> Result<(), Error> {
        if let UpperName::Named(name) = &upper {
            self.check_no_member(id)?;
            if *name == self.port(id)?.options.name {
                return Err(Error::OwnUpper(name.clone()));
            }
            let is_bridge = self.bridges.iter().any(|bridge| bridge.name() == name);
            if !is_bridge {
                self.find(name)?;
            }
        }
        let before = self.port(id)?.upper.clone();
        if before != upper {
            Arc::make_mut(&mut self.index).set_upper(id, &before, &upper);
            self.port_mut(id)?.upper = upper;
        }
        Ok(())
    }

    /// Sets a port up or down: a port that is down sends and receives nothing.
    pub fn set_up(&mut self, id: PortId, up: bool) -> Result<(), Error> {
        self.port_mut(id)?.options.up = up;
        Ok(())
    }

    /// Makes a port drop all frames that arrive at it, that one of its members passes to it, or
    /// that would leave by it, whatever programs it has
    /// ([`DropReason::NoProgram`](crate::counters::DropReason::NoProgram)).
    pub fn set_shut(&mut self, id: PortId, is_shut: bool) -> Result<(), Error> {
        self.port_mut(id)?.is_shut = is_shut;
        Ok(())
    }

    /// Whether a port drops all frames (see [`Config::set_shut`]).
    pub fn is_shut(&self, id: PortId) -> Result<bool, Error> {
        Ok(self.port(id)?.is_shut)
    }

    /// Sets the MTU of a port, in bytes; `None` for the device's.
    pub fn set_mtu(&mut self, id: PortId, mtu: Option<u32>) -> Result<(), Error> {
        self.port_mut(id)?.options.mtu = mtu;
        Ok(())
    }

    /// Gives a port another ifindex.
    pub fn set_ifindex(&mut self, id: PortId, ifindex: u32) -> Result<(), Error> {
        let before = self.port(id)?.ifindex;
        if before == ifindex {
            return Ok(());
        }
        if let Some(owner) = self.owner_of(ifindex) {
            return Err(Error::IfindexTaken { ifindex, owner: owner.to_owned() });
        }
        Arc::make_mut(&mut self.index).set_ifindex(id, before, ifindex);
        self.port_mut(id)?.ifindex = ifindex;
        Ok(())
    }

    /// Exchanges the ifindexes of two ports.
    pub fn swap_ifindexes(&mut self, a: PortId, b: PortId) -> Result<(), Error> {
        let (of_a, of_b) = (self.port(a)?.ifindex, self.port(b)?.ifindex);
        Arc::make_mut(&mut self.index).swap_ifindexes((a, of_a), (b, of_b));
        (self.port_mut(b)?.ifindex, self.port_mut(a)?.ifindex) = (of_a, of_b);
        Ok(())
    }

    /// Switches linearization for programs without frags support.
    pub fn set_linearize(&mut self, id: PortId, on: bool) -> Result<(), Error> {
        self.port_mut(id)?.options.linearize = on;
        Ok(())
    }

    /// Sets how a port's flows are spread over workers. The frames of each flow stay in order.
    pub fn set_spread(&mut self, id: PortId, spread: Spread) -> Result<(), Error> {
        self.port_mut(id)?.options.spread = spread;
        Ok(())
    }

    /// The programs of a hook in the order they run.
    pub fn links(&self, id: PortId, hook: Hook) -> Result<&[Link], Error> {
        Ok(self.port(id)?.hook(hook).map_or(&[], |chain| chain.links()))
    }

    /// Replaces all programs of a hook at once.
    pub fn set_links(&mut self, id: PortId, hook: Hook, links: Vec<Link>) -> Result<(), Error> {
        let name = self.port(id)?.options.name.clone();
        for link in &links {
            let refused = |why: &str| {
                let (program, port) = (link.program.name().to_owned(), name.clone());
                Error::Attach { program, port, why: why.to_owned() }
            };
            check_type(link.program.attach(), hook).map_err(refused)?;
            self.check_workers(&link.program, &name)?;
            if hook == Hook::Dequeue && links.len() > 1 {
                return Err(refused("a port has one dequeue program; --replace takes its place"));
            }
            if hook == Hook::Dequeue && self.port(id)?.bond.is_some() {
                return Err(refused("a bond sends by its members: attach it to each of them"));
            }
        }
        if hook == Hook::Rx {
            self.check_attach(id, &links)?;
        }
        self.port_mut(id)?.hooks[hook as usize] = Chain::new(links).map(Arc::new);
        Ok(())
    }

    /// Sets the ports that programs of a port's guest may redirect to: names by the guest's numbers
    /// (never 0). Names of ports that do not exist have no effect until the port is added.
    pub fn set_guest_targets(
        &mut self,
        id: PortId,
        targets: Vec<(u32, String)>,
    ) -> Result<(), Error> {
        self.port_mut(id)?.guest_targets = targets;
        Ok(())
    }

    /// Adds a tap, which gets copies of frames that arrive at a port or leave it.
    pub fn add_tap(&mut self, id: PortId, tap: Arc<Tap>) -> Result<(), Error> {
        self.port_mut(id)?.taps.push(tap);
        Ok(())
    }

    /// Removes the tap of `reader`, if its port still exists.
    pub fn remove_tap(&mut self, reader: &tap::Reader) {
        let is_read = |port: &PortConfig| port.taps.iter().any(|tap| reader.reads(tap));
        for port in self.ports.values_mut().filter(|port| is_read(port)) {
            Arc::make_mut(port).taps.retain(|tap| !reader.reads(tap));
        }
    }

    /// Registers a program under the `id` (not 0) by which entries of devmaps and cpumaps refer to
    /// it, or with `None` removes it.
    pub fn set_entry_program(&mut self, id: u32, program: Option<Program>) -> Result<(), Error> {
        match program {
            Some(program) => {
                self.check_workers(&program, "a map entry")?;
                let chain = Chain::of_one(&program, self.workers);
                self.entry_programs.insert(id, Arc::new(chain));
            }
            None => {
                self.entry_programs.remove(&id);
            }
        }
        Ok(())
    }

    /// Checks that the program's per-CPU maps have a value for each worker.
    fn check_workers(&self, program: &Program, port: &str) -> Result<(), Error> {
        let has = program.maps().domain().workers();
        if has >= self.workers {
            return Ok(());
        }
        Err(Error::Attach {
            program: program.name().to_owned(),
            port: port.to_owned(),
            why: format!("its maps are made for {has} workers, and there are {}", self.workers),
        })
    }

    /// The port with this name.
    ///
    /// # Errors
    ///
    /// Fails if there is none; the error lists the known names.
    pub fn find(&self, name: &str) -> Result<PortId, Error> {
        self.index.named(name).ok_or_else(|| Error::NoPort {
            name: name.to_owned(),
            known: self.ports.values().map(|port| port.options.name.clone()).collect(),
        })
    }

    /// The port with this name, if there is one.
    pub fn named(&self, name: &str) -> Option<PortId> {
        self.index.named(name)
    }

    /// A port's name.
    pub fn name(&self, id: PortId) -> Result<&str, Error> {
        Ok(&self.port(id)?.options.name)
    }

    /// Numbers of all ports.
    pub fn ports(&self) -> impl Iterator<Item = PortId> {
        self.ports.keys().copied()
    }

    /// The name of a port's upper.
    pub fn upper(&self, id: PortId) -> Result<&UpperName, Error> {
        Ok(&self.port(id)?.upper)
    }

    fn port(&self, id: PortId) -> Result<&PortConfig, Error> {
        self.ports.get(&id).map(|port| &**port).ok_or(Error::NoPortId(id.0))
    }

    fn port_mut(&mut self, id: PortId) -> Result<&mut PortConfig, Error> {
        self.ports.get_mut(&id).map(Arc::make_mut).ok_or(Error::NoPortId(id.0))
    }

    fn owner_of(&self, ifindex: u32) -> Option<&str> {
        let owner = self.ports.get(&self.index.with_ifindex(ifindex)?)?;
        Some(&owner.options.name)
    }

    fn check_name(&self, name: &str) -> Result<(), Error> {
        let taken = self.index.named(name).is_some()
            || self.bridges.iter().any(|bridge| bridge.name() == name);
        if taken { Err(Error::NameTaken(name.to_owned())) } else { Ok(()) }
    }

    fn check_unused(&self, name: &str) -> Result<(), Error> {
        match self.index.below(name).next() {
            Some(by) => Err(Error::InUse { name: name.to_owned(), by: self.name(by)?.to_owned() }),
            None => Ok(()),
        }
    }
}

/// Checks that a hook takes programs of this type (`dev_xdp_install` refuses those for map
/// entries).
fn check_type(attach: AttachType, hook: Hook) -> Result<(), &'static str> {
    match (attach, hook) {
        (AttachType::Dequeue, Hook::Dequeue)
        | (AttachType::Xdp, Hook::Rx | Hook::Tx | Hook::GuestRx | Hook::GuestTx) => Ok(()),
        (AttachType::Dequeue, _) => Err("it is a dequeue program: --hook dequeue takes it"),
        (AttachType::Syscall, _) => {
            Err("it is a program that users call (section \"syscall\"): no hook takes it")
        }
        (_, Hook::Dequeue) => Err("it is not a dequeue program (section \"dequeue\")"),
        (AttachType::Devmap | AttachType::Cpumap, _) => {
            Err("it is made for entries of a devmap or cpumap")
        }
    }
}
