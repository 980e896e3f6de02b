//! Consistency of SAs and policies with each other and with the ports.

use std::collections::{BTreeSet, HashMap};

use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_ipsec::{Table, TableLimits};

use crate::model::ipsec::{DirectionState, SaState};
use crate::model::kinds::ipsec::NAME as KIND;
use crate::model::state::{PortState, State};

impl State {
    /// Checks SAs and policies.
    pub(crate) fn check_ipsec(&self, found: &mut Vec<Problem>) {
        if self.sas.is_empty() && self.policies.is_empty() {
            return;
        }
        let ports = self.ports_by_name();
        self.check_sas(&ports, found);
        self.check_policies(&ports, found);
    }

    fn check_sas(&self, ports: &HashMap<&str, &PortState>, found: &mut Vec<Problem>) {
        let mut names = BTreeSet::new();
        let mut spis: HashMap<_, &str> = HashMap::new();
        let mut keys: HashMap<&str, &str> = HashMap::new();
        for (index, sa) in self.sas.iter().enumerate() {
            let here = format!("sas[{index}]");
            let mut wrong = |key: &str, message: String| {
                found.push(Problem::new(format!("{here}.{key}"), message));
            };
            if let Err(message) = check_name(&sa.name, "SA", &mut names) {
                wrong("name", message);
            }
            if let Err(message) = check_port(&sa.port, ports) {
                wrong("port", message);
            }
            let SaState { port, direction, spi, destination, .. } = sa;
            let is_in = *direction == DirectionState::In;
            if let Some(other) = spis.insert((port, is_in, spi, destination), &sa.name) {
                let message =
                    format!("SA {other} has SPI {spi:#x} and the destination {destination}, too");
                wrong("spi", message);
            }
            if !is_in && let Some(other) = keys.insert(&sa.key_file, &sa.name) {
                wrong("key_file", format!("SA {other} sends with these keys, too"));
            }
            if let Err(problem) = sa.check() {
                found.push(problem.inside(&here));
            }
        }
    }

    fn check_policies(&self, ports: &HashMap<&str, &PortState>, found: &mut Vec<Problem>) {
        let mut names = BTreeSet::new();
        let limits = TableLimits { sas: 0, ..TableLimits::default() };
        let mut tables: HashMap<&str, Table> = HashMap::new();
        for (index, policy) in self.policies.iter().enumerate() {
            let here = format!("policies[{index}]");
            let mut wrong = |key: &str, message: String| {
                found.push(Problem::new(format!("{here}.{key}"), message));
            };
            if let Err(message) = check_name(&policy.name, "policy", &mut names) {
                wrong("name", message);
            }
            if let Err(message) = check_port(&policy.port, ports) {
                wrong("port", message);
            }
            match policy.policy() {
                Ok(parsed) => {
                    let table = tables.entry(&policy.port).or_insert_with(|| Table::new(limits));
                    if let Err(error) = table.add_policy(parsed) {
                        wrong("priority", error.to_string());
                    }
                }
                Err(problem) => found.push(problem.inside(&here)),
            }
        }
    }
}

fn check_name<'a>(name: &'a str, what: &str, names: &mut BTreeSet<&'a str>) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(fits) {
        return Err(format!(
            "\"{name}\": 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' and '-' are possible"
        ));
    }
    if !names.insert(name) {
        return Err(format!("the name \"{name}\" is taken: another {what} has it"));
    }
    Ok(())
}

/// Requires a port of kind `ipsec`.
fn check_port(name: &str, ports: &HashMap<&str, &PortState>) -> Result<(), String> {
    match ports.get(name) {
        Some(port) if port.kind == KIND => Ok(()),
        Some(port) => Err(format!(
            "port {name} is of kind \"{}\": one of kind \"{KIND}\" is needed",
            port.kind
        )),
        None => {
            let accelerators = ports.values().filter(|port| port.kind == KIND);
            let hint = suggest::among(name, accelerators.map(|port| port.name.as_str()));
            Err(format!("no port \"{name}\"{hint}"))
        }
    }
}

/// Longest name of an SA or policy, in bytes.
const NAME_BYTES_MAX: usize = 63;
