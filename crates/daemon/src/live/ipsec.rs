//! SAs and policies: those that differ from the wanted ones are added, replaced or removed, and all
//! others go on with their sequence numbers and replay windows.
//!
//! New SAs come before the policies, and old ones go last, so that packets always have an SA. The
//! tables belong to the names of ports, and stay while a port is opened again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use towpath_ipsec::{Policy, Table, TableError, TableLimits};
use towpath_ports::ipsec::now;

use super::Live;
use super::keys::{fingerprint, read_keys};
use super::report::Report;
use super::sas::LiveSa;
use crate::model::failure::FailureCode;
use crate::model::ipsec::{DirectionState, PolicyState, SaState, policies_subject, suite};
use crate::model::kinds::ipsec::NAME;
use crate::model::state::State;

/// Reasons why an SA cannot be added.
enum Trouble {
    /// Another SA has its SPI or its keys, perhaps only until that one has been changed.
    Taken(String),
    Failed(String),
}

impl Live {
    /// Makes the tables of all ports that need one.
    pub(super) fn make_tables(&mut self, wanted: &State) {
        for port in wanted.ports.iter().filter(|port| port.kind == NAME) {
            let table = || Arc::new(Table::new(TableLimits::default()));
            self.ipsec.tables.entry(port.name.clone()).or_insert_with(table);
        }
    }

    /// Has the next reconciliation read all key files, since their contents may have changed.
    pub(crate) fn read_keys_again(&mut self) {
        self.ipsec.is_reading = true;
    }

    /// SAs by name.
    pub fn sas(&self) -> &BTreeMap<String, Arc<LiveSa>> {
        &self.ipsec.sas
    }

    /// Adds, replaces and removes SAs and policies.
    pub(super) fn set_ipsec(&mut self, wanted: &State, report: &mut Report) {
        let is_reading = std::mem::take(&mut self.ipsec.is_reading);
        let names: BTreeSet<&str> = wanted.sas.iter().map(|sa| sa.name.as_str()).collect();
        self.ipsec.failed.retain(|name| names.contains(name.as_str()));
        let is_due = |sa: &&SaState| {
            let live = self.ipsec.sas.get(&sa.name);
            let is_same = live.is_some_and(|live| live.state == **sa);
            is_reading || !is_same || self.ipsec.failed.contains(&sa.name)
        };
        let due: Vec<&SaState> = wanted.sas.iter().filter(is_due).collect();
        let taken = self.put_sas(due, &names, report);
        self.set_policies(wanted, report);
        self.open_doors(wanted, report);
        if !self.is_trying {
            self.drop_ipsec(wanted, report);
        }
        let taken = self.put_sas(taken.into_iter().map(|it| it.0).collect(), &names, report);
        if let [(sa, why)] = &taken[..] {
            // The other SA stays, and so does the predecessor of this one.
            return report.fail(FailureCode::Sa, format!("sa {}", sa.name), why.as_str());
        }
        // Several SAs have exchanged their SPIs or keys.
        for (sa, _) in &taken {
            self.remove_sa(&sa.name);
        }
        for (sa, why) in self.put_sas(taken.into_iter().map(|it| it.0).collect(), &names, report) {
            report.fail(FailureCode::Sa, format!("sa {}", sa.name), why);
        }
    }

    /// Removes SAs and tables that are not wanted. A change that may be undone does so at its end,
    /// because an SA that is added again begins with the first sequence number.
    pub(crate) fn drop_ipsec(&mut self, wanted: &State, report: &mut Report) {
        let names: BTreeSet<&str> = wanted.sas.iter().map(|sa| sa.name.as_str()).collect();
        let is_gone = |name: &&String| !names.contains(name.as_str());
        let gone: Vec<String> = self.ipsec.sas.keys().filter(is_gone).cloned().collect();
        for name in gone {
            self.remove_sa(&name);
            report.change(format!("sa {name}: removed"));
        }
        self.close_doors(wanted, report);
        let ports = wanted.ports_by_name();
        let is_there = |name: &str| ports.get(name).is_some_and(|port| port.kind == NAME);
        self.ipsec.tables.retain(|name, _| is_there(name));
    }

    fn remove_sa(&mut self, name: &str) {
        let Some(live) = self.ipsec.sas.remove(name) else { return };
        self.forget_sender(&live);
        if let Some(table) = self.ipsec.tables.get(&live.state.port) {
            table.remove(live.sa.id());
        }
    }

    fn forget_sender(&mut self, live: &LiveSa) {
        if self.ipsec.senders.get(&live.keys) == Some(&live.state.name) {
            self.ipsec.senders.remove(&live.keys);
        }
    }

    /// Puts SAs into their tables. Returns those whose SPI or keys another SA has.
    fn put_sas<'a>(
        &mut self,
        all: Vec<&'a SaState>,
        wanted: &BTreeSet<&str>,
        report: &mut Report,
    ) -> Vec<(&'a SaState, String)> {
        let mut taken = Vec::new();
        for sa in all {
            let put = self.put_sa(sa, wanted);
            match &put {
                Ok(_) => self.ipsec.failed.remove(&sa.name),
                Err(_) => self.ipsec.failed.insert(sa.name.clone()),
            };
            match put {
                Ok(None) => {}
                Ok(Some(what)) => report.change(format!("sa {}: {what}", sa.name)),
                Err(Trouble::Taken(why)) => taken.push((sa, why)),
                Err(Trouble::Failed(why)) => {
                    report.fail(FailureCode::Sa, format!("sa {}", sa.name), why);
                }
            }
        }
        taken
    }

    /// Adds or replaces an SA, if it or its keys have changed; returns what was done.
    fn put_sa(
        &mut self,
        state: &SaState,
        wanted: &BTreeSet<&str>,
    ) -> Result<Option<&'static str>, Trouble> {
        let failed = |why: String| Trouble::Failed(why);
        let suite = suite(&state.suite).map_err(|problem| failed(problem.to_string()))?;
        let keys = read_keys(Path::new(&state.key_file), suite).map_err(failed)?;
        let print = fingerprint(&keys);
        let before = self.ipsec.sas.get(&state.name).cloned();
        if before.as_ref().is_some_and(|live| live.state == *state && live.keys == print) {
            return Ok(None);
        }
        self.check_keys(state, print, wanted)?;
        let mut config = state.config(keys).map_err(|problem| failed(problem.to_string()))?;
        let before_here = before.as_ref().filter(|live| live.state.port == state.port);
        if let Some(live) = before_here.filter(|live| live.is_continued_by(state, print)) {
            config.replay.last = live.next_sequence(state.esn);
        }
        let missing = || failed(format!("port {} is missing", state.port));
        let table = self.ipsec.tables.get(&state.port).ok_or_else(missing)?;
        let put = match before_here {
            Some(live) => table.replace(live.sa.id(), config, now()),
            None => table.add(config, now()),
        };
        let sa = put.map_err(|error| match error {
            TableError::SpiInUse { .. } => Trouble::Taken(error.to_string()),
            _ => failed(error.to_string()),
        })?;
        if before_here.is_none() {
            // It may be at another port.
            self.remove_sa(&state.name);
        }
        if let Some(live) = &before {
            self.forget_sender(live);
        }
        if state.direction == DirectionState::Out {
            self.ipsec.senders.insert(print, state.name.clone());
        }
        let live = LiveSa { state: state.clone(), sa, keys: print };
        self.ipsec.sas.insert(state.name.clone(), Arc::new(live));
        Ok(Some(if before.is_some() { "replaced" } else { "added" }))
    }

    /// Refuses an outbound SA whose keys another one sends with.
    fn check_keys(
        &self,
        state: &SaState,
        print: [u8; 32],
        wanted: &BTreeSet<&str>,
    ) -> Result<(), Trouble> {
        let other = self.ipsec.senders.get(&print).filter(|name| **name != state.name);
        match other.filter(|name| wanted.contains(name.as_str())) {
            Some(name) if state.direction == DirectionState::Out => {
                Err(Trouble::Taken(format!("sa {name} sends with the same keys")))
            }
            _ => Ok(()),
        }
    }

    /// Sets the policies of each port at once, so that no packet is treated by a part of them.
    fn set_policies(&mut self, wanted: &State, report: &mut Report) {
        let is_there = |policy: &PolicyState| self.ipsec.policies.get(&policy.name) == Some(policy);
        let count = self.ipsec.policies.len();
        if wanted.policies.len() == count && wanted.policies.iter().all(is_there) {
            return;
        }
        let next: BTreeMap<&str, &PolicyState> =
            wanted.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
        let before = std::mem::take(&mut self.ipsec.policies);
        let names: BTreeSet<&str> =
            next.keys().copied().chain(before.keys().map(|it| &**it)).collect();
        let differs = |name: &&&str| before.get(**name) != next.get(**name).copied();
        let changed: Vec<&str> = names.iter().filter(differs).copied().collect();
        let both = |name: &str| [before.get(name), next.get(name).copied()].into_iter().flatten();
        let ports: BTreeSet<&str> =
            changed.iter().flat_map(|name| both(name).map(|it| it.port.as_str())).collect();
        let mut failed = BTreeSet::new();
        for port in ports {
            let own = wanted.policies.iter().filter(|policy| policy.port == port);
            let old = before.values().filter(|policy| policy.port == port);
            if let Err(why) = self.set_policies_of(port, old, own) {
                report.fail(FailureCode::Policy, policies_subject(port), why);
                failed.insert(port);
            }
        }
        for name in changed.iter().filter(|name| both(name).all(|it| !failed.contains(&*it.port))) {
            let what = match (before.contains_key(*name), next.contains_key(name)) {
                (false, _) => "added",
                (true, true) => "changed",
                (true, false) => "removed",
            };
            report.change(format!("policy {name}: {what}"));
        }
        // A port whose change failed keeps its previous policies.
        let kept = before.values().filter(|policy| failed.contains(&*policy.port)).cloned();
        let set = wanted.policies.iter().filter(|policy| !failed.contains(&*policy.port)).cloned();
        self.ipsec.policies = kept.chain(set).map(|policy| (policy.name.clone(), policy)).collect();
    }

    /// Replaces the policies of a port. Policies of IKE daemons are not touched.
    fn set_policies_of<'a>(
        &self,
        port: &str,
        old: impl Iterator<Item = &'a PolicyState>,
        new: impl Iterator<Item = &'a PolicyState>,
    ) -> Result<(), String> {
        let parse = |policy: &PolicyState| policy.policy().map_err(|problem| problem.to_string());
        let old: Vec<Policy> = old.map(parse).collect::<Result<_, _>>()?;
        let new: Vec<Policy> = new.map(parse).collect::<Result<_, _>>()?;
        match self.ipsec.tables.get(port) {
            Some(table) => table.replace_policies(&old, &new).map_err(|error| error.to_string()),
            // The port is gone, and with it its policies.
            None if new.is_empty() => Ok(()),
            None => Err(format!("port {port} is missing")),
        }
    }
}
