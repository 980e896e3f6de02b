//! `.xdp_run_config`: the priority and chain-call actions that an object file gives its programs.
//!
//! libxdp's `XDP_RUN_CONFIG(prog)` is a variable `_prog` of a struct whose members are pointers to
//! arrays; the arrays' lengths are the values (`__uint`).

use towpath_bpf::Object;
use towpath_bpf::btf::{Btf, Kind, TypeId};
use towpath_engine::{DEFAULT_ACTIONS, DEFAULT_PRIORITY};

/// A program's priority, and the verdicts after which the next program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunConfig {
    /// Programs with smaller values run earlier.
    pub priority: u32,
    /// Verdicts after which the next program runs, as a mask of bits `1 << action`.
    pub actions: u32,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig { priority: DEFAULT_PRIORITY, actions: DEFAULT_ACTIONS }
    }
}

/// Reads the object's settings for a program; libxdp's defaults for absent ones.
pub fn run_config(object: &Object, program: &str) -> RunConfig {
    let btf = object.btf();
    let found = btf.and_then(|btf| read(btf, program));
    found.unwrap_or_default()
}

fn read(btf: &Btf, program: &str) -> Option<RunConfig> {
    let (_, vars) = btf.datasec(".xdp_run_config")?;
    let var = vars.iter().find(|var| btf.name(var.ty).strip_prefix('_') == Some(program))?;
    let Kind::Var { ty, .. } = btf.kind(var.ty) else { return None };
    let mut config = RunConfig::default();
    let mut actions = config.actions;
    for member in btf.members(btf.resolve(*ty)) {
        let Some(value) = length(btf, member.ty) else { continue };
        if &*member.name == "priority" {
            config.priority = value;
        } else if let Some(action) = action_number(&member.name) {
            actions = if value == 0 { actions & !(1 << action) } else { actions | 1 << action };
        }
    }
    config.actions = actions;
    Some(config)
}

/// The length of the array that a pointer points to.
fn length(btf: &Btf, ty: TypeId) -> Option<u32> {
    let Kind::Ptr(to) = btf.resolved(ty) else { return None };
    match btf.resolved(*to) {
        Kind::Array { count, .. } => Some(*count),
        _ => None,
    }
}

/// The number of `XDP_PASS`, `pass` or `PASS`.
pub fn action_number(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let name = upper.strip_prefix("XDP_").unwrap_or(&upper);
    ACTIONS.iter().position(|action| *action == name).map(|at| at as u32)
}

/// The names of the actions in a mask, as libxdp writes them.
pub fn action_names(mask: u32) -> Vec<String> {
    let set = ACTIONS.iter().enumerate().filter(|(at, _)| mask & 1 << at != 0);
    set.map(|(_, name)| format!("XDP_{name}")).collect()
}

/// Names of actions by number, without `XDP_`.
pub const ACTIONS: [&str; 5] = ["ABORTED", "DROP", "PASS", "TX", "REDIRECT"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_names_in_every_style() {
        assert_eq!(action_number("XDP_PASS"), Some(2));
        assert_eq!(action_number("drop"), Some(1));
        assert_eq!(action_number("XDP_WHAT"), None);
        assert_eq!(action_names(0b110), ["XDP_DROP", "XDP_PASS"]);
    }
}
