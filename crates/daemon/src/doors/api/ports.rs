//! `/v1/ports`

use serde_json::{Map, Value as Json_};
use towpath_bpf::suggest;

use super::answer::{Answer, Body, Daemon, Done, Part, blocking, working};
use super::error::ErrorBody;
use crate::control::Inner;
use crate::doors::view;
use crate::model::kinds;
use crate::model::messages::{FeaturesView, PortView};
use crate::model::refusal::Refusal;
use crate::model::state::{PortState, State};

/// Lists all ports.
#[utoipa::path(get, path = "/v1/ports", responses((status = 200, body = Vec<PortView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<PortView>> {
    blocking(&control, |control| Ok(control.read(view::ports))).await
}

/// Shows a port.
#[utoipa::path(get, path = "/v1/ports/{name}", params(("name" = String, Path)),
    responses((status = 200, body = PortView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(name): Part<String>) -> Answer<PortView> {
    let find = move |inner: &Inner| find(inner, &name);
    blocking(&control, |control| control.read(find)).await
}

/// Adds a port: an object with the keys of `[[port]]`. A pair's peer is added as well.
#[utoipa::path(post, path = "/v1/ports", request_body = Object,
    responses((status = 200, body = PortView), (status = 400, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn add(
    control: Daemon,
    Body(table): Body<Map<String, Json_>>,
) -> Answer<PortView> {
    working(&control, move |control| {
        let port = kinds::port_from_table(table).map_err(Refusal::bad)?;
        let name = port.name.clone();
        control.change(&format!("adding port {name}"), |state, _| {
            if state.port(&port.name).is_some() {
                let message = format!("there is a port {} already (EEXIST)", port.name);
                return Err(Refusal::conflict(message));
            }
            let peer = kinds::peer(&port).filter(|peer| state.port(peer).is_none());
            let peer = peer.map(|peer| peer_of(&port, peer));
            state.ports.push(port);
            state.ports.extend(peer);
            Ok(())
        })?;
        control.read(|inner| find(inner, &name))
    })
    .await
}

/// Changes the given keys of a port; `null` removes a key.
#[utoipa::path(patch, path = "/v1/ports/{name}", params(("name" = String, Path)),
    request_body = Object,
    responses((status = 200, body = PortView), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn set(
    control: Daemon,
    Part(name): Part<String>,
    Body(changes): Body<Map<String, Json_>>,
) -> Answer<PortView> {
    working(&control, move |control| {
        control.change(&format!("changing port {name}"), |state, _| {
            let place = state.ports.iter().position(|port| port.name == name);
            let place = place.ok_or_else(|| no_port(state, &name))?;
            state.ports[place] = changed(&state.ports[place], changes)?;
            Ok(())
        })?;
        control.read(|inner| find(inner, &name))
    })
    .await
}

/// Removes a port, with its peer and its links.
#[utoipa::path(delete, path = "/v1/ports/{name}", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn remove(control: Daemon, Part(name): Part<String>) -> Answer<Done> {
    working(&control, move |control| {
        control.change(&format!("removing port {name}"), |state, _| {
            let port = state.port(&name).ok_or_else(|| no_port(state, &name))?;
            let peer = kinds::peer(port).map(str::to_owned);
            let goes = |it: &str| it == name || Some(it) == peer.as_deref();
            check_unused(state, goes)?;
            check_no_sas(state, goes)?;
            state.attachments.retain(|attach| !goes(&attach.port));
            state.ports.iter_mut().for_each(|port| kinds::bond::release(port, &goes));
            state.ports.retain(|port| !goes(&port.name));
            Ok(Done {})
        })
    })
    .await
}

fn find(inner: &Inner, name: &str) -> Result<PortView, Refusal> {
    view::port_named(inner, name).ok_or_else(|| no_port(inner.wanted.state(), name))
}

/// The answer 404; or 409, if the port is wanted but not open.
pub(super) fn not_open(inner: &Inner, name: &str) -> Refusal {
    if inner.wanted.state().port(name).is_none() {
        return no_port(inner.wanted.state(), name);
    }
    let why = view::why_not_open(inner, name);
    Refusal::conflict(format!("port {name} is not open: {why} (ENETDOWN)"))
}

/// Refuses (409) the removal of a port or bridge that is the upper of a remaining port.
pub(super) fn check_unused(state: &State, goes: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let stays = |port: &&PortState| !goes(&port.name);
    let upper_of = |port: &PortState| {
        let upper = port.upper.as_deref().filter(|upper| goes(upper))?;
        Some(format!(
            "{upper} is the upper of port {}: give that another one first (EBUSY)",
            port.name
        ))
    };
    let used = state.ports.iter().filter(stays).find_map(upper_of);
    used.map_or(Ok(()), |message| Err(Refusal::conflict(message)))
}

/// Refuses (409) the removal of ports that have SAs or policies.
fn check_no_sas(state: &State, goes: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let sa = state.sas.iter().find(|sa| goes(&sa.port));
    let sa = sa.map(|sa| format!("port {} has the SA {}", sa.port, sa.name));
    let policy = state.policies.iter().find(|policy| goes(&policy.port));
    let policy = policy.map(|it| format!("port {} has the policy {}", it.port, it.name));
    match sa.or(policy) {
        Some(has) => {
            let message = format!("{has}: remove the port's SAs and policies first (EBUSY)");
            Err(Refusal::conflict(message))
        }
        None => Ok(()),
    }
}

/// Shows the kernel's feature flags of a port.
#[utoipa::path(get, path = "/v1/ports/{name}/features", params(("name" = String, Path)),
    responses((status = 200, body = FeaturesView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody)))]
pub(super) async fn features(control: Daemon, Part(name): Part<String>) -> Answer<FeaturesView> {
    let find =
        move |inner: &Inner| view::features(inner, &name).ok_or_else(|| not_open(inner, &name));
    blocking(&control, |control| control.read(find)).await
}

/// The other end of a pair of which only one end was requested.
fn peer_of(port: &PortState, name: &str) -> PortState {
    let mut options = Map::new();
    options.insert("peer".to_owned(), Json_::String(port.name.clone()));
    PortState {
        name: name.to_owned(),
        kind: port.kind.clone(),
        up: port.up,
        mtu: port.mtu,
        linearize: port.linearize,
        options,
        ..PortState::default()
    }
}

fn changed(port: &PortState, changes: Map<String, Json_>) -> Result<PortState, Refusal> {
    let bad = |message: String| Refusal::bad(message);
    for key in ["name", "kind"] {
        if changes.contains_key(key) {
            return Err(bad(format!("{key}: a port keeps it: add another port instead")));
        }
    }
    let json = serde_json::to_value(port).map_err(|error| bad(error.to_string()))?;
    let Json_::Object(mut table) = json else { return Err(bad("no port".to_owned())) };
    if let Some(Json_::Object(options)) = table.remove("options") {
        table.extend(options);
    }
    for (key, value) in changes {
        match value {
            Json_::Null => {
                table.remove(&key);
            }
            value => {
                table.insert(key, value);
            }
        }
    }
    table.retain(|_, value| !value.is_null());
    kinds::port_from_table(table).map_err(Refusal::bad)
}

/// The answer 404, with a suggestion.
pub(super) fn no_port(state: &State, name: &str) -> Refusal {
    let hint = suggest::among(name, state.ports.iter().map(|port| port.name.as_str()));
    Refusal::missing(format!("no port \"{name}\"{hint} (ENODEV)"))
}
