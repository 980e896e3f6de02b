//! Bonds in the configuration: which ports may join, which programs may run, and the workers' view.
//!
//! The rules are the kernel's (`bond_xdp_set`, `bond_enslave`, `dev_xdp_attach`). The kernel's
//! roll-back of a program that one member refused is not needed here: a change is made to a copy,
//! which is discarded on failure.

use std::sync::Arc;

use super::{Config, PortConfig};
use crate::bond::{
    Bond, BondMode, BondOptions, BondPort, MEMBERS_MAX, Member, MemberState, NEST_MAX, Refusal,
    Shown, View,
};
use crate::chain::{Chain, Hook, Link};
use crate::error::Error;
use crate::numbers::PortId;
use crate::opened::Opened;
use crate::options::{PortOptions, UpperName};
use crate::port::Features;
use crate::snapshot::{Membership, Upper};

impl Config {
    /// Makes a bond without members. Its address is `mac`, or that of its first member.
    pub fn add_bond(
        &mut self,
        options: PortOptions,
        bond: BondOptions,
        mac: Option<[u8; 6]>,
    ) -> Result<PortId, Error> {
        let port = BondPort::default();
        let device = Box::new(port.clone());
        let opened = Opened::new(device, Vec::new(), Vec::new(), self.workers);
        let id = self.add_port(options, Arc::new(opened))?;
        self.port_mut(id)?.bond = Some(Bond::new(bond, mac, port));
        Ok(id)
    }

    /// The bond with number `id`.
    pub fn bond(&self, id: PortId) -> Result<&Bond, Error> {
        let port = self.port(id)?;
        port.bond.as_ref().ok_or_else(|| refused(port, Refusal::NotBond))
    }

    /// The bond that a port is a member of.
    pub fn master(&self, id: PortId) -> Option<PortId> {
        self.ports.get(&id)?.master
    }

    /// Changes the options of a bond.
    ///
    /// # Errors
    ///
    /// Fails if the mode changes while the bond is up or has members, or if the new options do not
    /// support the bond's program.
    pub fn set_bond_options(&mut self, id: PortId, options: BondOptions) -> Result<(), Error> {
        let port = self.port(id)?;
        let bond = self.bond(id)?;
        if options.mode != bond.options.mode {
            self.allow(id, port.options.up, Refusal::Up)?;
            self.allow(id, !bond.members.is_empty(), Refusal::NotEmpty)?;
        }
        if !self.rx_links(id).is_empty() {
            options.check_native().map_err(|refusal| refused(port, refusal))?;
        }
        self.bond_mut(id)?.options = options;
        Ok(())
    }

    /// Makes a port the last member of a bond (`bond_enslave`).
    pub fn enslave(&mut self, bond: PortId, member: PortId) -> Result<(), Error> {
        let port = self.port(member)?;
        let name = port.options.name.clone();
        let count = self.bond(bond)?.members.len();
        self.allow(bond, count >= MEMBERS_MAX, Refusal::TooMany)?;
        if let Some(by) = self.master(member) {
            let by = self.name(by)?.to_owned();
            return self.allow(bond, true, Refusal::Taken { member: name, by });
        }
        self.allow(bond, self.is_inside(bond, member), Refusal::Loop(name.clone()))?;
        let depth = self.masters(bond).count() + 1 + self.height(member);
        self.allow(bond, depth > NEST_MAX, Refusal::TooDeep)?;
        if let UpperName::Named(upper) = &port.upper {
            let refusal = Refusal::HasUpper { member: name, upper: upper.clone() };
            return self.allow(bond, true, refusal);
        }
        if !self.rx_links(bond).is_empty() {
            self.check_delegate(bond, member)?;
        }
        let mac = port.opened.device.mac();
        self.port_mut(member)?.master = Some(bond);
        let bond = self.bond_mut(bond)?;
        // With LACP, the member must be negotiated first.
        let is_used = bond.options.mode != BondMode::Lacp;
        let state = MemberState { link_up: true, enabled: is_used, aggregated: is_used };
        bond.members.push(Member { port: member, state });
        bond.mac.get_or_insert(mac);
        bond.choose_active();
        Ok(())
    }

    /// Removes a member from a bond (`bond_release`).
    pub fn release(&mut self, bond: PortId, member: PortId) -> Result<(), Error> {
        self.check_member(bond, member)?;
        self.port_mut(member)?.master = None;
        let bond = self.bond_mut(bond)?;
        bond.members.retain(|it| it.port != member);
        bond.active = bond.active.filter(|&active| active != member);
        bond.choose_active();
        if bond.members.is_empty() {
            bond.carrier = None;
            if bond.own_mac.is_none() {
                bond.mac = None;
            }
        }
        Ok(())
    }

    /// Sets the state of a member.
    pub fn set_member(
        &mut self,
        bond: PortId,
        member: PortId,
        state: MemberState,
    ) -> Result<(), Error> {
        self.check_member(bond, member)?;
        let members = self.bond_mut(bond)?.members.iter_mut();
        members.filter(|it| it.port == member).for_each(|it| it.state = state);
        Ok(())
    }

    /// Sets the active member.
    pub fn set_active(&mut self, bond: PortId, active: Option<PortId>) -> Result<(), Error> {
        if let Some(member) = active {
            self.check_member(bond, member)?;
        }
        self.bond_mut(bond)?.active = active;
        Ok(())
    }

    /// Sets whether a bond has a carrier; with `None`, it has one while a member's link is up.
    pub fn set_carrier(&mut self, bond: PortId, carrier: Option<bool>) -> Result<(), Error> {
        self.bond_mut(bond)?.carrier = carrier;
        Ok(())
    }

    /// Sets a bond's present address (`fail_over_mac`).
    pub fn set_bond_mac(&mut self, bond: PortId, mac: [u8; 6]) -> Result<(), Error> {
        self.bond_mut(bond)?.mac = Some(mac);
        Ok(())
    }

    /// Sets a bond's configured address; with `None`, it has its first member's.
    pub fn set_bond_own_mac(&mut self, bond: PortId, mac: Option<[u8; 6]>) -> Result<(), Error> {
        let first = self.bond(bond)?.members.first().map(|it| self.port(it.port)).transpose()?;
        let first = first.map(|port| port.opened.device.mac());
        let bond = self.bond_mut(bond)?;
        bond.own_mac = mac;
        bond.mac = mac.or(first);
        Ok(())
    }

    /// Ends the membership of a port that is removed.
    pub(super) fn forget_member(&mut self, id: PortId) -> Result<(), Error> {
        self.master(id).map_or(Ok(()), |bond| self.release(bond, id))
    }

    /// Ends the memberships in a bond that is removed.
    pub(super) fn forget_members(&mut self, id: PortId) -> Result<(), Error> {
        let members = self.port(id)?.bond.iter().flat_map(|bond| &bond.members);
        let members: Vec<PortId> = members.map(|it| it.port).collect();
        members.into_iter().try_for_each(|member| {
            self.port_mut(member)?.master = None;
            Ok(())
        })
    }

    /// Checks that programs may be attached to the `rx` hook (`dev_xdp_attach`, `bond_xdp_set`).
    pub(super) fn check_attach(&self, id: PortId, links: &[Link]) -> Result<(), Error> {
        let port = self.port(id)?;
        if links.is_empty() {
            return Ok(());
        }
        if let Some(above) = self.masters(id).find(|&bond| !self.rx_links(bond).is_empty()) {
            let name = self.name(above)?.to_owned();
            return Err(refused(port, Refusal::UpperHasProgram(name)));
        }
        let Some(bond) = &port.bond else { return Ok(()) };
        bond.options.check_native().map_err(|refusal| refused(port, refusal))?;
        bond.members.iter().try_for_each(|it| self.check_delegate(id, it.port))
    }

    /// Checks that a member can run its bond's program.
    fn check_delegate(&self, bond: PortId, member: PortId) -> Result<(), Error> {
        let port = self.port(member)?;
        let name = || port.options.name.clone();
        let takes = port.bond.is_some() || port.opened.device.queues() > 0;
        self.allow(bond, !takes, Refusal::NoXdp(name()))?;
        let has_own = !self.rx_links(member).is_empty();
        self.allow(bond, has_own, Refusal::OwnProgram(name()))?;
        let Some(inner) = &port.bond else { return Ok(()) };
        inner.options.check_native().map_err(|refusal| refused(port, refusal))?;
        inner.members.iter().try_for_each(|it| self.check_delegate(member, it.port))
    }

    /// Checks that a port is not a member of a bond: members pass their frames to their bond.
    pub(super) fn check_no_member(&self, id: PortId) -> Result<(), Error> {
        match self.master(id) {
            Some(bond) => {
                let bond = self.name(bond)?.to_owned();
                self.allow(id, true, Refusal::Member(bond))
            }
            None => Ok(()),
        }
    }

    /// The `rx` programs of a port: its own, or those of the innermost bond around it that has
    /// some.
    pub(super) fn chain(&self, id: PortId, port: &PortConfig) -> Option<Arc<Chain>> {
        let inherited = || self.masters(id).find_map(|it| self.ports.get(&it)?.hook(Hook::Rx));
        port.hook(Hook::Rx).or_else(inherited).cloned()
    }

    /// The workers' view of a port's membership.
    pub(super) fn membership(&self, id: PortId, port: &PortConfig) -> Option<Membership> {
        let bond = self.master(id)?;
        let known = self.ports.get(&bond)?.bond.as_ref()?;
        let member = known.members.iter().find(|it| it.port == id)?;
        let options = &known.options;
        Some(Membership {
            bond,
            is_inactive: known.is_backup(member) && !options.all_slaves_active,
            is_delegate: port.hook(Hook::Rx).is_none()
                && self.masters(id).any(|bond| !self.rx_links(bond).is_empty()),
            protects: options.protect_control && !options.taps.is_empty(),
        })
    }

    /// The workers' view of a bond. Also updates the values that the bond's device reports.
    pub(super) fn bond_view(&self, port: &PortConfig) -> Option<Arc<View>> {
        let bond = port.bond.as_ref()?;
        let is_up = |id| self.ports.get(&id).is_some_and(|port| port.is_up());
        let works = |it: &Member| is_up(it.port) && it.state.link_up;
        let name = |id| self.name(id).unwrap_or_default().to_owned();
        let mtu = bond
            .members
            .iter()
            .filter_map(|it| self.ports.get(&it.port))
            .map(|port| port.mtu())
            .min();
        let names: Vec<String> = bond.members.iter().map(|it| name(it.port)).collect();
        let sends = |it: &&Member| works(it) && !bond.is_backup(it);
        let senders = bond.members.iter().filter(sends).filter_map(|it| self.ports.get(&it.port));
        bond.port.show(Shown {
            mac: bond.mac.unwrap_or_default(),
            link: bond.carrier.unwrap_or_else(|| bond.members.iter().any(works)),
            features: self.features(port),
            mtu: mtu.unwrap_or(MTU),
            details: vec![
                ("mode", bond.options.mode.name().to_owned()),
                ("members", names.join(" ")),
                ("active", bond.active.map(name).unwrap_or_default()),
            ],
            senders: senders.map(|port| Arc::clone(&port.opened)).collect(),
            is_broadcast: bond.options.mode == BondMode::Broadcast,
        });
        Some(Arc::new(View::new(bond, is_up)))
    }

    /// A port's features; a bond has those common to all of its members, except zero copy
    /// (`bond_xdp_set_features`).
    pub(super) fn features(&self, port: &PortConfig) -> Features {
        let Some(bond) = &port.bond else { return port.opened.device.features() };
        let members = bond.members.iter().filter_map(|it| self.ports.get(&it.port));
        let all = members.map(|port| self.features(port)).reduce(Features::and);
        Features { zero_copy: false, ..all.unwrap_or_default() }
    }

    /// Whether frames may be redirected to a port (`NETDEV_XDP_ACT_NDO_XMIT`).
    pub(super) fn is_target(&self, port: &PortConfig) -> bool {
        let Some(bond) = &port.bond else { return true };
        let mut members = bond.members.iter().filter_map(|it| self.ports.get(&it.port));
        !bond.members.is_empty()
            && bond.options.check_native().is_ok()
            && members.all(|it| self.is_target(it))
    }

    /// The upper of a member: its bond.
    pub(super) fn upper_of_member(&self, id: PortId) -> Option<Upper> {
        self.master(id).map(Upper::Bond)
    }

    fn rx_links(&self, id: PortId) -> &[Link] {
        self.links(id, Hook::Rx).unwrap_or_default()
    }

    /// The bonds around a port, the innermost first.
    fn masters(&self, id: PortId) -> impl Iterator<Item = PortId> {
        std::iter::successors(self.master(id), |&bond| self.master(bond))
    }

    /// Whether a port is `other`, or is nested in it.
    fn is_inside(&self, id: PortId, other: PortId) -> bool {
        id == other || self.masters(id).any(|bond| bond == other)
    }

    /// Depth of nested bonds below a port: 0 for a port that is not a bond.
    fn height(&self, id: PortId) -> usize {
        let bond = self.ports.get(&id).and_then(|port| port.bond.as_ref());
        let below = |bond: &Bond| bond.members.iter().map(|it| self.height(it.port)).max();
        bond.map_or(0, |bond| 1 + below(bond).unwrap_or(0))
    }

    fn check_member(&self, bond: PortId, member: PortId) -> Result<(), Error> {
        let name = self.name(member)?.to_owned();
        let is_member = self.bond(bond)?.members.iter().any(|it| it.port == member);
        self.allow(bond, !is_member, Refusal::NotMember(name))
    }

    fn bond_mut(&mut self, id: PortId) -> Result<&mut Bond, Error> {
        let port = self.port_mut(id)?;
        let name = port.options.name.clone();
        port.bond.as_mut().ok_or(Error::Bond { name, refusal: Refusal::NotBond })
    }

    fn allow(&self, id: PortId, is_wrong: bool, refusal: Refusal) -> Result<(), Error> {
        if is_wrong { Err(refused(self.port(id)?, refusal)) } else { Ok(()) }
    }
}

fn refused(port: &PortConfig, refusal: Refusal) -> Error {
    Error::Bond { name: port.options.name.clone(), refusal }
}

/// MTU of a bond without members (`ETH_DATA_LEN`), in bytes.
const MTU: u32 = 1500;
