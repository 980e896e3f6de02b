//! Changes that the kernel refuses, in both orders (`bond_xdp_set`, `bond_enslave`,
//! `dev_xdp_attach`).

use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};
use towpath_engine::{Config, Error, Hook, Link, PortOptions, UpperName};
use towpath_ports::sink::Sink;
use towpath_workload::small;

use crate::wire::{Wire, attach, load};
use crate::{Bonded, add_bond, bonded, mode};

const PASS: u32 = 1 << 2;

/// The error's text when a change is refused.
fn refused<T: std::fmt::Debug>(
    bond: &Bonded,
    change: impl FnOnce(&mut Config) -> Result<T, Error>,
) -> String {
    bond.engine.change(change).unwrap_err().to_string()
}

fn links() -> Vec<Link> {
    vec![Link::new(load(small::returns(3)), 1, 1)]
}

#[test]
fn modes_and_policies_without_native_xdp() {
    let vlan =
        |mode| BondOptions { mode, policy: XmitPolicy::VlanSrcmac, ..BondOptions::default() };
    let wrong = [mode(BondMode::Broadcast), vlan(BondMode::BalanceXor), vlan(BondMode::Lacp)];
    for options in wrong {
        let bond = bonded(options.clone(), 1);
        let said = refused(&bond, |config| config.set_links(bond.bond, Hook::Rx, links()));
        assert!(said.starts_with("bond0: no native XDP support for"), "{said}");
        assert!(said.ends_with("(EOPNOTSUPP)"), "{said}");
        // The other order: the program first.
        let right = BondOptions { policy: XmitPolicy::Layer2, ..options.clone() };
        let right = match right.mode {
            BondMode::Broadcast => mode(BondMode::BalanceRr),
            _ => right,
        };
        let bond = bonded(right, 0);
        attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
        bond.engine.change(|config| config.set_up(bond.bond, false)).unwrap();
        let said = refused(&bond, |config| config.set_bond_options(bond.bond, options));
        assert!(said.starts_with("bond0: no native XDP support for"), "{said}");
    }
    let bond = bonded(vlan(BondMode::ActiveBackup), 1);
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
}

#[test]
fn modes_change_only_while_down_and_empty() {
    let bond = bonded(mode(BondMode::BalanceRr), 1);
    let change =
        |config: &mut Config| config.set_bond_options(bond.bond, mode(BondMode::ActiveBackup));
    assert_eq!(
        refused(&bond, change),
        "bond0: its mode can change only while it is down: set it down first (EBUSY)"
    );
    bond.engine.change(|config| config.set_up(bond.bond, false)).unwrap();
    assert_eq!(
        refused(&bond, change),
        "bond0: its mode can change only while it has no members: take them out first (ENOTEMPTY)"
    );
    let member = bond.members[0].port;
    bond.engine.change(|config| config.release(bond.bond, member)).unwrap();
    bond.engine.change(change).unwrap();
}

#[test]
fn programs_of_members_and_of_their_bond_exclude_each_other() {
    let bond = bonded(mode(BondMode::BalanceRr), 2);
    let second = bond.members[1].port;
    attach(&bond.engine, second, &[(&load(small::returns(3)), PASS)]);
    assert_eq!(
        refused(&bond, |config| config.set_links(bond.bond, Hook::Rx, links())),
        "bond0: member m1 has a program of its own: unload that first (EOPNOTSUPP)"
    );
    let first = bond.members[0].port;
    bond.engine.read(|_, snapshot| {
        assert!(snapshot.port(first).unwrap().rx_hook.is_none(), "nobody got it");
    });
    attach(&bond.engine, second, &[]);
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
    assert_eq!(
        refused(&bond, |config| config.set_links(second, Hook::Rx, links())),
        "m1: bond bond0 above it has a program, which runs here: attach to bond0 instead (EEXIST)"
    );
    let late = Wire::new(&bond.engine, "late", 33);
    attach(&bond.engine, late.port, &[(&load(small::returns(3)), PASS)]);
    assert_eq!(
        refused(&bond, |config| config.enslave(bond.bond, late.port)),
        "bond0: member late has a program of its own: unload that first (EOPNOTSUPP)"
    );
    attach(&bond.engine, bond.bond, &[]);
    bond.engine.change(|config| config.enslave(bond.bond, late.port)).unwrap();
}

#[test]
fn members_that_nothing_arrives_at() {
    let bond = bonded(mode(BondMode::BalanceRr), 1);
    let sink = bond.engine.add_port(PortOptions::new("sink"), Box::new(Sink)).unwrap();
    bond.engine.change(|config| config.enslave(bond.bond, sink)).unwrap();
    let no_xdp = "bond0: member sink does not support XDP: nothing arrives at it (EOPNOTSUPP)";
    assert_eq!(refused(&bond, |c| c.set_links(bond.bond, Hook::Rx, links())), no_xdp);
    bond.engine.change(|config| config.release(bond.bond, sink)).unwrap();
    attach(&bond.engine, bond.bond, &[(&load(small::returns(3)), PASS)]);
    assert_eq!(refused(&bond, |config| config.enslave(bond.bond, sink)), no_xdp);
}

#[test]
fn membership_is_exclusive() {
    let bond = bonded(mode(BondMode::BalanceRr), 1);
    let other = add_bond(&bond.engine, "bond1", 60, mode(BondMode::BalanceRr));
    let member = bond.members[0].port;
    assert_eq!(
        refused(&bond, |config| config.enslave(other, member)),
        "bond1: m0 is a member of bond0 already: a port can be in one bond only (EBUSY)"
    );
    assert_eq!(
        refused(&bond, |config| config.enslave(other, bond.below.port)),
        "bond1: below passes its frames to bond0: take its upper away first (EBUSY)"
    );
    assert_eq!(
        refused(&bond, |config| config.set_upper(member, UpperName::Named("bond1".to_owned()))),
        "m0: it is a member of bond bond0: give that an upper instead (EINVAL)"
    );
    assert_eq!(
        refused(&bond, |config| config.release(other, member)),
        "bond1: m0 is not a member of this bond (EINVAL)"
    );
    assert_eq!(refused(&bond, |config| config.enslave(member, other)), "m0: not a bond (EINVAL)");
    assert_eq!(
        refused(&bond, |config| config.enslave(other, other)),
        "bond1: bond1 cannot be a member: the bond would be inside of itself (ELOOP)"
    );
    let mut inner = other;
    let said = (0..9).find_map(|n| {
        let outer = add_bond(&bond.engine, &format!("outer{n}"), 70 + n, mode(BondMode::BalanceRr));
        let result = bond.engine.change(|config| config.enslave(outer, inner));
        inner = outer;
        result.err()
    });
    assert!(said.unwrap().to_string().contains("not more than 8 deep (EMLINK)"));
}
