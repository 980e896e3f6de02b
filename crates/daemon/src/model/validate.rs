//! Consistency checks between the parts of a state: names, references, loops.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_xdp::host::Interface;

use crate::model::kinds;
use crate::model::run_config::action_number;
use crate::model::state::{AttachState, PortState, ProgramState, State, VERSION};

/// Indexes by name for the checks of a state.
struct Named<'a> {
    ports: HashMap<&'a str, &'a PortState>,
    bridges: HashSet<&'a str>,
    /// Bonds by the names of their members; the first bond counts if several share a member.
    masters: HashMap<&'a str, &'a PortState>,
    /// Ports by the name of their upper, in order.
    below: HashMap<&'a str, Vec<&'a PortState>>,
    programs: HashMap<&'a str, &'a ProgramState>,
}

impl State {
    /// All problems of the state, by path; empty if it can be applied.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if self.version != VERSION {
            let message = format!("version {} is not known: this is {VERSION}", self.version);
            found.push(Problem::new("version", message));
        }
        self.check_workers(&mut found);
        self.check_names(&mut found);
        let named = Named::new(self);
        let mut kinds_are_fine = true;
        for (index, port) in self.ports.iter().enumerate() {
            if let Err(problem) = kinds::check(port) {
                kinds_are_fine = false;
                found.push(problem.inside(&format!("ports[{index}]")));
            }
            self.check_port(index, port, &named, &mut found);
            self.check_members(index, port, &named, &mut found);
        }
        if kinds_are_fine && found.is_empty() {
            self.check_loops(&named, &mut found);
        }
        self.check_host(&mut found);
        self.check_programs(&named, &mut found);
        let mut seen = HashSet::new();
        for (index, attach) in self.attachments.iter().enumerate() {
            let is_first = seen.insert(attach.identity());
            self.check_attach((index, is_first), attach, &named, &mut found);
        }
        self.check_ipsec(&mut found);
        found
    }

    fn check_workers(&self, found: &mut Vec<Problem>) {
        if self.workers.len() > WORKERS_MAX {
            found.push(Problem::new("workers", format!("at most {WORKERS_MAX} workers")));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            if worker.spin_us.is_some_and(|spin| spin > SPIN_US_MAX) {
                let path = format!("workers[{index}].spin_us");
                found.push(Problem::new(path, format!("0 to {SPIN_US_MAX} microseconds")));
            }
        }
        if let Some(frames) = self.frames
            && !(FRAMES_MIN..=FRAMES_MAX).contains(&frames)
        {
            found.push(Problem::new("frames", format!("{FRAMES_MIN} to {FRAMES_MAX}")));
        }
    }

    fn check_names(&self, found: &mut Vec<Problem>) {
        let bridges = self.bridges.iter().enumerate();
        let bridges = bridges.map(|(at, bridge)| (format!("bridges[{at}].name"), &bridge.name));
        let ports = self.ports.iter().enumerate();
        let ports = ports.map(|(at, port)| (format!("ports[{at}].name"), &port.name));
        let mut seen = BTreeSet::new();
        for (path, name) in bridges.chain(ports) {
            if let Err(message) = check_name(name) {
                found.push(Problem::new(path, message));
            } else if !seen.insert(name) {
                let message =
                    format!("the name \"{name}\" is taken: ports and bridges share names");
                found.push(Problem::new(path, message));
            }
        }
    }

    fn check_port(
        &self,
        index: usize,
        port: &PortState,
        named: &Named<'_>,
        found: &mut Vec<Problem>,
    ) {
        let mut wrong = |key: &str, message: String| {
            found.push(Problem::new(format!("ports[{index}].{key}"), message));
        };
        if let Some(upper) = &port.upper {
            if *upper == port.name {
                wrong("upper", "a port cannot be its own upper: frames would not end".to_owned());
            } else if !named.has(upper) {
                let bridges = self.bridges.iter().map(|bridge| bridge.name.as_str());
                let ports = self.ports.iter().map(|port| port.name.as_str());
                let mut names = bridges.chain(ports).filter(|name| *name != port.name);
                let hint = suggest::among(upper, &mut names);
                wrong("upper", format!("no port or bridge \"{upper}\"{hint}"));
            }
        }
        if let Some(mtu) = port.mtu
            && !(MTU_MIN..=MTU_MAX).contains(&mtu)
        {
            wrong("mtu", format!("{MTU_MIN} to {MTU_MAX} bytes"));
        }
        if port.ifindex == Some(0) {
            wrong("ifindex", "1 or more".to_owned());
        }
        let workers = self.workers.len().max(1);
        if let Some(worker) = port.workers.iter().find(|worker| **worker >= workers) {
            wrong("workers", format!("no worker {worker}: there are {workers}, numbered from 0"));
        }
        let Some(peer) = kinds::peer(port) else { return };
        match named.port(peer) {
            None => {
                let others = self.ports.iter().map(|port| port.name.as_str());
                let hint = suggest::among(peer, others.filter(|name| *name != port.name));
                wrong("peer", format!("no port \"{peer}\"{hint}"));
            }
            Some(other) if other.kind != port.kind => {
                wrong("peer", format!("port {peer} is of kind \"{}\"", other.kind));
            }
            Some(other) if kinds::peer(other) != Some(port.name.as_str()) => {
                let theirs = kinds::peer(other).unwrap_or_default();
                wrong("peer", format!("port {peer} has another peer: {theirs}"));
            }
            Some(_) => {}
        }
    }

    /// Reports loops: a frame that passes at a port must not return to it without a program's help.
    fn check_loops(&self, named: &Named<'_>, found: &mut Vec<Problem>) {
        // Frames return only through a peer or an accelerator.
        if self.ports.iter().all(|port| kinds::arrival(port).is_none()) {
            return;
        }
        let edges: BTreeMap<&str, Vec<&str>> =
            self.ports.iter().map(|port| (port.name.as_str(), named.next_arrivals(port))).collect();
        let mut told = BTreeSet::new();
        for (index, port) in self.ports.iter().enumerate() {
            let Some(way) = way_back(&edges, &port.name) else { continue };
            let first_time = way.iter().all(|name| !told.contains(name));
            told.extend(way.iter().copied());
            if first_time {
                let message = format!(
                    "passed frames would loop for ever: {} -> {}; give one of them another \
                     upper",
                    way.join(" -> "),
                    port.name
                );
                found.push(Problem::new(format!("ports[{index}].upper"), message));
            }
        }
    }

    /// Checks members of a bond: existing ports without an upper, each in at most one bond.
    fn check_members(
        &self,
        index: usize,
        port: &PortState,
        named: &Named<'_>,
        found: &mut Vec<Problem>,
    ) {
        for (at, name) in kinds::bond::members(port).into_iter().enumerate() {
            let mut wrong = |message: String| {
                let path = format!("ports[{index}].options.members[{at}]");
                found.push(Problem::new(path, message));
            };
            let Some(member) = named.port(name) else {
                let names = self.ports.iter().map(|port| port.name.as_str());
                let hint = suggest::among(name, names.filter(|name| *name != port.name));
                wrong(format!("no port \"{name}\"{hint} (ENODEV)"));
                continue;
            };
            if let Some(other) = named.master(name).filter(|it| it.name != port.name) {
                let other = &other.name;
                wrong(format!(
                    "{name} is a member of {other} already: a port can be in one bond only (EBUSY)"
                ));
            } else if named.outermost(member).name == member.name || named.is_inside(port, member) {
                let what = "the bond would be inside of itself (ELOOP)";
                wrong(format!("{name} cannot be a member: {what}"));
            } else if let Some(upper) = &member.upper {
                let bond = &port.name;
                wrong(format!(
                    "{name} has the upper {upper}: give that to {bond} instead, a member's frames \
                     go to its bond (EBUSY)"
                ));
            }
        }
    }

    /// Checks that every interface in the host tables exists, or will exist once all ports are
    /// open.
    fn check_host(&self, found: &mut Vec<Problem>) {
        let Some(host) = &self.host else { return };
        let stand_in = |(port, free): (&PortState, u32)| Interface {
            ifindex: port.ifindex.unwrap_or(free),
            name: port.name.clone(),
            mac: [0; 6],
            mtu: MTU_MIN,
            up: port.up,
            forwarding_v4: true,
            forwarding_v6: true,
            addresses: Vec::new(),
            vlan: None,
        };
        // Stand-in ifindexes that are not in use.
        let numbers = (0..=u32::MAX).rev();
        let ports: Vec<Interface> = self.ports.iter().zip(numbers).map(stand_in).collect();
        let (_, problems) = host.tables(&ports);
        found.extend(problems.into_iter().map(|problem| problem.inside("host")));
    }

    fn check_programs(&self, named: &Named<'_>, found: &mut Vec<Problem>) {
        let mut seen = BTreeSet::new();
        for (index, program) in self.programs.iter().enumerate() {
            let mut wrong = |key: &str, message: &str| {
                found.push(Problem::new(format!("programs[{index}].{key}"), message));
            };
            let ProgramState { key, sha256, program, section, bound_to, .. } = program;
            if let Some(port) = bound_to.as_ref().filter(|port| named.port(port).is_none()) {
                wrong("bound_to", &format!("no port \"{port}\""));
            }
            if key.is_empty() || !seen.insert(key) {
                wrong("key", "every program needs a key of its own");
            }
            if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                wrong("sha256", "64 hex digits");
            }
            if program.is_some() && section.is_some() {
                wrong("section", "give the program or its section, not both");
            }
        }
    }

    fn check_attach(
        &self,
        (index, is_first): (usize, bool),
        attach: &AttachState,
        named: &Named<'_>,
        found: &mut Vec<Problem>,
    ) {
        let mut wrong = |key: &str, message: String| {
            found.push(Problem::new(format!("attachments[{index}].{key}"), message));
        };
        if named.port(&attach.port).is_none() {
            let names = self.ports.iter().map(|port| port.name.as_str());
            let hint = suggest::among(&attach.port, names);
            wrong("port", format!("no port \"{}\"{hint}", attach.port));
        }
        match named.programs.get(attach.program.as_str()) {
            None => wrong("program", format!("no program \"{}\"", attach.program)),
            Some(&ProgramState { bound_to: Some(port), .. }) if *port != attach.port => {
                wrong("program", format!("it is bound to port {port} (EINVAL)"));
            }
            Some(_) => {}
        }
        for (at, action) in attach.actions.iter().flatten().enumerate() {
            if action_number(action).is_none() {
                let known = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"];
                let hint = suggest::among(&action.to_ascii_uppercase(), known);
                wrong(&format!("actions[{at}]"), format!("no action \"{action}\"{hint}"));
            }
        }
        if !is_first {
            wrong("program", format!("it is attached to {} already", attach.port));
        }
    }
}

impl<'a> Named<'a> {
    fn new(state: &'a State) -> Named<'a> {
        let mut below: HashMap<&str, Vec<&PortState>> = HashMap::new();
        let mut masters = HashMap::new();
        for port in &state.ports {
            if let Some(upper) = port.upper.as_deref() {
                below.entry(upper).or_default().push(port);
            }
            for member in kinds::bond::members(port) {
                masters.entry(member).or_insert(port);
            }
        }
        let programs = state.programs.iter().rev();
        Named {
            ports: state.ports_by_name(),
            bridges: state.bridges.iter().map(|bridge| bridge.name.as_str()).collect(),
            masters,
            below,
            programs: programs.map(|program| (program.key.as_str(), program)).collect(),
        }
    }

    fn port(&self, name: &str) -> Option<&'a PortState> {
        self.ports.get(name).copied()
    }

    /// Whether a port or bridge has this name.
    fn has(&self, name: &str) -> bool {
        self.ports.contains_key(name) || self.bridges.contains(name)
    }

    /// The bond that has the port as a member.
    fn master(&self, name: &str) -> Option<&'a PortState> {
        self.masters.get(name).copied()
    }

    /// The port, the bond around it, and so on outward. Limited in length, in case of a loop.
    fn around(&self, port: &'a PortState) -> impl Iterator<Item = &'a PortState> {
        let around = std::iter::successors(Some(port), |port| self.master(&port.name));
        around.take(self.ports.len() + 1)
    }

    /// The outermost bond around a port; the port itself if it is in no bond.
    fn outermost(&self, port: &'a PortState) -> &'a PortState {
        self.around(port).last().unwrap_or(port)
    }

    /// Whether `bond` is `other`, or is inside it.
    fn is_inside(&self, bond: &'a PortState, other: &PortState) -> bool {
        self.around(bond).any(|port| port.name == other.name)
    }

    /// The ports by which a bond's frames leave; for any other port, the port itself.
    fn innermost(&self, port: &'a PortState) -> Vec<&'a PortState> {
        let members = kinds::bond::members(port);
        if members.is_empty() {
            return vec![port];
        }
        let members = members.into_iter().filter_map(|name| self.port(name));
        members.flat_map(|port| self.innermost(port)).collect()
    }

    /// Names of the ports that receive a frame after it passed at `port`.
    fn next_arrivals(&self, port: &'a PortState) -> Vec<&'a str> {
        let outermost = self.outermost(port);
        let Some(upper) = outermost.upper.as_deref() else { return Vec::new() };
        let leaves_by: Vec<&PortState> = match self.port(upper) {
            Some(port) => vec![port],
            None => {
                let members = self.below.get(upper).into_iter().flatten().copied();
                members.filter(|member| member.name != outermost.name).collect()
            }
        };
        let leaves_by = leaves_by.into_iter().flat_map(|port| self.innermost(port));
        leaves_by.filter_map(kinds::arrival).collect()
    }
}

/// The ports on a path from a port back to itself, beginning with the port.
fn way_back<'a>(edges: &BTreeMap<&'a str, Vec<&'a str>>, from: &'a str) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut work = vec![from];
    while let Some(name) = work.pop() {
        for &next in edges.get(name).into_iter().flatten() {
            if next == from {
                let mut way = vec![name];
                while let Some(&before) = way.last().and_then(|last| came_from.get(last)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, name);
                work.push(next);
            }
        }
    }
    None
}

/// Checks a name by the kernel's rules for netdevs, so that a shadow of the same name is possible.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is needed".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("\"{name}\" is longer than {NAME_BYTES_MAX} bytes"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name == "." || name == ".." || !name.chars().all(fits) {
        return Err(format!("\"{name}\": only letters, digits, '.', '_' and '-'"));
    }
    Ok(())
}

/// Longest name in bytes: `IFNAMSIZ` without the final NUL.
const NAME_BYTES_MAX: usize = 15;
const _: () = assert!(NAME_BYTES_MAX < 16, "IFNAMSIZ counts the zero at the end");
pub(crate) const WORKERS_MAX: usize = 256;
const FRAMES_MIN: usize = 256;
/// Largest number of frames: 64 GiB.
const FRAMES_MAX: usize = 1 << 24;
/// Half of the longest sleep: a worker that polls for longer is busy.
const SPIN_US_MAX: u64 = 10_000;
const _: () =
    assert!(FRAMES_MIN < FRAMES_MAX && FRAMES_MIN >= 2 * towpath_engine::BURST, "two bursts fit");
/// `ETH_MIN_MTU` and `ETH_MAX_MTU`.
const MTU_MIN: u32 = 68;
const MTU_MAX: u32 = 65535;
const _: () = assert!(MTU_MIN < MTU_MAX);
