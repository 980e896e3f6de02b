//! Access to map elements through their types, from any thread while programs run.

mod listing;
mod view;

use serde_json::{Value as Json, json};
use towpath_bpf::Errno;
use towpath_bpf::map::{Keys, Values};
use towpath_bpf::suggest;
use towpath_maps::mapfile::{self, Stored};
use towpath_maps::typed;
use towpath_maps::{Map, Value, flags, number};
use towpath_objects::{MapObject, Reference, Selector, Session};

use crate::model::globals::hex;
use crate::model::messages::{EntryRequest, EntryView, NextView};
use crate::model::reference;
use crate::model::refusal::Refusal;
use crate::model::saved::Change;

pub(crate) use listing::Listing;
use view::{bytes_of_entry, element, entry, refused, said};

/// Reads an element; for queues and stacks, the next one.
pub(crate) fn lookup(
    session: &mut Session,
    map: &MapObject,
    request: &EntryRequest,
) -> Result<EntryView, Refusal> {
    let (object, map) = (map, map.map());
    let key = key_of(map, request)?;
    let value = session.lookup(&Selector::Id(object.id()), &key);
    let value = match map.kind().values() {
        // The map has more details than the value, and inner maps of an object file have no id.
        Values::Device | Values::Cpu | Values::Map => value.ok(),
        _ => Some(value.map_err(|error| refused(map, &error))?),
    };
    let found = element(map, &key, value.as_ref(), request.bytes);
    found.ok_or_else(|| said(map, Errno::ENOENT))
}

/// The key that follows the given one, or the first key.
pub(crate) fn next(
    session: &mut Session,
    map: &MapObject,
    request: &EntryRequest,
) -> Result<NextView, Refusal> {
    let after = match request.key.is_null() {
        true => None,
        false => Some(key_of(map.map(), request)?),
    };
    let next = session.next_key(&Selector::Id(map.id()), after.as_deref());
    let next = next.map_err(|error| refused(map.map(), &error))?;
    Ok(NextView {
        key: typed_key(map.map(), &next),
        bytes: hex(&next),
        after: after.as_deref().map(hex),
    })
}

/// Takes the next value out of a queue or stack.
pub(crate) fn pop(
    session: &mut Session,
    map: &MapObject,
    request: &EntryRequest,
) -> Result<EntryView, Refusal> {
    let key = key_of(map.map(), request)?;
    let taken = session.lookup_and_delete(&Selector::Id(map.id()), &key);
    let taken = taken.map_err(|error| refused(map.map(), &error))?;
    let mut view = entry(map.map().def(), &key, &taken);
    view.bytes = request.bytes.then(|| bytes_of_entry(map.map().def(), &key, &taken));
    Ok(view)
}

/// Stores an element. Kinds without keys push.
pub(crate) fn update(
    session: &mut Session,
    map: &MapObject,
    request: &EntryRequest,
) -> Result<(), Refusal> {
    let (object, map) = (map, map.map());
    let flags = match request.flags.as_deref() {
        None | Some("any") => flags::BPF_ANY,
        Some("noexist") => flags::BPF_NOEXIST,
        Some("exist") => flags::BPF_EXIST,
        Some(other) => {
            let hint = suggest::among(other, ["any", "noexist", "exist"]);
            return Err(Refusal::bad(format!("flags: no flag \"{other}\"{hint}")));
        }
    };
    let Some(value) = &request.value else { return Err(Refusal::bad("value: it is missing")) };
    if let Some(reference) = reference::of(map.kind(), value).map_err(Refusal::bad)? {
        let key = key_of(map, request)?;
        let stored = session.refer(&Selector::Id(object.id()), &key, &reference, flags);
        return stored.map_err(|error| refused(map, &error));
    }
    let (key, value) = bytes_of(map, request)?;
    let stored = match map.kind().values() {
        // Sockets are named by number here, not by a descriptor.
        Values::Socket => session.set_socket(&Selector::Id(object.id()), &key, &value, flags),
        _ => session.update(&Selector::Id(object.id()), &key, &value, flags),
    };
    stored.map_err(|error| refused(map, &error))
}

/// Deletes an element.
pub(crate) fn delete(
    session: &mut Session,
    map: &MapObject,
    request: &EntryRequest,
) -> Result<(), Refusal> {
    let (object, map) = (map, map.map());
    let key = key_of(map, request)?;
    let deleted = session.delete(&Selector::Id(object.id()), &key);
    deleted.map_err(|error| refused(map, &error))
}

/// The form in which a change is saved. Programs, maps and ports are named, since ids and ifindexes
/// change between starts.
pub(crate) fn lasting(
    session: &Session,
    map: &MapObject,
    request: &EntryRequest,
    port: impl Fn(u32) -> Option<String>,
) -> Change {
    let EntryRequest { key, value, .. } = request;
    let (key, mut value) = (key.clone(), value.clone());
    let kind = map.map().kind();
    let reference = value.as_ref().and_then(|value| reference::of(kind, value).ok().flatten());
    let program = |selector: &Selector| {
        let found = session.program(selector).ok()?;
        Some(json!({ "name": found.name().to_string() }))
    };
    let mut at = None;
    match reference {
        Some(Reference::Program(which @ (Selector::Id(_) | Selector::Tag(_)))) => {
            value = program(&which).or(value);
        }
        Some(Reference::Map(which @ (Selector::Id(_) | Selector::Tag(_)))) => {
            let found = session.map(&which).ok();
            value = found.map(|map| json!({ "name": map.name().to_string() })).or(value);
        }
        Some(Reference::Target { number, program: which }) => {
            let is_device = kind.values() == Values::Device;
            at = if is_device { port(number) } else { None };
            let mut target = json!({ if is_device { "ifindex" } else { "qsize" }: number });
            if let Some(name) = which.as_ref().and_then(program) {
                target["prog"] = name;
            }
            value = Some(target);
        }
        _ => {}
    }
    Change { key, value, port: at }
}

/// The bytes of a key; empty for kinds without keys.
fn key_of(map: &Map, request: &EntryRequest) -> Result<Vec<u8>, Refusal> {
    parse(map, &request.key, None).map(|(key, _)| key)
}

fn bytes_of(map: &Map, request: &EntryRequest) -> Result<(Vec<u8>, Value), Refusal> {
    let (key, stored) = parse(map, &request.key, request.value.as_ref())?;
    let value = match stored {
        Some(Stored::Value(value)) => value,
        // The number of a socket.
        Some(Stored::Target(number, None)) => Value::One(number.to_ne_bytes().to_vec()),
        _ => {
            let kind = map.kind().name();
            let message = format!("value: a map of kind {kind} takes no such value here");
            return Err(Refusal::bad(message));
        }
    };
    Ok((key, value))
}

fn parse(
    map: &Map,
    key: &Json,
    value: Option<&Json>,
) -> Result<(Vec<u8>, Option<Stored>), Refusal> {
    if key.is_null() && map.kind().keys() != Keys::None {
        return Err(Refusal::bad("key: it is missing"));
    }
    let parsed = mapfile::parse_element(map.def(), key, value, map.cpus());
    parsed.map(|(key, stored)| (key.unwrap_or_default(), stored)).map_err(Refusal::bad)
}

/// A key as JSON; in maps of targets, the key as a number.
fn typed_key(map: &Map, key: &[u8]) -> Json {
    match map.kind().values() {
        Values::Device | Values::Cpu | Values::Socket | Values::Program => number(key).into(),
        _ => typed::key_to_json(map.def(), key),
    }
}
