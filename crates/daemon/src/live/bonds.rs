//! Bonds: created empty, then given their members and a thread that controls them.
//!
//! Members leave before programs change, and join afterwards, so that a port whose program moves to
//! the bond, or comes from it, changes in one reconciliation.

use std::sync::Arc;

use towpath_engine::{Config, Error, PortId, UpperName};
use towpath_ports::bond::{Controller, Tell};

use super::Live;
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::kinds::bond::{self, Wanted};
use crate::model::state::{PortState, State};

impl Live {
    /// Starts the control thread of a new bond; does nothing for other ports.
    pub(super) fn look_after_bond(&mut self, port: &PortState, id: PortId) -> Result<(), String> {
        match bond::wanted(port) {
            Some(Ok(wanted)) => self.look_after(port, id, &wanted),
            _ => Ok(()),
        }
    }

    /// Removes members that are no longer wanted.
    pub(super) fn release_members(&mut self, wanted: &State, report: &mut Report) {
        for port in &wanted.ports {
            let Some((id, members)) = self.members_now(port) else { continue };
            let names = bond::members(port);
            let gone: Vec<_> = members.iter().filter(|(_, it)| !names.contains(&&**it)).collect();
            if gone.is_empty() {
                continue;
            }
            let released = self.engine.change(|config| {
                gone.iter().try_for_each(|&&(member, _)| config.release(id, member))
            });
            if let Err(error) = released {
                report.fail(FailureCode::Bond, format!("bond {}", port.name), error.to_string());
                continue;
            }
            for (_, name) in gone {
                report.change(format!("bond {}: member {name} released", port.name));
            }
        }
    }

    /// Sets options and members of all bonds.
    pub(super) fn set_bonds(&mut self, wanted: &State, report: &mut Report) {
        for port in &wanted.ports {
            let Some((id, members)) = self.members_now(port) else { continue };
            let Some(Ok(bond)) = bond::wanted(port) else { continue };
            if let Err(error) = self.set_bond(id, &bond) {
                report.fail(FailureCode::Bond, format!("bond {}", port.name), error.to_string());
                continue;
            }
            if let Some(controller) = self.bonds.get(&port.name) {
                controller.set(bond.settings.clone());
            }
            let is_new = |name: &&String| members.iter().all(|(_, it)| it != *name);
            let new: Vec<&String> = bond.members.iter().filter(is_new).collect();
            for (name, done) in new.iter().zip(self.enslave(id, &new)) {
                match done {
                    Ok(()) => report.change(format!("bond {}: member {name} added", port.name)),
                    Err(why) => report.fail(FailureCode::Bond, format!("bond {}", port.name), why),
                }
            }
            if !self.bonds.contains_key(&port.name)
                && let Err(why) = self.look_after(port, id, &bond)
            {
                report.fail(FailureCode::Bond, format!("bond {}", port.name), why);
            }
        }
    }

    fn set_bond(&self, id: PortId, wanted: &Wanted) -> Result<(), Error> {
        let options = wanted.settings.engine_options();
        let is_so = self.engine.read(|config, _| {
            let bond = config.bond(id);
            bond.is_ok_and(|it| *it.options() == options && it.own_mac() == wanted.mac)
        });
        if is_so {
            return Ok(());
        }
        self.engine.change(|config| {
            if config.bond(id)?.own_mac() != wanted.mac {
                config.set_bond_own_mac(id, wanted.mac)?;
            }
            config.set_bond_options(id, options)
        })
    }

    /// Adds members in one change; a member that cannot be added does not prevent the others.
    fn enslave(&self, bond: PortId, names: &[&String]) -> Vec<Result<(), String>> {
        let enslave = |config: &mut Config, name: &str| {
            let member = self.ports.get(name);
            let member = member.ok_or_else(|| format!("its member {name} is missing"))?;
            // Validation has checked that a member has no upper.
            let added = config
                .set_upper(member.id, UpperName::None)
                .and_then(|()| config.enslave(bond, member.id));
            added.map_err(|error| error.to_string())
        };
        if names.is_empty() {
            return Vec::new();
        }
        let done = self.engine.change(|config| {
            Ok(names.iter().map(|name| enslave(config, name)).collect::<Vec<_>>())
        });
        let done: Vec<Result<(), String>> =
            done.unwrap_or_else(|error| names.iter().map(|_| Err(error.to_string())).collect());
        assert_eq!(done.len(), names.len(), "each has an outcome");
        done
    }

    /// Starts the control thread of a bond.
    fn look_after(&mut self, port: &PortState, id: PortId, wanted: &Wanted) -> Result<(), String> {
        let news = Arc::clone(&self.news);
        let tell: Tell = Box::new(move |text| news.change(&text));
        let settings = wanted.settings.clone();
        let controller = Controller::start(&self.engine, id, settings, tell);
        let controller = controller.map_err(|error| format!("its control thread: {error}"))?;
        self.bonds.insert(port.name.clone(), controller);
        Ok(())
    }

    /// A bond's id, and ids and names of its members; `None` if the port is not a bond.
    fn members_now(&self, port: &PortState) -> Option<(PortId, Vec<(PortId, String)>)> {
        let id = self.ports.get(&port.name)?.id;
        self.engine.read(|config, _| {
            let members = config.bond(id).ok()?.members().iter();
            let named = |it: &towpath_engine::bond::Member| {
                config.name(it.port).ok().map(|name| (it.port, name.to_owned()))
            };
            Some((id, members.filter_map(named).collect()))
        })
    }
}
