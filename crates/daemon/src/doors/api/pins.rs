//! `/v1/pins`: names that keep programs, maps and links alive, in the daemon's own bpffs.

use serde::Deserialize;
use towpath_bpf::map::MapType;
use towpath_bpf::suggest;
use towpath_objects::{MapUse, Object, Selector, Session};

use super::answer::{Answer, Asked, Body, Daemon, Done, blocking};
use super::error::ErrorBody;
use crate::control::Control;
use crate::live::pins::{pin_at, refused};
use crate::model::messages::{MapRequest, PinRequest, PinView};
use crate::model::reference::absolute;
use crate::model::refusal::Refusal;

/// Lists all pins by path.
#[utoipa::path(get, path = "/v1/pins", responses((status = 200, body = Vec<PinView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<PinView>> {
    blocking(&control, |control| {
        let pins = control.read(|inner| inner.live.registry.pins());
        Ok(pins.into_iter().filter_map(|(path, object)| view(path, &object)).collect())
    })
    .await
}

/// Pins an object, which then lives at least as long as its pin. Directories of the path are
/// created.
#[utoipa::path(post, path = "/v1/pins", request_body = PinRequest,
    responses((status = 200, body = PinView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn pin(control: Daemon, Body(request): Body<PinRequest>) -> Answer<PinView> {
    blocking(&control, move |control| {
        let PinRequest { kind, id, path } = request;
        let registry = control.read(|inner| inner.live.registry.clone());
        let session = Session::new(&registry, 0);
        let selector = Selector::Id(id);
        let object = match kind.as_str() {
            "prog" => session.program(&selector).map(Object::Program),
            "map" => session.map(&selector).map(|map| Object::Map(MapUse::new(map))),
            "link" => session.link(&selector).map(Object::Link),
            _ => {
                let message = format!("kind: {kind:?}: expected prog, map or link");
                return Err(Refusal::bad(message));
            }
        };
        let object = object.map_err(|error| Refusal::missing(format!("{error} (ENOENT)")))?;
        let path = absolute(&path);
        pin_at(&registry, &path, object)?;
        let saved = control.save_pins(&format!("pinning {path}"));
        if saved.is_err() {
            // The pin was added just above.
            let _gone = registry.unlink(&path);
        }
        saved?;
        Ok(PinView { path, kind, id })
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinQuery {
    /// Path of the pin.
    path: String,
}

/// Removes a pin. The object is freed if it has no other users.
#[utoipa::path(delete, path = "/v1/pins", params(("path" = String, Query)),
    responses((status = 200), (status = 404, body = ErrorBody)))]
pub(super) async fn unpin(control: Daemon, Asked(query): Asked<PinQuery>) -> Answer<Done> {
    blocking(&control, move |control| {
        let registry = control.read(|inner| inner.live.registry.clone());
        let path = absolute(&query.path);
        registry.unlink(&path).map_err(|errno| refused(&path, errno))?;
        control.save_pins(&format!("unpinning {path}")).map(|()| Done {})
    })
    .await
}

fn view(path: String, object: &Object) -> Option<PinView> {
    let (kind, id) = match object {
        Object::Program(program) => ("prog", program.id()),
        Object::Map(map) => ("map", map.object().id()),
        Object::Link(link) => ("link", link.id()),
        Object::Btf(_) | Object::Stats => return None,
    };
    Some(PinView { path, kind: kind.to_owned(), id })
}

/// Creates and pins a map; returns its id.
pub(super) fn create_map(control: &Control, request: &MapRequest) -> Result<u32, Refusal> {
    let MapRequest { r#type, name, key, value, entries, flags, path } = request;
    if path.is_empty() {
        return Err(Refusal::bad("path: it is missing: a map lives as long as its pin"));
    }
    if MapType::from_name(r#type).is_none() {
        let known = MapType::ALL.iter().map(|kind| kind.name());
        let hint = suggest::among(r#type, known);
        return Err(Refusal::bad(format!("type: no kind of map {type:?}{hint} (EINVAL)")));
    }
    let registry = control.read(|inner| inner.live.registry.clone());
    // The session owns the map until it is pinned.
    let mut session = Session::new(&registry, 0);
    let made = session.create_map(name, r#type, *key, *value, *entries, *flags);
    let id = made.map_err(|error| Refusal::refused(format!("map {name}: {error}")))?;
    let path = absolute(path);
    let map =
        session.map(&Selector::Id(id)).map_err(|error| Refusal::missing(error.to_string()))?;
    let object = Object::Map(MapUse::new(map));
    pin_at(&registry, &path, object)?;
    Ok(id)
}
