//! Changes at the other ends of ports: links, monitors of virtual machines, agents of guests. Each
//! change is one event; a lost link is a failure for as long as it is down.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_engine::Port;
use towpath_engine::port::Peer;
use towpath_guest::Guest;

use crate::live::news::News;
use crate::live::{LivePort, Seen};
use crate::model::failure::{Failure, FailureCode};
use crate::model::kinds;

/// Links and peers at the last look, by port.
#[derive(Debug, Default)]
pub(crate) struct Comings {
    links: BTreeMap<String, Link>,
    peers: BTreeMap<String, Peer>,
    agents: BTreeMap<String, Peer>,
}

/// A port's link.
#[derive(Debug)]
struct Link {
    /// Whether the link has been up since the port was opened.
    was_there: bool,
    since: Instant,
}

impl Comings {
    /// Reports links that went up or down, and peers that connected or disconnected, since the last
    /// look.
    pub(crate) fn look(&mut self, live: &Seen, news: &News, now: Instant) {
        let ports = &live.ports;
        let open = |(name, port): (&String, &LivePort)| {
            let opened = port.opened.as_ref()?;
            let slot = live.engine.port(port.id).filter(|slot| slot.up)?;
            Some((name.clone(), kinds::interface(opened).is_some(), slot))
        };
        let open: Vec<(String, bool, Arc<Port>)> = ports.iter().filter_map(open).collect();
        let names: HashSet<&String> = open.iter().map(|(name, ..)| name).collect();
        let is_open = |name: &String| names.contains(name);
        for name in self.links.extract_if(.., |name, _| !is_open(name)).map(|(name, _)| name) {
            news.recovered(FailureCode::PortLink, &subject(&name));
        }
        self.peers.retain(|name, _| is_open(name));
        self.agents.retain(|name, _| live.guests.contains_key(name));
        for (name, has_interface, slot) in &open {
            if *has_interface {
                self.look_at_link(name, slot, news, now);
            }
            if let Some(peer) = slot.opened.device.peer() {
                let what = (&*subject(name), "a monitor");
                tell(&mut self.peers, name, &peer, what, news);
            }
        }
        for (name, guest) in &live.guests {
            let what = (&*format!("guest of port {name}"), "its agent");
            tell(&mut self.agents, name, &agent(guest), what, news);
        }
    }

    fn look_at_link(&mut self, name: &str, slot: &Port, news: &News, now: Instant) {
        let is_there = slot.opened.device.link();
        let link = self.links.entry(name.to_owned());
        let link = link.or_insert_with(|| Link { was_there: false, since: now });
        if is_there {
            (link.was_there, link.since) = (true, now);
            news.recovered(FailureCode::PortLink, &subject(name));
        } else if link.was_there {
            news.failed(FailureCode::PortLink, &subject(name), "its link is lost");
        } else if now - link.since >= PATIENCE {
            news.failed(FailureCode::PortLink, &subject(name), "it has no link");
        }
    }
}

/// Whether a failure is about a link that came back after the last look.
pub(crate) fn is_over(live: &Seen, failure: &Failure) -> bool {
    let is_link = failure.code == FailureCode::PortLink;
    let name = failure.subject.strip_prefix(PORT).filter(|_| is_link);
    name.is_some_and(|name| {
        let port = live.ports.get(name).and_then(|port| live.engine.port(port.id));
        port.is_none_or(|slot| slot.opened.device.link())
    })
}

/// Reports changes of a peer since the last look.
fn tell(
    before: &mut BTreeMap<String, Peer>,
    name: &str,
    now: &Peer,
    (subject, who): (&str, &str),
    news: &News,
) {
    let old = before.insert(name.to_owned(), now.clone()).unwrap_or_default();
    let came = now.comings.saturating_sub(old.comings);
    if came > 1 {
        news.note(subject, &format!("{subject}: {who} came {came} times"));
    } else if came == 1 {
        news.note(subject, &format!("{subject}: {who} came"));
    }
    let refused = now.refusals.saturating_sub(old.refusals);
    if let Some(why) = now.refusal.as_ref().filter(|_| refused > 0) {
        let times = if refused > 1 { format!(" ({refused} times)") } else { String::new() };
        news.note(subject, &format!("{subject}: {who} was refused{times}: {why}"));
    }
    if !now.is_there && (came > 0 || old.is_there) {
        news.note(subject, &format!("{subject}: {who} went"));
    }
}

fn agent(guest: &Guest) -> Peer {
    let (is_there, comings) = guest.connections();
    // Refused requests of a guest are shown to its agent only.
    Peer { is_there, comings, ..Peer::default() }
}

fn subject(name: &str) -> String {
    format!("{PORT}{name}")
}

/// Prefix of the subjects of ports' failures.
const PORT: &str = "port ";
/// Time after opening within which an interface must have a link.
const PATIENCE: Duration = Duration::from_secs(5);
