//! `/v1/workers`, `/v1/flows` and `/v1/history`: load of workers, traffic between ports, and rates
//! of the last minutes.

use serde::Deserialize;

use super::answer::{Answer, Asked, Daemon, blocking};
use crate::doors::flows;
use crate::doors::workers;
use crate::model::messages::{FlowView, HistoryView, WorkerView};

/// Lists workers: the queues they poll, their load, and their programs.
#[utoipa::path(get, path = "/v1/workers", responses((status = 200, body = Vec<WorkerView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<WorkerView>> {
    blocking(&control, |control| Ok(control.read(workers::all))).await
}

/// Lists traffic between ports: for each sending port, the ports that received the frames.
#[utoipa::path(get, path = "/v1/flows", responses((status = 200, body = Vec<FlowView>)))]
pub(super) async fn flows(control: Daemon) -> Answer<Vec<FlowView>> {
    blocking(&control, |control| Ok(control.read(flows::all))).await
}

/// Shows rates of the last ten minutes, with a point every five seconds; with `since`, only the
/// points after that time.
#[utoipa::path(get, path = "/v1/history", params(("since" = Option<f64>, Query)),
    responses((status = 200, body = HistoryView)))]
pub(super) async fn history(
    control: Daemon,
    Asked(HistoryQuery { since }): Asked<HistoryQuery>,
) -> Answer<HistoryView> {
    blocking(&control, move |control| Ok(control.read(|inner| inner.history.since(since)))).await
}

/// Parameters of the history.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryQuery {
    /// Time in seconds since 1970.
    since: f64,
}
