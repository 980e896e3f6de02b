//! `/v1/bridges`: bridges, and the addresses that they have learnt.

use serde::Deserialize;
use towpath_bpf::suggest;
use utoipa::ToSchema;

use super::answer::{Answer, Body, Daemon, Done, Part, blocking, working};
use super::error::ErrorBody;
use super::ports::check_unused;
use crate::control::Inner;
use crate::doors::view;
use crate::model::messages::{BridgeView, FdbView};
use crate::model::refusal::Refusal;
use crate::model::state::{BridgeState, State};
use crate::model::thing::Thing;

/// Lists all bridges.
#[utoipa::path(get, path = "/v1/bridges", responses((status = 200, body = Vec<BridgeView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<BridgeView>> {
    blocking(&control, |control| Ok(control.read(bridges))).await
}

fn bridges(inner: &Inner) -> Vec<BridgeView> {
    inner.live.engine.read(|_, snapshot| {
        let view = |view: &towpath_engine::BridgeView| {
            let ports = view.members.iter().filter_map(|&id| snapshot.port(id));
            let name = view.bridge.name().to_owned();
            BridgeView {
                ageing: view.bridge.ageing().as_secs(),
                wanted_by: inner.wanted.authors(&Thing::Bridge(name.clone())),
                name,
                ports: ports.map(|slot| slot.name.to_string()).collect(),
                addresses: view.bridge.entries().len(),
            }
        };
        snapshot.bridges.iter().map(view).collect()
    })
}

/// Adds a bridge. Ports join it when it becomes their `upper`.
#[utoipa::path(post, path = "/v1/bridges", request_body = BridgeState,
    responses((status = 200, body = BridgeView), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn add(control: Daemon, Body(bridge): Body<BridgeState>) -> Answer<BridgeView> {
    working(&control, move |control| {
        let name = bridge.name.clone();
        control.change(&format!("adding bridge {name}"), |state, _| {
            if state.bridges.iter().any(|known| known.name == bridge.name) {
                let message = format!("there is a bridge {} already (EEXIST)", bridge.name);
                return Err(Refusal::conflict(message));
            }
            state.bridges.push(bridge);
            Ok(())
        })?;
        control.read(|inner| find(inner, &name))
    })
    .await
}

/// The changeable properties of a bridge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BridgeChange {
    /// Seconds without traffic after which an address is forgotten.
    ageing: u64,
}

/// Changes a bridge, which then forgets all learnt addresses.
#[utoipa::path(patch, path = "/v1/bridges/{name}", params(("name" = String, Path)),
    request_body = BridgeChange,
    responses((status = 200, body = BridgeView), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn set(
    control: Daemon,
    Part(name): Part<String>,
    Body(change): Body<BridgeChange>,
) -> Answer<BridgeView> {
    working(&control, move |control| {
        control.change(&format!("changing bridge {name}"), |state, _| {
            let missing = no_bridge(state, &name);
            let bridge = state.bridges.iter_mut().find(|bridge| bridge.name == name);
            bridge.ok_or(missing)?.ageing = change.ageing;
            Ok(())
        })?;
        control.read(|inner| find(inner, &name))
    })
    .await
}

/// Removes a bridge without ports.
#[utoipa::path(delete, path = "/v1/bridges/{name}", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn remove(control: Daemon, Part(name): Part<String>) -> Answer<Done> {
    working(&control, move |control| {
        control.change(&format!("removing bridge {name}"), |state, _| {
            if !state.bridges.iter().any(|bridge| bridge.name == name) {
                return Err(no_bridge(state, &name));
            }
            check_unused(state, |it| it == name)?;
            state.bridges.retain(|bridge| bridge.name != name);
            Ok(Done {})
        })
    })
    .await
}

/// Lists a bridge's addresses with their ports (FDB).
#[utoipa::path(get, path = "/v1/bridges/{name}/fdb", params(("name" = String, Path)),
    responses((status = 200, body = Vec<FdbView>), (status = 404, body = ErrorBody)))]
pub(super) async fn fdb(control: Daemon, Part(name): Part<String>) -> Answer<Vec<FdbView>> {
    blocking(&control, move |control| {
        control.read(|inner| {
            entries(inner, &name).ok_or_else(|| no_bridge(inner.wanted.state(), &name))
        })
    })
    .await
}

fn entries(inner: &Inner, name: &str) -> Option<Vec<FdbView>> {
    inner.live.engine.read(|_, snapshot| {
        let view = snapshot.bridges.iter().find(|view| view.bridge.name() == name)?;
        let entries = view.bridge.entries().into_iter();
        let shown = entries.map(|entry| FdbView {
            vlan: entry.vlan,
            mac: view::mac_text(entry.mac),
            port: snapshot.port(entry.port).map_or_else(String::new, |slot| slot.name.to_string()),
            age: entry.age.map(|age| age.as_secs_f64()),
        });
        Some(shown.collect())
    })
}

fn find(inner: &Inner, name: &str) -> Result<BridgeView, Refusal> {
    let found = bridges(inner).into_iter().find(|bridge| bridge.name == name);
    found.ok_or_else(|| no_bridge(inner.wanted.state(), name))
}

/// The answer 404, with a suggestion.
fn no_bridge(state: &State, name: &str) -> Refusal {
    let known = state.bridges.iter().map(|bridge| bridge.name.as_str());
    let hint = suggest::among(name, known);
    Refusal::missing(format!("no bridge \"{name}\"{hint} (ENODEV)"))
}
