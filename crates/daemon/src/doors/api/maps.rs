//! `/v1/maps`: maps and their elements.

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

/// Lists all maps: those of programs, and pinned ones.
#[utoipa::path(get, path = "/v1/maps", responses((status = 200, body = Vec<MapView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<MapView>> {
    blocking(&control, |control| Ok(control.read(view::maps))).await
}

/// Shows a map.
#[utoipa::path(get, path = "/v1/maps/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = MapView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(id): Part<u32>) -> Answer<MapView> {
    blocking(&control, move |control| find(control, id)).await
}

/// Creates a map, which is kept alive by a pin. It ends with the daemon: only maps of programs are
/// restored at the next start.
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

/// Parameters of a listing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EntriesQuery {
    /// Largest number of elements; all if not given.
    limit: Option<usize>,
    bytes: bool,
}

/// Lists the elements of a map, or the first `limit` of them; with `bytes` also in hex, and as
/// bpftool formats them.
///
/// The list is made while the client reads it, so each element is read at a different moment. If
/// the map goes before the end, the answer breaks off.
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

/// Returns a map's types (BTF) as they were loaded.
#[utoipa::path(get, path = "/v1/maps/{id}/btf", params(("id" = u32, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ErrorBody)))]
pub(super) async fn btf(control: Daemon, Part(id): Part<u32>) -> Result<Vec<u8>, ApiError> {
    Ok(with(&control, id, |_, map| types("map", map.name(), map.btf()))?)
}

/// Finds the key that follows a key, or the first key (`BPF_MAP_GET_NEXT_KEY`).
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

/// Removes and returns the next value of a queue or stack, or an element of a hash table
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

/// Looks up an element.
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

/// Stores an element. Values that are programs or maps are given by id, by name, or as an object
/// with one of `id`, `name`, `tag`, `pinned`.
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

/// The BTF of a map or program, if it has any.
pub(super) fn types(
    what: &str,
    name: &Name,
    types: Option<&Arc<BtfObject>>,
) -> Result<Vec<u8>, Refusal> {
    let types = types.map(|types| types.bytes().to_vec());
    types.ok_or_else(|| Refusal::missing(format!("{what} {name}: it has no types")))
}

/// Runs an operation on one element.
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

/// Runs an operation on a map in a new session.
fn with<T>(
    control: &Control,
    id: u32,
    work: impl FnOnce(&mut Session, &MapObject) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut session = control.read(Inner::session);
    let found = session.map(&Selector::Id(id)).map_err(|_none| no_map(id))?;
    work(&mut session, &found)
}

/// Stores or deletes an element, and saves the change.
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
