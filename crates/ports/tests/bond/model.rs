//! Everything about a bond changes in random order while frames flow: each change is allowed or
//! refused as the rules say, what workers see is what the rules say, and no frame is lost.

use std::sync::Arc;

use towpath_engine::bond::{BondMode, MemberState};
use towpath_engine::{Engine, Error, Hook, Link, PortId, PortOptions, UpperName};
use towpath_ports::generator::{self, Generator};
use towpath_ports::pair::{self, Pair};
use towpath_workload::small;
use towpath_xdp::Program;

use crate::wire::{engine, load};
use crate::{add_bond, mode};

/// What must be so.
#[derive(Debug, Default)]
struct Model {
    /// Whether the bond has a program.
    bond: bool,
    /// Members in order.
    members: Vec<usize>,
    /// Whether a port has a program of its own.
    own: [bool; PORTS],
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
    random: u32,
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
        Rig { engine, bond, ends, programs, model: Model::default(), random: 1 }
    }

    fn random(&mut self, below: usize) -> usize {
        // xorshift32 (Marsaglia, "Xorshift RNGs", 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random as usize % below
    }

    /// Sets or takes away the program of a port or the bond.
    fn attach(&self, port: PortId, program: Option<usize>) -> Result<(), Error> {
        let link = |program: usize| Link::new(self.programs[program].clone(), 1, 2);
        let links = program.map(link).into_iter().collect();
        self.engine.change(|config| config.set_links(port, Hook::Rx, links))
    }

    /// One random change; gives what should and what did happen.
    fn step(&mut self) -> (bool, bool) {
        let (what, number, program) = (self.random(8), self.random(PORTS), self.random(3));
        let near = self.ends[number].near;
        let is_member = self.model.members.contains(&number);
        match what {
            0 => {
                let allowed = self.model.members.iter().all(|&it| !self.model.own[it]);
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
                    self.model.members.push(number);
                }
                let done = self.engine.change(|config| config.enslave(self.bond, near));
                (allowed, done.is_ok())
            }
            5 => {
                self.model.members.retain(|&it| it != number);
                let done = self.engine.change(|config| config.release(self.bond, near));
                (is_member, done.is_ok())
            }
            6 => {
                let link_up = program > 0;
                let state = MemberState { link_up, enabled: true, aggregated: true };
                let done = self.engine.change(|it| it.set_member(self.bond, near, state));
                (is_member, done.is_ok())
            }
            _ => {
                let Ends { near, far } = self.ends[number];
                let gone = [near, far].map(|port| self.engine.remove_port(port).is_ok());
                self.model.members.retain(|&it| it != number);
                self.model.own[number] = false;
                self.ends[number] = wired(&self.engine, number, &self.programs[2]);
                (true, gone == [true; 2])
            }
        }
    }

    /// Workers must see what the model says.
    fn check(&self) {
        let Model { bond, members, own } = &self.model;
        self.engine.read(|config, snapshot| {
            let ports = members.iter().map(|&number| self.ends[number].near);
            let view = snapshot.port(self.bond).unwrap().bond.as_ref().unwrap();
            assert!(view.members.iter().copied().eq(ports), "{:?}", self.model);
            assert_eq!(config.links(self.bond, Hook::Rx).unwrap().len(), usize::from(*bond));
            for (number, ends) in self.ends.iter().enumerate() {
                let slot = snapshot.port(ends.near).unwrap();
                let is_member = members.contains(&number);
                assert_eq!(slot.member.is_some(), is_member);
                assert_eq!(slot.rx_hook.is_some(), own[number] || is_member && *bond);
                let is_delegate = slot.member.is_some_and(|it| it.is_delegate);
                assert_eq!(is_delegate, is_member && *bond);
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
