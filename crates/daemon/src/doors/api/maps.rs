//! `/v1/maps`: contents while traffic flows.

use std::sync::Arc;

use axum::response::Response;
use serde::Deserialize;
use towpath_objects::{BtfObject, MapObject, Name, Selector, Session};

use super::answer::{Answer, Asked, Body, Daemon, Done, Part, Shared, blocking};
use super::error::{ApiError, ErrorBody};
use super::{long, pins};
use crate::control::{Control, Inner};
use crate::doors::view;
use crate::live::elements::{self, Listing};
use crate::model::messages::{EntryRequest, EntryView, MapRequest, MapView, NextView};
use crate::model::refusal::Refusal;

/// All maps, of programs and pinned.
#[utoipa::path(get, path = "/v1/maps", responses((status = 200, body = Vec<MapView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<MapView>> {
    blocking(&control, |control| Ok(control.read(view::maps))).await
}

/// One map.
#[utoipa::path(get, path = "/v1/maps/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = MapView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(id): Part<u32>) -> Answer<MapView> {
    blocking(&control, move |control| find(control, id)).await
}

/// Creates a map, which a pin keeps alive. It ends with the daemon: what comes back when that is
/// started again are maps of programs.
#[utoipa::path(post, path = "/v1/maps", request_body = MapRequest,
    responses((status = 200, body = MapView), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn create(control: Daemon, Body(request): Body<MapRequest>) -> Answer<MapView> {
    blocking(&control, move |control| {
        let id = pins::create_map(control, &request)?;
        find(control, id)
    })
    .await
}

/// How elements are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EntriesQuery {
    /// Elements at most; all when not given.
    limit: Option<usize>,
    bytes: bool,
}

/// What is in a map: everything, or its first `limit` elements; with `bytes` also in hex, and as
/// bpftool formats it.
///
/// The list is made as it is read. Each element is as it was at some moment; when the map goes
/// before the end, the answer breaks off.
#[utoipa::path(get, path = "/v1/maps/{id}/entries",
    params(("id" = u32, Path), ("limit" = Option<usize>, Query), ("bytes" = Option<bool>, Query)),
    responses((status = 200, body = Vec<EntryView>), (status = 404, body = ErrorBody)))]
pub(super) async fn entries(
    control: Daemon,
    Part(id): Part<u32>,
    Asked(EntriesQuery { limit, bytes }): Asked<EntriesQuery>,
) -> Result<Response, ApiError> {
    let most = limit.unwrap_or(usize::MAX);
    let listing = move |control: &Shared| {
        let session = control.read(Inner::session);
        let found = session.map(&Selector::Id(id)).map_err(|_none| no_map(id))?;
        Listing::new(session, &found, most, bytes)
    };
    long::answer(&control, listing).await
}

/// A map's types (BTF), as they were loaded.
#[utoipa::path(get, path = "/v1/maps/{id}/btf", params(("id" = u32, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ErrorBody)))]
pub(super) async fn btf(control: Daemon, Part(id): Part<u32>) -> Result<Vec<u8>, ApiError> {
    Ok(with(&control, id, |_, map| types("map", map.name(), map.btf()))?)
}

/// The key behind a key, or the first one without a key (`BPF_MAP_GET_NEXT_KEY`).
#[utoipa::path(post, path = "/v1/maps/{id}/next", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200, body = NextView), (status = 404, body = ErrorBody)))]
pub(super) async fn next(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<NextView> {
    entry(control, id, request, elements::next).await
}

/// Takes the next value out of a queue or stack, or an element out of a hash table
/// (`BPF_MAP_LOOKUP_AND_DELETE_ELEM`).
#[utoipa::path(post, path = "/v1/maps/{id}/pop", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200, body = EntryView), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn pop(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<EntryView> {
    entry(control, id, request, elements::pop).await
}

/// Looks an element up.
#[utoipa::path(post, path = "/v1/maps/{id}/lookup", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200, body = EntryView), (status = 404, body = ErrorBody)))]
pub(super) async fn lookup(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<EntryView> {
    entry(control, id, request, elements::lookup).await
}

/// Puts an element. Programs and maps as values are named by id, by name, or by an object of one of
/// `id`, `name`, `tag`, `pinned`.
#[utoipa::path(post, path = "/v1/maps/{id}/update", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn update(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<Done> {
    blocking(&control, move |control| edit(control, id, &request, elements::update)).await
}

/// Deletes an element.
#[utoipa::path(post, path = "/v1/maps/{id}/delete", params(("id" = u32, Path)),
    request_body = EntryRequest,
    responses((status = 200), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn delete(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<EntryRequest>,
) -> Answer<Done> {
    blocking(&control, move |control| {
        let request = EntryRequest { value: None, ..request };
        edit(control, id, &request, elements::delete)
    })
    .await
}

fn find(control: &Control, id: u32) -> Result<MapView, Refusal> {
    let found = control.read(view::maps).into_iter().find(|map| map.id == id);
    found.ok_or_else(|| no_map(id))
}

/// The types of a map or program, if it has some.
pub(super) fn types(
    what: &str,
    name: &Name,
    types: Option<&Arc<BtfObject>>,
) -> Result<Vec<u8>, Refusal> {
    let types = types.map(|types| types.bytes().to_vec());
    types.ok_or_else(|| Refusal::missing(format!("{what} {name}: it has no types")))
}

/// What is asked about one element.
async fn entry<T: Send + 'static>(
    control: Daemon,
    id: u32,
    request: EntryRequest,
    work: fn(&mut Session, &MapObject, &EntryRequest) -> Result<T, Refusal>,
) -> Answer<T> {
    blocking(&control, move |control| {
        with(control, id, |session, map| work(session, map, &request))
    })
    .await
}

/// Something done with a map, as somebody who looks at it and changes it.
fn with<T>(
    control: &Control,
    id: u32,
    work: impl FnOnce(&mut Session, &MapObject) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut session = control.read(Inner::session);
    let found = session.map(&Selector::Id(id)).map_err(|_none| no_map(id))?;
    work(&mut session, &found)
}

/// Stores or deletes an element, and saves that.
fn edit(
    control: &Control,
    id: u32,
    request: &EntryRequest,
    work: impl FnOnce(&mut Session, &MapObject, &EntryRequest) -> Result<(), Refusal>,
) -> Result<Done, Refusal> {
    with(control, id, |session, map| {
        let port = |ifindex: u32| control.read(|inner| view::find_port(inner, ifindex));
        let change = elements::lasting(session, map, request, port);
        control.keeper.edit(map, change, || work(session, map, request)).map(|()| Done {})
    })
}

pub(super) fn no_map(id: u32) -> Refusal {
    Refusal::missing(format!("no map with id {id}: `towpath map show` lists them (ENOENT)"))
}
