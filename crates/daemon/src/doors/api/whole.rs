//! `/v1/status`, `/v1/state`, `/v1/reload`: the state as a whole.

use axum::extract::Query;
use serde::Deserialize;

use super::answer::{Answer, Body, Daemon, blocking, working};
use super::error::ErrorBody;
use crate::doors::view;
use crate::live::Report;
use crate::model::messages::{ReportView, StatusView};
use crate::model::state::State;

/// Shows ports, bridges, links, and failures.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusView)))]
pub(super) async fn status(control: Daemon) -> Answer<StatusView> {
    blocking(&control, |control| {
        Ok(StatusView { page: control.page(), ..control.read(view::status) })
    })
    .await
}

/// Returns the wanted state with the object files of its programs, for a `PUT` here or elsewhere.
#[utoipa::path(get, path = "/v1/state", responses((status = 200, body = State)))]
pub(super) async fn state(control: Daemon) -> Answer<State> {
    blocking(&control, |control| Ok(control.whole_state())).await
}

/// Replaces the wanted state. Object files that neither the document nor the daemon contains are
/// read from their paths; if one is missing, nothing changes. Other failures are reported and
/// retried.
#[utoipa::path(put, path = "/v1/state", request_body = State,
    responses((status = 200, body = ReportView), (status = 400, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn replace(control: Daemon, Body(wanted): Body<State>) -> Answer<ReportView> {
    working(&control, |control| control.replace(wanted).map(told)).await
}

/// Reads the configuration file again and applies its changes.
#[utoipa::path(post, path = "/v1/reload", params(("allow_empty" = Option<bool>, Query)),
    responses((status = 200, body = ReportView), (status = 400, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn reload(
    control: Daemon,
    Query(ReloadQuery { allow_empty }): Query<ReloadQuery>,
) -> Answer<ReportView> {
    working(&control, move |control| control.reload(allow_empty).map(told)).await
}

/// Parameters of a reload.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReloadQuery {
    /// Allows a configuration without ports, although there are ports.
    allow_empty: bool,
}

fn told(report: Report) -> ReportView {
    let Report { changes, failures, restart } = report;
    ReportView { changes, failures, restart }
}
