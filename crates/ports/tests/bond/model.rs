//! Everything about a bond changes in random order while frames flow: each change is allowed or
//! refused by the rules, workers see the state that the rules demand, and no frame is lost.

use std::sync::Arc;

use towpath_engine::bond::{BondMode, BondOptions, MemberState, XmitPolicy};
use towpath_engine::{Engine, Error, Hook, Link, PortId, PortOptions, UpperName};
use towpath_ports::generator::{self, Generator};
use towpath_ports::pair::{self, Pair};
use towpath_workload::small;
use towpath_xdp::Program;

use crate::wire::{engine, load};
use crate::{add_bond, mode};

/// The expected state.
#[derive(Debug, Default)]
struct Model {
    /// Whether the bond has a program.
    bond: bool,
    /// Members in order.
    members: Vec<usize>,
    /// Whether a port has a program of its own.
    own: [bool; PORTS],
    /// Whether a member's link works, and whether LACP uses it.
    states: [(bool, bool); PORTS],
    /// The active member.
    active: Option<usize>,
    mode: BondMode,
    policy: XmitPolicy,
    is_down: bool,
}

impl Model {
    /// Adds a member behind the others; it counts as up until that is changed.
    fn join(&mut self, number: usize) {
        self.members.push(number);
        self.states[number] = (true, self.mode != BondMode::Lacp);
        self.choose_active();
    }

    fn leave(&mut self, number: usize) {
        self.members.retain(|&it| it != number);
        if self.active == Some(number) {
            self.active = None;
        }
        self.choose_active();
    }

    /// Chooses the active member as without a controller: the first whose link works, when the one
    /// in use does not.
    fn choose_active(&mut self) {
        if !self.active.is_some_and(|it| self.states[it].0) {
            self.active = self.members.iter().copied().find(|&it| self.states[it].0);
        }
    }

    /// `__bond_xdp_check`
    fn takes_programs(mode: BondMode, policy: XmitPolicy) -> bool {
        let hashes = matches!(mode, BondMode::BalanceXor | BondMode::Lacp);
        mode != BondMode::Broadcast && !(hashes && policy == XmitPolicy::VlanSrcmac)
    }

    /// `bond_is_active_slave` is false.
    fn is_backup(&self, number: usize) -> bool {
        match self.mode {
            BondMode::ActiveBackup => self.active != Some(number),
            BondMode::Lacp => !self.states[number].1,
            _ => false,
        }
    }
}

/// A port that may be a member, and the other end of its wire, which sends everything back.
#[derive(Debug, Clone, Copy)]
struct Ends {
    near: PortId,
    far: PortId,
}

struct Rig {
    engine: Engine,
    bond: PortId,
    ends: [Ends; PORTS],
    programs: [Program; 3],
    model: Model,
    random: fastrand::Rng,
}

fn wired(engine: &Engine, number: usize, reflect: &Program) -> Ends {
    let (near, far) = Pair::new(pair::Options::default());
    let add = |name: String, device: Pair| {
        engine.add_port(PortOptions::new(&name), Box::new(device)).unwrap()
    };
    let near = add(format!("m{number}"), near);
    let far = add(format!("far{number}"), far);
    let links = vec![Link::new(reflect.clone(), 1, engine.workers())];
    engine.change(|config| config.set_links(far, Hook::Rx, links)).unwrap();
    Ends { near, far }
}

impl Rig {
    fn new() -> Rig {
        let engine = engine(2);
        let bond = add_bond(&engine, "bond0", 1000, mode(BondMode::BalanceRr));
        let programs = [1, 2, 3].map(|verdict| load(small::returns(verdict)));
        let ends = std::array::from_fn(|number| wired(&engine, number, &programs[2]));
        let options = generator::Options::new(vec![2; 64]);
        let options = generator::Options { queues: 2, rate: Some(20_000), ..options };
        let source = Generator::new(options).unwrap();
        let source = engine.add_port(PortOptions::new("source"), Box::new(source)).unwrap();
        let upper = UpperName::Named("bond0".to_owned());
        engine.change(|config| config.set_upper(source, upper)).unwrap();
        Rig {
            engine,
            bond,
            ends,
            programs,
            model: Model::default(),
            random: fastrand::Rng::with_seed(1),
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random.usize(..below)
    }

    /// Sets or takes away the program of a port or the bond.
    fn attach(&self, port: PortId, program: Option<usize>) -> Result<(), Error> {
        let link = |program: usize| Link::new(self.programs[program].clone(), 1, 2);
        let links = program.map(link).into_iter().collect();
        self.engine.change(|config| config.set_links(port, Hook::Rx, links))
    }

    /// Makes one random change; returns the expected and the actual result.
    fn step(&mut self) -> (bool, bool) {
        match self.random(13) {
            what @ 0..8 => self.change_port(what),
            what => self.change_bond(what),
        }
    }

    /// Programs, members, and ports that come and go.
    fn change_port(&mut self, what: usize) -> (bool, bool) {
        let (number, program) = (self.random(PORTS), self.random(3));
        let near = self.ends[number].near;
        let is_member = self.model.members.contains(&number);
        match what {
            0 => {
                let allowed = self.model.members.iter().all(|&it| !self.model.own[it])
                    && Model::takes_programs(self.model.mode, self.model.policy);
                self.model.bond |= allowed;
                (allowed, self.attach(self.bond, Some(program)).is_ok())
            }
            1 => {
                self.model.bond = false;
                (true, self.attach(self.bond, None).is_ok())
            }
            2 => {
                let allowed = !(is_member && self.model.bond);
                self.model.own[number] |= allowed;
                (allowed, self.attach(near, Some(program)).is_ok())
            }
            3 => {
                self.model.own[number] = false;
                (true, self.attach(near, None).is_ok())
            }
            4 => {
                let allowed = !(is_member || self.model.bond && self.model.own[number]);
                if allowed {
                    self.model.join(number);
                }
                let done = self.engine.change(|config| config.enslave(self.bond, near));
                (allowed, done.is_ok())
            }
            5 => {
                if is_member {
                    self.model.leave(number);
                }
                let done = self.engine.change(|config| config.release(self.bond, near));
                (is_member, done.is_ok())
            }
            6 => {
                let (link_up, enabled) = (program > 0, program != 1);
                let state = MemberState { link_up, enabled, aggregated: enabled };
                if is_member {
                    self.model.states[number] = (link_up, enabled);
                }
                let done = self.engine.change(|it| it.set_member(self.bond, near, state));
                (is_member, done.is_ok())
            }
            _ => {
                let Ends { near, far } = self.ends[number];
                let gone = [near, far].map(|port| self.engine.remove_port(port).is_ok());
                if is_member {
                    self.model.leave(number);
                }
                self.model.own[number] = false;
                self.ends[number] = wired(&self.engine, number, &self.programs[2]);
                (true, gone == [true; 2])
            }
        }
    }

    /// Changes the bond itself.
    fn change_bond(&mut self, what: usize) -> (bool, bool) {
        let number = self.random(PORTS);
        let mode = BondMode::ALL[self.random(BondMode::ALL.len())];
        let policy = XmitPolicy::ALL[self.random(XmitPolicy::ALL.len())];
        let (near, bond) = (self.ends[number].near, self.bond);
        let model = &mut self.model;
        match what {
            8 => {
                let allowed = model.members.contains(&number);
                if allowed {
                    model.active = Some(number);
                }
                let done = self.engine.change(|config| config.set_active(bond, Some(near)));
                (allowed, done.is_ok())
            }
            9 => {
                model.is_down = !model.is_down;
                let up = !model.is_down;
                (true, self.engine.change(|config| config.set_up(bond, up)).is_ok())
            }
            10 => {
                let allowed = !model.bond || Model::takes_programs(model.mode, policy);
                if allowed {
                    model.policy = policy;
                }
                let options = BondOptions { mode: model.mode, policy, ..BondOptions::default() };
                let done = self.engine.change(|config| config.set_bond_options(bond, options));
                (allowed, done.is_ok())
            }
            11 => {
                let is_idle = model.is_down && model.members.is_empty();
                let allowed = (mode == model.mode || is_idle)
                    && (!model.bond || Model::takes_programs(mode, model.policy));
                if allowed {
                    model.mode = mode;
                }
                let policy = model.policy;
                let options = BondOptions { mode, policy, ..BondOptions::default() };
                let done = self.engine.change(|config| config.set_bond_options(bond, options));
                (allowed, done.is_ok())
            }
            _ => self.rebuild(mode),
        }
    }

    /// Changes the mode of a bond in use as an operator does: down, empty, other mode, members
    /// back, up. Either all of it happens or nothing.
    fn rebuild(&mut self, mode: BondMode) -> (bool, bool) {
        let model = &mut self.model;
        let members: Vec<PortId> = model.members.iter().map(|&it| self.ends[it].near).collect();
        let policy = model.policy;
        let allowed = !model.bond || Model::takes_programs(mode, policy);
        if allowed {
            (model.mode, model.active, model.is_down) = (mode, None, false);
            let again = std::mem::take(&mut model.members);
            again.into_iter().for_each(|number| model.join(number));
        }
        let done = self.engine.change(|config| {
            config.set_up(self.bond, false)?;
            members.iter().try_for_each(|&member| config.release(self.bond, member))?;
            let options = BondOptions { mode, policy, ..BondOptions::default() };
            config.set_bond_options(self.bond, options)?;
            members.iter().try_for_each(|&member| config.enslave(self.bond, member))?;
            config.set_up(self.bond, true)
        });
        (allowed, done.is_ok())
    }

    /// Workers must see what the model says.
    fn check(&self) {
        let Model { bond, members, own, states: _, active, mode, policy, is_down } = &self.model;
        self.engine.read(|config, snapshot| {
            let ports = members.iter().map(|&number| self.ends[number].near);
            let view = snapshot.port(self.bond).unwrap().bond.as_ref().unwrap();
            assert!(view.members.iter().copied().eq(ports), "{:?}", self.model);
            assert_eq!(config.links(self.bond, Hook::Rx).unwrap().len(), usize::from(*bond));
            let known = config.bond(self.bond).unwrap();
            assert_eq!((known.options().mode, known.options().policy), (*mode, *policy));
            assert_eq!(known.active(), active.map(|it| self.ends[it].near), "{:?}", self.model);
            assert_eq!(snapshot.port(self.bond).unwrap().up, !is_down);
            assert!(!bond || Model::takes_programs(*mode, *policy), "{:?}", self.model);
            for (number, ends) in self.ends.iter().enumerate() {
                let slot = snapshot.port(ends.near).unwrap();
                let is_member = members.contains(&number);
                assert_eq!(slot.member.is_some(), is_member);
                assert_eq!(slot.rx_hook.is_some(), own[number] || is_member && *bond);
                let is_delegate = slot.member.is_some_and(|it| it.is_delegate);
                assert_eq!(is_delegate, is_member && *bond);
                let is_inactive = slot.member.is_some_and(|it| it.is_inactive);
                assert_eq!(is_inactive, is_member && self.model.is_backup(number));
                assert!(!(is_delegate && own[number]), "never both: {:?}", self.model);
            }
        });
    }
}

#[test]
fn thousands_of_changes_under_traffic() {
    let mut rig = Rig::new();
    let (mut done, mut refused) = (0, 0);
    let steps = std::env::var("BOND_MODEL_STEPS").ok().and_then(|text| text.parse().ok());
    let steps = steps.unwrap_or(STEPS);
    for step in 0..steps {
        let (expected, happened) = rig.step();
        assert_eq!(happened, expected, "step {step}: {:?}", rig.model);
        if happened {
            done += 1;
        } else {
            refused += 1;
        }
        rig.check();
    }
    assert!(done > steps / 2 && refused > steps / 20, "{done} done, {refused} refused");
    rig.engine.stop();
    let sum = rig.engine.conservation();
    assert_eq!((sum.missing(), sum.in_flight), (0, 0), "{sum:?}");
    assert!(sum.received > 1000 && sum.delivered > 1000, "{sum:?}");
    let arena = Arc::clone(rig.engine.arena());
    drop(rig);
    assert_eq!(arena.free(), arena.total(), "every frame is back");
}

const PORTS: usize = 5;
/// Changes, unless `BOND_MODEL_STEPS` says another number: where the machine is busy, 10,000 take
/// two minutes.
const STEPS: usize = 2000;
