//! SAs and policies as the API shows them. Keys are in none of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use towpath_ipsec::{Sa, Statistics};
use towpath_ports::ipsec::now;

use crate::control::Inner;
use crate::model::failure::FailureCode;
use crate::model::ipsec::{ActionState, DirectionState, PolicyState, SaState, policies_subject};
use crate::model::messages::{PolicyView, SaStatus, SaView};
use crate::model::natural::natural;
use crate::model::thing::Thing;

/// All wanted SAs, and those of IKE daemons, by name.
pub(crate) fn all(inner: &Inner) -> Vec<SaView> {
    let wanted = inner.wanted.state().sas.iter();
    let of_doors = inner
        .live
        .doors
        .iter()
        .flat_map(|(port, door)| door.sas().into_iter().map(|sa| of_daemon(port, &sa)));
    let mut all: Vec<SaView> = wanted.map(|state| view(inner, state)).chain(of_doors).collect();
    all.sort_by(|one, other| natural(&one.state.name, &other.state.name));
    all
}

/// A wanted SA.
pub(crate) fn view(inner: &Inner, state: &SaState) -> SaView {
    let thing = Thing::Sa(state.name.clone());
    let live = inner.live.sas.get(&state.name);
    let failure = live.and_then(|live| live.failure());
    let status = match live {
        None => SaStatus::Missing,
        Some(_) if failure.is_some() => SaStatus::Expired,
        Some(live) if live.sa.is_dying() => SaStatus::Dying,
        Some(_) => SaStatus::Active,
    };
    let failure = failure.or_else(|| why(inner, FailureCode::Sa, &thing.to_string()));
    let wanted_by = inner.wanted.authors(&thing);
    let view = SaView { wanted_by, failure, ..blank(state.clone(), status) };
    match live {
        Some(live) => counted(&live.sa, view),
        None => view,
    }
}

/// An SA that an IKE daemon made. No author of the wanted state has it.
fn of_daemon(port: &str, sa: &Sa) -> SaView {
    let status = match (sa.is_expired(), sa.is_dying()) {
        (true, _) => SaStatus::Expired,
        (false, true) => SaStatus::Dying,
        (false, false) => SaStatus::Active,
    };
    counted(sa, blank(SaState::of_daemon(port, sa), status))
}

/// A view without counters.
fn blank(state: SaState, status: SaStatus) -> SaView {
    SaView {
        state,
        wanted_by: Vec::new(),
        id: 0,
        status,
        failure: None,
        packets: 0,
        bytes: 0,
        sequence: 0,
        age: None,
        idle: None,
        peer: None,
        refused: BTreeMap::new(),
    }
}

fn counted(sa: &Sa, view: SaView) -> SaView {
    let statistics = sa.statistics();
    let Statistics { packets, bytes, added, used, sequence, peer, refused, .. } = &statistics;
    let now = now();
    SaView {
        id: sa.id(),
        packets: *packets,
        bytes: *bytes,
        sequence: *sequence,
        age: Some(now.saturating_sub(*added)),
        idle: (*packets > 0).then(|| now.saturating_sub(*used)),
        peer: peer.map(|(address, port)| SocketAddr::from((address, port)).to_string()),
        refused: refused.iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        ..view
    }
}

/// All wanted policies: by port, the lowest priority number first.
pub(crate) fn policies(inner: &Inner) -> Vec<PolicyView> {
    let wanted = inner.wanted.state().policies.iter();
    let mut all: Vec<PolicyView> = wanted.map(|state| policy(inner, state)).collect();
    all.sort_by(|one, other| {
        let by_port = natural(&one.state.port, &other.state.port);
        by_port.then(one.state.priority.cmp(&other.state.priority))
    });
    all
}

/// A wanted policy.
pub(crate) fn policy(inner: &Inner, state: &PolicyState) -> PolicyView {
    PolicyView {
        state: state.clone(),
        wanted_by: inner.wanted.authors(&Thing::Policy(state.name.clone())),
        failure: why(inner, FailureCode::Policy, &policies_subject(&state.port)),
    }
}

/// Policies that no wanted SA serves: they refuse their packets.
pub(crate) fn warnings(inner: &Inner) -> impl Iterator<Item = String> {
    let state = inner.wanted.state();
    let serves = |policy: &PolicyState, sa: &SaState| {
        let is_out = sa.direction == DirectionState::Out;
        is_out && sa.port == policy.port && Some(sa.reqid) == policy.reqid
    };
    let is_lonely = move |policy: &&PolicyState| {
        let protects = policy.action == ActionState::Protect;
        protects && !state.sas.iter().any(|sa| serves(policy, sa))
    };
    state.policies.iter().filter(is_lonely).map(|policy| {
        format!(
            "policy {}: no outbound SA of port {} has reqid {}: its packets are refused",
            policy.name,
            policy.port,
            policy.reqid.unwrap_or_default()
        )
    })
}

fn why(inner: &Inner, code: FailureCode, subject: &str) -> Option<String> {
    let mut failures = inner.failures.iter();
    let found = failures.find(|failure| failure.code == code && failure.subject == subject);
    found.map(|failure| failure.why.clone())
}
