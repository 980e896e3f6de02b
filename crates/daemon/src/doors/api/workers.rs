//! `/v1/workers`, `/v1/flows` and `/v1/history`: what workers do, which way frames go, and what the
//! last minutes were like.

use serde::Deserialize;

use super::answer::{Answer, Asked, Daemon, blocking};
use crate::doors::flows;
use crate::doors::workers;
use crate::model::messages::{FlowView, HistoryView, WorkerView};

/// Workers: the queues they poll, how busy they are, and with which programs.
#[utoipa::path(get, path = "/v1/workers", responses((status = 200, body = Vec<WorkerView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<WorkerView>> {
    blocking(&control, |control| Ok(control.read(workers::all))).await
}

/// Which way frames go: where those arrived that each port sends.
#[utoipa::path(get, path = "/v1/flows", responses((status = 200, body = Vec<FlowView>)))]
pub(super) async fn flows(control: Daemon) -> Answer<Vec<FlowView>> {
    blocking(&control, |control| Ok(control.read(flows::all))).await
}

/// Rates of the last ten minutes, a point every five seconds; those after a time alone, if one is
/// given.
#[utoipa::path(get, path = "/v1/history", params(("since" = Option<f64>, Query)),
    responses((status = 200, body = HistoryView)))]
pub(super) async fn history(
    control: Daemon,
    Asked(HistoryQuery { since }): Asked<HistoryQuery>,
) -> Answer<HistoryView> {
    blocking(&control, move |control| Ok(control.read(|inner| inner.history.since(since)))).await
}

/// From when on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryQuery {
    /// Seconds since 1970.
    since: f64,
}
