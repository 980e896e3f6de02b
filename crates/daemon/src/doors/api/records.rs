//! `/v1/maps/{id}/records`: records that programs send through ring buffers and perf event arrays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use serde::Deserialize;
use towpath_bpf::btf::{Btf, Kind, TypeId};
use towpath_bpf::suggest;
use towpath_objects::{MapObject, ProgramObject, Selector, Session};

use super::answer::{Asked, Daemon, Part};
use super::error::{ApiError, ErrorBody};
use super::maps::no_map;
use super::sse;
use crate::control::Inner;
use crate::control::listen::{self, Claim, Readers, RecordsWanted};
use crate::model::messages::RecordView;
use crate::model::refusal::Refusal;

/// Parameters of a reader.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RecordsQuery {
    /// Name of the structure at the start of each record.
    r#type: Option<String>,
    /// The only CPU of a perf event array to be read.
    cpu: Option<u32>,
    /// Number of records after which the stream ends.
    count: Option<u64>,
}

/// Streams events of kind `record`, until the map goes: all records of a ring buffer, including
/// existing ones, or samples of a perf event array from now on.
///
/// `type` names a structure of the object file, by which `value` is formatted; `cpu` selects a slot
/// of a perf event array; `count` ends the stream after this number of records. A map has one
/// reader at a time (409 otherwise). If the reader is too slow, programs find the buffer full, as
/// in the kernel, and events of kind `lost` count the lost records.
#[utoipa::path(get, path = "/v1/maps/{id}/records",
    params(("id" = u32, Path), ("type" = Option<String>, Query), ("cpu" = Option<u32>, Query),
        ("count" = Option<u64>, Query)),
    responses((status = 200, content_type = "text/event-stream", body = RecordView),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody)))]
pub(super) async fn records(
    control: Daemon,
    Part(id): Part<u32>,
    Asked(query): Asked<RecordsQuery>,
) -> Result<Response, ApiError> {
    let session = control.read(Inner::session);
    let map = session.map(&Selector::Id(id)).map_err(|_none| no_map(id))?;
    let wanted = wanted(&session, &map, query)?;
    let claim = claim(&control.readers, id).await.ok_or_else(|| {
        let name = map.name();
        Refusal::conflict(format!(
            "map {name} (id {id}) is being read already, and each record goes to one reader: end \
             that one first (EBUSY)"
        ))
    })?;
    let started = listen::records(&map, wanted, claim);
    let chunks = started.map_err(|error| Refusal::failed(error.to_string()))?;
    Ok(sse::answer(futures_util::stream::unfold(chunks, async |mut chunks| {
        let bytes = chunks.recv().await?;
        Some((bytes, chunks))
    })))
}

/// Claims the right to read a map; waits briefly for a reader that is ending.
async fn claim(readers: &Readers, map: u32) -> Option<Claim> {
    let end = Instant::now() + PATIENCE;
    loop {
        let claim = readers.claim(map);
        if claim.is_some() || Instant::now() >= end {
            return claim;
        }
        tokio::time::sleep(PATIENCE / 20).await;
    }
}

fn wanted(
    session: &Session,
    map: &MapObject,
    query: RecordsQuery,
) -> Result<RecordsWanted, Refusal> {
    let RecordsQuery { r#type, cpu, count } = query;
    let name = map.name();
    let slots = match (map.map().ringbuf(), map.map().perf()) {
        (Some(_), _) => None,
        (None, Some(perf)) => Some(perf.slots()),
        (None, None) => {
            let kind = map.map().kind().name();
            return Err(Refusal::bad(format!(
                "map {name} is of kind {kind}: programs send records through ringbuf and \
                 perf_event_array (EINVAL)"
            )));
        }
    };
    match (cpu, slots) {
        (Some(_), None) => {
            let message = format!("cpu: map {name} is a ring buffer, one for all CPUs");
            return Err(Refusal::bad(message));
        }
        (Some(cpu), Some(slots)) if cpu >= slots => {
            let message = format!("cpu: {cpu}: map {name} has slots for CPUs 0 to {}", slots - 1);
            return Err(Refusal::bad(message));
        }
        _ => {}
    }
    if count == Some(0) {
        return Err(Refusal::bad("count: at least 1"));
    }
    let ty = r#type.map(|ty| find_type(session, map, &ty)).transpose()?;
    Ok(RecordsWanted { cpu, ty, count })
}

/// Finds a structure by name in the BTF of the map, or of a program that uses it.
fn find_type(
    session: &Session,
    map: &MapObject,
    name: &str,
) -> Result<(Arc<Btf>, TypeId), Refusal> {
    let name = name.strip_prefix("struct ").unwrap_or(name);
    let has_map =
        |program: &Arc<ProgramObject>| program.maps().iter().any(|it| it.id() == map.id());
    let programs = session.progs().into_iter().filter(has_map);
    let of_programs = programs.filter_map(|program| {
        let verified = program.program().verified()?;
        verified.linked().btf.clone()
    });
    let all: Vec<Arc<Btf>> = map.map().def().btf.iter().cloned().chain(of_programs).collect();
    let named = |btf: &Arc<Btf>| {
        let is_type = |kind: &Kind| matches!(kind, Kind::Composite { .. } | Kind::Typedef(_));
        btf.find_composite(name).or_else(|| btf.find(name, is_type))
    };
    if let Some(found) = all.iter().find_map(|btf| Some((Arc::clone(btf), named(btf)?))) {
        return Ok(found);
    }
    if all.is_empty() {
        let message = format!("type: {name}: the object has no types: compile it with -g");
        return Err(Refusal::bad(message));
    }
    let structs = all.iter().flat_map(|btf| {
        btf.iter()
            .filter(|(_, ty)| matches!(ty.kind, Kind::Composite { .. }))
            .map(|(id, _)| btf.name(id))
    });
    let structs: BTreeSet<&str> = structs.filter(|name| !name.is_empty()).collect();
    let hint = suggest::among(name, structs);
    Err(Refusal::missing(format!(
        "type: the object has no struct {name}{hint}. Types of local variables are not in it: a \
         global `struct {name} *unused;` puts one there"
    )))
}

/// Time within which a reader notices that it has ended.
const PATIENCE: Duration = Duration::from_millis(200);
