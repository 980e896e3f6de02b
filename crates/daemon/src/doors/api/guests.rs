//! `/v1/guests`: virtual machines with programs in the host.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::response::IntoResponse;
use towpath_bpf::suggest;
use towpath_guest::Guest;

use super::answer::{Answer, Daemon, Done, Part, blocking, working};
use super::error::{ApiError, ErrorBody};
use crate::control::Control;
use crate::doors::guests::{self, view};
use crate::model::messages::GuestView;
use crate::model::refusal::Refusal;

/// Lists guests of all ports that offer offload, with their programs.
#[utoipa::path(get, path = "/v1/guests", responses((status = 200, body = Vec<GuestView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<GuestView>> {
    blocking(&control, |control| Ok(control.read(guests::all))).await
}

/// Shows a guest, by its port.
#[utoipa::path(get, path = "/v1/guests/{port}", params(("port" = String, Path)),
    responses((status = 200, body = GuestView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(port): Part<String>) -> Answer<GuestView> {
    blocking(&control, move |control| Ok(view(&port, &*find(control, &port)?))).await
}

/// Saves all objects of a guest, for a `PUT` to another daemon. The guest's programs keep running.
#[utoipa::path(get, path = "/v1/guests/{port}/saved", params(("port" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, body = ErrorBody)))]
pub(super) async fn save(
    control: Daemon,
    Part(port): Part<String>,
) -> Result<impl IntoResponse, ApiError> {
    let Json(saved) = working(&control, move |control| Ok(find(control, &port)?.save())).await?;
    Ok(([("content-type", "application/octet-stream")], saved))
}

/// Restores saved objects into a guest that has none.
#[utoipa::path(put, path = "/v1/guests/{port}/saved", params(("port" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = GuestView), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn restore(
    control: Daemon,
    Part(port): Part<String>,
    saved: Bytes,
) -> Answer<GuestView> {
    working(&control, move |control| {
        let guest = find(control, &port)?;
        guest.restore(&saved).map_err(|error| Refusal::refused(error.to_string()))?;
        Ok(view(&port, &guest))
    })
    .await
}

/// Removes all objects of a guest.
#[utoipa::path(delete, path = "/v1/guests/{port}", params(("port" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody)))]
pub(super) async fn reset(control: Daemon, Part(port): Part<String>) -> Answer<Done> {
    working(&control, move |control| {
        find(control, &port)?.reset("the host took them away");
        Ok(Done {})
    })
    .await
}

fn find(control: &Control, port: &str) -> Result<Arc<Guest>, Refusal> {
    control.read(|inner| {
        let guests = &inner.live.guests;
        guests.get(port).cloned().ok_or_else(|| {
            let hint = suggest::among(port, guests.keys().map(String::as_str));
            Refusal::missing(format!("no port \"{port}\" offers a guest offload{hint} (ENODEV)"))
        })
    })
}
