//! Programs on hooks. All hooks that differ change at once, between two bursts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_engine::{Hook, Link};
use towpath_objects::{AttachError, LinkObject, ProgramObject, XdpMode};

use super::Live;
use super::devices::FOREIGN;
use super::parts::{LiveLink, LivePort};
use super::report::Report;
use crate::model::failure::FailureCode;
use crate::model::run_config::action_number;
use crate::model::state::{AttachState, HookState, OnFailure, State};
use crate::model::thing::Identity;

impl Live {
    /// Attaches, replaces and detaches programs. Returns the ports that lack a program.
    pub(super) fn attach(
        &mut self,
        wanted: &State,
        report: &mut Report,
    ) -> BTreeMap<String, Missing> {
        let mut missing: Vec<(&AttachState, String, bool)> = Vec::new();
        let mut next: Vec<LiveLink> = Vec::new();
        let links = self.links.iter().map(|link| (link.attach.identity(), link));
        let links: HashMap<Identity, &LiveLink> = links.collect();
        for attach in &wanted.attachments {
            if !self.ports.contains_key(&attach.port) {
                continue;
            }
            let Some(program) = self.programs.get(&attach.program) else {
                missing.push((attach, attach.program.clone(), false));
                continue;
            };
            // Stopped programs are reported with the programs.
            if program.program.stopped().is_some() {
                missing.push((attach, format!("{} was stopped", attach.program), true));
                continue;
            }
            match self.link(attach, links.get(&attach.identity()).copied()) {
                Ok(link) => next.push(link),
                Err(why) => {
                    report.fail(FailureCode::Attach, format!("port {}", attach.port), &*why);
                    missing.push((attach, why, false));
                }
            }
        }
        let mut incomplete = incomplete(missing, &next);
        let on = by_hook(&next);
        let hooks = self.changed_hooks(&on);
        if hooks.is_empty() {
            self.take_links(next);
            return incomplete;
        }
        let result = self.engine.change(|config| {
            hooks.iter().try_for_each(|(port, hook)| {
                let live = &self.ports[port];
                let links = self.links_on(&on, port, live, *hook);
                config.set_links(live.id, engine_hook(*hook), links)
            })
        });
        match result {
            Ok(()) => {
                tell(&self.links, &next, report);
                self.take_links(next);
            }
            Err(error) => {
                report.fail(FailureCode::Attach, "attach", error.to_string());
                for (port, _) in hooks {
                    incomplete.insert(port, Missing { why: error.to_string(), is_open: false });
                }
            }
        }
        incomplete
    }

    /// The existing link with its wanted settings, or a new one.
    fn link(&self, attach: &AttachState, before: Option<&LiveLink>) -> Result<LiveLink, String> {
        let program = &self.programs[&attach.program];
        let ifindex = self.ports.get(&attach.port).map_or(0, |port| port.ifindex);
        let there = before.map(|link| &*link.object);
        let allowed = self.registry.check_link(&program.object, ifindex, modes(attach.hook), there);
        allowed.map_err(|error| self.why_not(&error, attach, ifindex))?;
        let mut live = match before {
            Some(link) if link.program == program.id() => link.clone(),
            _ => {
                let object = match before {
                    Some(link) => Arc::clone(&link.object),
                    None => self.new_link(attach, &program.object)?,
                };
                let (id, workers) = (object.id(), self.engine.workers());
                let link = Link::new(program.program.clone(), id, workers);
                let attach = attach.clone();
                LiveLink { attach, id, program: program.id(), object, link }
            }
        };
        let actions = attach.actions.as_ref().map(|names| {
            let numbers = names.iter().filter_map(|name| action_number(name));
            numbers.fold(0, |mask, action| mask | 1 << action)
        });
        assert!([live.link.id, live.object.id()] == [live.id; 2], "one id everywhere");
        live.attach = attach.clone();
        live.link.priority = attach.prio.unwrap_or(program.run_config.priority);
        live.link.chain_call_actions = actions.unwrap_or(program.run_config.actions);
        Ok(live)
    }

    fn new_link(
        &self,
        attach: &AttachState,
        program: &Arc<ProgramObject>,
    ) -> Result<Arc<LinkObject>, String> {
        let ifindex = self.ports.get(&attach.port).map_or(0, |port| port.ifindex);
        let link = self.registry.register_link(program, ifindex);
        link.map_err(|errno| format!("no id is left: {errno}"))
    }

    /// Explains why a program cannot be attached to a hook.
    fn why_not(&self, error: &AttachError, attach: &AttachState, ifindex: u32) -> String {
        if error.errno != Errno::EBUSY {
            let name = self.programs[&attach.program].program.name();
            return format!("program {name} is bound to another port ({:?})", error.errno);
        }
        let there = self.registry.xdp(ifindex).unwrap_or_default();
        let foreign = match attach.hook {
            HookState::Rx | HookState::Tx => there.native.max(there.generic),
            HookState::Dequeue => there.dequeue,
        };
        format!("program {foreign} was attached by another client, which owns the hook (EBUSY)")
    }

    /// Makes `next` the current links. Links that are gone are detached, even if a client has
    /// pinned them.
    fn take_links(&mut self, next: Vec<LiveLink>) {
        for link in &next {
            if let Some(program) = self.programs.get(&link.attach.program)
                && link.object.program().id() != link.program
            {
                self.registry.note_program(&link.object, &program.object);
            }
        }
        let stay: HashSet<u32> = next.iter().map(|link| link.id).collect();
        assert_eq!(stay.len(), next.len(), "links have ids of their own");
        for gone in std::mem::replace(&mut self.links, next) {
            if !stay.contains(&gone.id) {
                gone.object.detach();
            }
        }
    }

    /// Hooks whose links in the engine differ from the wanted ones.
    fn changed_hooks(&self, next: &ByHook<'_>) -> Vec<(String, HookState)> {
        let told =
            |link: &Link| (link.id, link.program.id(), link.priority, link.chain_call_actions);
        let mut changed = Vec::new();
        for (name, port) in &self.ports {
            for hook in [HookState::Rx, HookState::Tx, HookState::Dequeue] {
                let wanted: BTreeSet<_> =
                    self.links_on(next, name, port, hook).iter().map(told).collect();
                let there: Option<BTreeSet<_>> = self.engine.read(|config, _| {
                    let links = config.links(port.id, engine_hook(hook)).ok()?;
                    Some(links.iter().filter(|link| link.id != FOREIGN).map(told).collect())
                });
                if there.is_some_and(|there| there != wanted) {
                    changed.push((name.clone(), hook));
                }
            }
        }
        changed
    }

    /// The wanted links of a hook, with the programs that AF_XDP sockets need.
    fn links_on(
        &self,
        next: &ByHook<'_>,
        name: &str,
        port: &LivePort,
        hook: HookState,
    ) -> Vec<Link> {
        let links = next.get(&(name, hook)).into_iter().flatten();
        let own = || self.xsk.links(port.ifindex);
        let own = (hook == HookState::Rx).then(own).into_iter().flatten();
        links.map(|link| link.link.clone()).chain(own).collect()
    }
}

/// Links by port and hook, in their order.
type ByHook<'a> = HashMap<(&'a str, HookState), Vec<&'a LiveLink>>;

fn by_hook(links: &[LiveLink]) -> ByHook<'_> {
    let mut all = ByHook::new();
    for link in links {
        all.entry((link.attach.port.as_str(), link.attach.hook)).or_default().push(link);
    }
    all
}

/// A program that a port lacks.
#[derive(Debug)]
pub(super) struct Missing {
    /// The program, or the reason.
    pub(super) why: String,
    /// Whether no other program filters at that place: the port would pass everything.
    pub(super) is_open: bool,
}

/// Ports that lack programs, except those that work without (`OnFailure::Pass`).
fn incomplete(
    missing: Vec<(&AttachState, String, bool)>,
    next: &[LiveLink],
) -> BTreeMap<String, Missing> {
    let mut incomplete: BTreeMap<String, Missing> = BTreeMap::new();
    for (attach, why, was_stopped) in missing {
        if attach.on_failure == OnFailure::Pass {
            continue;
        }
        let is_open =
            was_stopped || next.iter().all(|link| !is_on(link, &attach.port, attach.hook));
        let before = incomplete.get(&attach.port).is_some_and(|before| before.is_open);
        let missing = Missing { why, is_open: is_open || before };
        incomplete.insert(attach.port.clone(), missing);
    }
    incomplete
}

fn is_on(link: &LiveLink, port: &str, hook: HookState) -> bool {
    link.attach.port == port && link.attach.hook == hook
}

/// Converts a hook to the engine's type.
pub(crate) fn engine_hook(hook: HookState) -> Hook {
    match hook {
        HookState::Rx => Hook::Rx,
        HookState::Tx => Hook::Tx,
        HookState::Dequeue => Hook::Dequeue,
    }
}

/// Attach modes that lead to the hook.
fn modes(hook: HookState) -> &'static [XdpMode] {
    match hook {
        HookState::Rx => &[XdpMode::Generic, XdpMode::Native],
        HookState::Tx => &[],
        HookState::Dequeue => &[XdpMode::Dequeue],
    }
}

fn tell(before: &[LiveLink], next: &[LiveLink], report: &mut Report) {
    let name = |link: &LiveLink| {
        let program = link.link.program.name();
        format!("port {}: program {program} (link {})", link.attach.port, link.id)
    };
    let by_id = |links: &[LiveLink]| -> HashMap<u32, usize> {
        links.iter().enumerate().map(|(place, link)| (link.id, place)).collect()
    };
    let (old, new) = (by_id(before), by_id(next));
    for link in next {
        match old.get(&link.id).map(|&place| &before[place]) {
            None => report.change(format!("{} attached", name(link))),
            Some(old) if old.program != link.program => {
                report.change(format!("{} replaced", name(link)));
            }
            Some(old)
                if (old.link.priority, old.link.chain_call_actions)
                    != (link.link.priority, link.link.chain_call_actions) =>
            {
                report.change(format!("{} changed", name(link)));
            }
            Some(_) => {}
        }
    }
    for link in before.iter().filter(|link| !new.contains_key(&link.id)) {
        report.change(format!("{} detached", name(link)));
    }
}
