//! Limits of SAs: each one reached is an event, and an SA that refuses all packets is a failure for
//! as long as it is wanted.

use std::net::SocketAddr;

use towpath_ports::ipsec::now;

use crate::live::news::News;
use crate::live::{LiveSa, Seen};
use crate::model::failure::{Failure, FailureCode};

/// Reports limits that SAs reached since the last look.
pub(crate) fn look(live: &Seen, news: &News) {
    let expired = live.sas.iter().filter_map(|(name, sa)| look_at(name, sa, news)).collect();
    news.found(|failure| failure.code == FailureCode::SaExpired, expired);
}

fn look_at(name: &str, live: &LiveSa, news: &News) -> Option<Failure> {
    live.sa.expire(now());
    let events = live.sa.take_events();
    let subject = subject(name);
    if events.soft {
        news.note(&subject, &format!("{subject}: it reached a soft limit, and needs new keys"));
    }
    if let (true, Some((address, port))) = (events.mapping, live.sa.statistics().peer) {
        let peer = SocketAddr::from((address, port));
        news.note(&subject, &format!("{subject}: its peer's packets come from {peer} now"));
    }
    live.failure().map(|why| Failure::new(FailureCode::SaExpired, subject, why))
}

/// Whether a failure is about an SA that was replaced or removed after the last look.
pub(crate) fn is_over(live: &Seen, failure: &Failure) -> bool {
    let name = failure.subject.strip_prefix(SA).filter(|_| failure.code == FailureCode::SaExpired);
    name.is_some_and(|name| live.sas.get(name).is_none_or(|sa| sa.failure().is_none()))
}

fn subject(name: &str) -> String {
    format!("{SA}{name}")
}

/// Prefix of the subjects of SAs' failures.
const SA: &str = "sa ";
