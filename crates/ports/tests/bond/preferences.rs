//! The active member of an active-backup bond, while everything that affects it changes in random
//! order: links, members, the primary, its reselection, preferences, and choices by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::bond::BondMode;
use towpath_engine::{Engine, PortId, PortOptions};
use towpath_ports::bond::Controller;
use towpath_ports::bond::settings::{PrimaryReselect, Settings, Word as _};
use towpath_ports::pair::{self, Pair};

use crate::mode;
use crate::wire::engine;

/// The expected state, by the kernel's rules (`bond_choose_primary_or_current`).
#[derive(Debug, Default)]
struct Model {
    /// Members in order.
    members: Vec<usize>,
    up: [bool; PORTS],
    primary: Option<usize>,
    forces_primary: bool,
    reselect: PrimaryReselect,
    prio: [i32; PORTS],
    by_hand: Option<usize>,
    active: Option<usize>,
}

impl Model {
    fn works(&self, port: usize) -> bool {
        self.up[port] && self.members.contains(&port)
    }

    /// Chooses again. In the kernel this happens at some changes and not at others.
    fn select(&mut self) {
        let current = self.active.filter(|&it| self.works(it));
        let primary = self.primary.filter(|&it| self.works(it));
        let working: Vec<usize> =
            self.members.iter().copied().filter(|&it| self.works(it)).collect();
        let highest = working.iter().map(|&it| self.prio[it]).max();
        let first = working.iter().copied().find(|&it| Some(self.prio[it]) == highest);
        let preferred = primary.or(first);
        let forced = primary.is_some() && std::mem::take(&mut self.forces_primary);
        let keeps = match (self.primary_is_member(), self.by_hand) {
            _ if forced => false,
            (false, Some(_)) => true,
            // All links are equally fast.
            _ => self.reselect != PrimaryReselect::Always,
        };
        self.active = if keeps { current.or(preferred) } else { preferred };
    }

    fn primary_is_member(&self) -> bool {
        self.primary.is_some_and(|it| self.members.contains(&it))
    }

    /// Changes a link: a member is chosen again if the active one went down, or if the primary or a
    /// preferred one came up.
    fn link(&mut self, port: usize, up: bool) {
        let came = up && !self.up[port] && self.members.contains(&port);
        self.up[port] = up;
        let current = self.active.filter(|&it| self.works(it));
        let is_preferred = current.is_none_or(|it| self.prio[port] > self.prio[it]);
        if current.is_none() || came && (is_preferred || self.primary == Some(port)) {
            self.select();
        }
    }

    fn settings(&self) -> Settings {
        let name = |port: usize| format!("m{port}");
        Settings {
            options: mode(BondMode::ActiveBackup),
            miimon: Duration::from_millis(1),
            primary: self.primary.map(name),
            primary_reselect: self.reselect,
            prio: (0..PORTS).map(|port| (name(port), self.prio[port])).collect(),
            active_slave: self.by_hand.map(name),
            ..Settings::default()
        }
    }
}

/// Waits until the controller looked at the changes before this call.
fn seen(controller: &Controller) {
    let (before, start) = (controller.status().looks, Instant::now());
    // A look that was under way may have missed it.
    while controller.status().looks < before + 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody looks");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// A bond with a controller, and ports that may be its members.
struct Rig {
    engine: Arc<Engine>,
    bond: PortId,
    ports: Vec<PortId>,
    /// While they are there the ports have a carrier.
    _far: Vec<Pair>,
    controller: Controller,
    model: Model,
    random: fastrand::Rng,
}

impl Rig {
    fn new() -> Rig {
        let engine: Arc<Engine> = Arc::new(engine(1));
        let model = Model { up: [true; PORTS], ..Model::default() };
        let options = model.settings().engine_options();
        let bond = PortOptions::new("bond0");
        let bond = engine.change(|config| config.add_bond(bond, options, None)).unwrap();
        let port = |number: usize| {
            let (near, far) = Pair::new(pair::Options::default());
            let name = format!("m{number}");
            (engine.add_port(PortOptions::new(&name), Box::new(near)).unwrap(), far)
        };
        let (ports, far): (Vec<_>, Vec<_>) = (0..PORTS).map(port).unzip();
        let tell = Box::new(|_| {});
        let controller = Controller::start(&engine, bond, model.settings(), tell).unwrap();
        Rig {
            engine,
            bond,
            ports,
            _far: far,
            controller,
            model,
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// One random change.
    fn step(&mut self) -> String {
        let (what, port) = (self.random.usize(..7), self.random.usize(..PORTS));
        match what {
            0 | 1 => {
                let up = self.random.usize(..2) > 0;
                self.engine.change(|config| config.set_up(self.ports[port], up)).unwrap();
                self.model.link(port, up);
            }
            2 => self.join_or_leave(port),
            _ => self.prefer(what, port),
        }
        self.controller.set(self.model.settings());
        format!("{what} {port}")
    }

    fn join_or_leave(&mut self, port: usize) {
        let (bond, member, model) = (self.bond, self.ports[port], &mut self.model);
        if model.members.contains(&port) {
            self.engine.change(|config| config.release(bond, member)).unwrap();
            model.members.retain(|&it| it != port);
            if model.active.is_none_or(|it| it == port || !model.up[it]) {
                model.select();
            }
        } else {
            self.engine.change(|config| config.enslave(bond, member)).unwrap();
            model.members.push(port);
            model.forces_primary |= model.primary == Some(port);
            model.select();
        }
    }

    /// Makes a choice of an operator.
    fn prefer(&mut self, what: usize, port: usize) {
        let some = (self.random.usize(..3) > 0).then_some(port);
        let (number, model) = (self.random.usize(..3), &mut self.model);
        let before = (model.primary, model.reselect, model.prio);
        match what {
            3 => model.primary = some,
            4 => model.reselect = PrimaryReselect::WORDS[number].1,
            5 => model.prio[port] = number as i32 - 1,
            _ if some == model.by_hand => {}
            _ => {
                model.by_hand = some;
                if let Some(port) = some.filter(|it| model.members.contains(it)) {
                    model.active = Some(port);
                    if !model.up[port] {
                        model.select();
                    }
                }
            }
        }
        if model.primary != before.0 {
            model.forces_primary = model.primary_is_member();
        }
        if (model.primary, model.reselect, model.prio) != before {
            model.select();
        }
    }
}

#[test]
fn the_active_member_is_the_one_that_the_rules_say() {
    let mut rig = Rig::new();
    let steps = std::env::var("BOND_MODEL_STEPS").ok().and_then(|text| text.parse().ok());
    for step in 0..steps.unwrap_or(STEPS) {
        let what = rig.step();
        seen(&rig.controller);
        let (active, model) = (rig.controller.status().active, &rig.model);
        let expected = model.active.map(|it| format!("m{it}"));
        assert_eq!(active, expected, "step {step}, {what}: {model:#?}");
        let known = rig.engine.read(|config, _| config.bond(rig.bond).unwrap().active());
        assert_eq!(known, model.active.map(|it| rig.ports[it]), "step {step}: the engine knows");
    }
    let Rig { engine, controller, .. } = rig;
    drop(controller);
    engine.stop();
}

const PORTS: usize = 4;
/// Changes, unless `BOND_MODEL_STEPS` says another number.
const STEPS: usize = 1500;
