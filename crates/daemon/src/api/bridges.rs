//! `/v1/bridges`: what bridges have learnt.

use axum::Json;
use axum::extract::State as Context;

use super::error::{ApiError, ErrorBody};
use super::types::{BridgeView, FdbView};
use super::{Answer, Part, Shared, blocking};
use crate::control::Inner;
use crate::suggest;
use crate::view;

/// All bridges.
#[utoipa::path(get, path = "/v1/bridges", responses((status = 200, body = Vec<BridgeView>)))]
pub(super) async fn list(Context(control): Context<Shared>) -> Answer<Vec<BridgeView>> {
    blocking(&control, |control| Ok(control.read(bridges))).await.map(Json)
}

fn bridges(inner: &Inner) -> Vec<BridgeView> {
    inner.live.engine().read(|_, snapshot| {
        let view = |view: &towpath_engine::BridgeView| {
            let ports = view.members.iter().filter_map(|&id| snapshot.port(id));
            let name = view.bridge.name().to_owned();
            BridgeView {
                ageing: inner.live.bridges().get(&name).map_or(0, |bridge| bridge.ageing),
                name,
                ports: ports.map(|slot| slot.name.to_string()).collect(),
                addresses: view.bridge.entries().len(),
            }
        };
        snapshot.bridges.iter().map(view).collect()
    })
}

/// A bridge's addresses and the ports they are behind (FDB).
#[utoipa::path(get, path = "/v1/bridges/{name}/fdb", params(("name" = String, Path)),
    responses((status = 200, body = Vec<FdbView>), (status = 404, body = ErrorBody)))]
pub(super) async fn fdb(
    Context(control): Context<Shared>,
    Part(name): Part<String>,
) -> Answer<Vec<FdbView>> {
    blocking(&control, move |control| {
        control.read(|inner| entries(inner, &name)).ok_or_else(|| {
            let known: Vec<String> =
                control.read(|inner| inner.live.bridges().keys().cloned().collect());
            let hint = suggest::among(&name, known.iter().map(String::as_str));
            ApiError::missing(format!("no bridge \"{name}\"{hint} (ENODEV)"))
        })
    })
    .await
    .map(Json)
}

fn entries(inner: &Inner, name: &str) -> Option<Vec<FdbView>> {
    inner.live.engine().read(|_, snapshot| {
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
