//! `/v1/maps`: contents while traffic flows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Context;
use axum::response::IntoResponse;
use towpath_maps::Map;
use towpath_objects::{Selector, Session};

use super::error::{ApiError, ErrorBody};
use super::types::{EntryRequest, EntryView, MapView};
use super::{Answer, Body, Part, Shared, blocking, done};
use crate::control::Control;
use crate::{contents, view};

/// All maps, of programs and pinned.
#[utoipa::path(get, path = "/v1/maps", responses((status = 200, body = Vec<MapView>)))]
pub(super) async fn list(Context(control): Context<Shared>) -> Answer<Vec<MapView>> {
    blocking(&control, |control| Ok(control.read(view::maps))).await.map(Json)
}

/// One map.
#[utoipa::path(get, path = "/v1/maps/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = MapView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(
    Context(control): Context<Shared>,
    Part(id): Part<u32>,
) -> Answer<MapView> {
    blocking(&control, move |control| {
        let found = control.read(view::maps).into_iter().find(|map| map.id == id);
        found.ok_or_else(|| no_map(id))
    })
    .await
    .map(Json)
}

/// Everything in a map.
#[utoipa::path(get, path = "/v1/maps/{id}/entries", params(("id" = u32, Path)),
    responses((status = 200, body = Vec<EntryView>), (status = 404, body = ErrorBody)))]
pub(super) async fn entries(
    Context(control): Context<Shared>,
    Part(id): Part<u32>,
) -> Answer<Vec<EntryView>> {
    blocking(&control, move |control| Ok(contents::entries(&*find(control, id)?))).await.map(Json)
}

/// Looks an element up.
#[utoipa::path(post, path = "/v1/maps/{id}/lookup", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200, body = EntryView), (status = 404, body = ErrorBody)))]
pub(super) async fn lookup(
    Context(control): Context<Shared>,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<EntryView> {
    blocking(&control, move |control| contents::lookup(&*find(control, id)?, &request))
        .await
        .map(Json)
}

/// Puts an element.
#[utoipa::path(post, path = "/v1/maps/{id}/update", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn update(
    Context(control): Context<Shared>,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Result<impl IntoResponse, ApiError> {
    blocking(&control, move |control| contents::update(&*find(control, id)?, &request)).await?;
    Ok(done())
}

/// Deletes an element.
#[utoipa::path(post, path = "/v1/maps/{id}/delete", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn delete(
    Context(control): Context<Shared>,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Result<impl IntoResponse, ApiError> {
    blocking(&control, move |control| contents::delete(&*find(control, id)?, &request)).await?;
    Ok(done())
}

fn find(control: &Control, id: u32) -> Result<Arc<Map>, ApiError> {
    let session = control.read(|inner| Session::new(inner.live.registry(), 0));
    let found = session.map(&Selector::Id(id)).map_err(|_none| no_map(id))?;
    Ok(Arc::clone(found.map()))
}

fn no_map(id: u32) -> ApiError {
    ApiError::missing(format!("no map with id {id}: `towpath map show` lists them (ENOENT)"))
}
