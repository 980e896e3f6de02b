//! Test runs that show whether a program lets a bond's LACPDUs pass, before it is in use.
//!
//! As in the kernel, a bond's program sees these frames before the bond does, and a program that
//! drops them keeps 802.3ad from ever coming up. The test run has maps of its own, filled as
//! configured.

use towpath_bpf::Env;
use towpath_engine::bond::BondMode;
use towpath_maps::mapfile::{self, Filling};
use towpath_ports::bond::lacp::pdu::{self, Lacpdu, PortInfo};
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Action, Exec, Frame, Worker};

use crate::live::files::ObjectFiles;
use crate::model::kinds::bond;
use crate::model::state::{HookState, PortState, ProgramState, State};

/// A probable mistake in a valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The port.
    pub port: String,
    /// The mistake, with advice.
    pub text: String,
}

/// Verdicts of programs on a LACPDU, cached: each program is verified and run once.
#[derive(Debug, Default)]
pub struct DryRun {
    asked: Vec<(ProgramState, Answer)>,
}

/// A program's name and its verdict; `None` if it does not load.
type Answer = Option<(String, Action)>;

impl DryRun {
    /// Programs that keep bonds in mode 802.3ad from working.
    pub fn warnings(&mut self, state: &State, objects: &ObjectFiles) -> Vec<Warning> {
        let before = std::mem::take(&mut self.asked);
        let mut env = None;
        warnings(state, |program| {
            // The object's path and the way of execution do not change the verdict.
            let known = before.iter().chain(&self.asked).find(|(it, _)| is_same(it, program));
            if let Some((_, answer)) = known {
                let answer = answer.clone();
                self.asked.push((program.clone(), answer.clone()));
                return answer;
            }
            objects.bytes(&program.sha256)?;
            let answer =
                judge(program, objects, env.get_or_insert_with(towpath_xdp::host::kernel_types));
            self.asked.push((program.clone(), answer.clone()));
            answer
        })
    }
}

fn is_same(one: &ProgramState, other: &ProgramState) -> bool {
    fn parts(it: &ProgramState) -> impl PartialEq {
        let ProgramState { sha256, program, section, set, map_sizes, maps, bound_to, .. } = it;
        (sha256, program, section, set, map_sizes, maps, bound_to.is_some())
    }
    parts(one) == parts(other)
}

fn warnings(state: &State, mut ask: impl FnMut(&ProgramState) -> Answer) -> Vec<Warning> {
    let mut found = Vec::new();
    let ports = state.ports_by_name();
    for attach in state.attachments.iter().filter(|attach| attach.hook == HookState::Rx) {
        let port = ports.get(attach.port.as_str());
        let Some(lacp) = port.and_then(|port| exposed(state, port)) else { continue };
        let Some(program) = state.programs.iter().find(|it| it.key == attach.program) else {
            continue;
        };
        // A program that does not load is reported elsewhere.
        let Some((name, action)) = ask(program) else { continue };
        if action != Action::Pass {
            found.push(Warning {
                port: attach.port.clone(),
                text: format!(
                    "port {}: program {name} says {action} to LACPDUs (ethertype 0x8809): {lacp} \
                     in mode 802.3ad needs them; pass them, or set protect_control = true",
                    attach.port
                ),
            });
        }
    }
    found
}

/// The bond in mode 802.3ad whose control frames a program on `port` sees.
fn exposed<'a>(state: &'a State, port: &'a PortState) -> Option<&'a str> {
    let options = bond::wanted(port)?.ok()?.settings.options;
    if options.mode == BondMode::Lacp && !options.protect_control {
        return Some(&port.name);
    }
    let members = bond::members(port).into_iter().filter_map(|name| state.port(name));
    members.filter(|member| member.name != port.name).find_map(|member| exposed(state, member))
}

/// A program's name, and its verdict on a LACPDU.
fn judge(state: &ProgramState, objects: &ObjectFiles, env: &Env) -> Answer {
    let (object, index) = objects.program(state).ok()?;
    let mut options = LoadOptions { workers: 1, exec: Exec::Interp, ..LoadOptions::default() };
    options.verifier.device_bound = state.bound_to.is_some();
    let name = object.programs()[index].name.clone();
    let loader = Loader::new(&object, env, &options).ok()?;
    let program = loader.program(Select::Name(&name)).ok()?;
    if let Some(contents) = &state.maps {
        fill(contents, &loader);
    }
    let own = PortInfo { system: [2, 0, 0, 0, 0, 1], port: 1, ..PortInfo::default() };
    let lacpdu = Lacpdu { actor: own, partner: PortInfo::default() };
    let mut frame = Frame::new(&pdu::build(own.system, &lacpdu)).ok()?;
    let verdict = program.run(&mut Worker::new(0), &mut frame).ok()?;
    Some((name, verdict.action))
}

/// Stores the configured contents; entries that are not possible here are left out, such as those
/// that refer to ports.
fn fill(contents: &serde_json::Map<String, serde_json::Value>, loader: &Loader<'_>) {
    let maps = loader.maps();
    let Ok(fillings) = mapfile::parse(contents, &maps.defs(), 1) else { return };
    let nobody = |_: &str, _| Err("there is no such program here".to_owned());
    for Filling { map, steps } in fillings {
        let Some(map) = maps.map(map) else { continue };
        for step in &steps {
            let _left_out = mapfile::store(maps, &nobody, map, step);
        }
    }
}
