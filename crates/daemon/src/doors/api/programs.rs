//! `/v1/programs` and `/v1/objects`

use axum::body::Bytes;
use serde::Deserialize;
use std::sync::Arc;
use towpath_objects::{ProgramObject, Run, Selector};

use super::answer::{Answer, Asked, Body, Daemon, Part, blocking, working};
use super::error::{ApiError, ErrorBody};
use super::maps::types;
use super::ports::not_open;
use crate::control::profile;
use crate::control::{Control, Inner};
use crate::doors::code::{CodeForm, CodeView};
use crate::doors::view;
use crate::model::globals::{hex, parse_hex};
use crate::model::messages::{
    LoadRequest, ProfileView, ProgramView, RunRequest, RunView, UploadView,
};
use crate::model::refusal::Refusal;

/// All loaded programs.
#[utoipa::path(get, path = "/v1/programs", responses((status = 200, body = Vec<ProgramView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<ProgramView>> {
    blocking(&control, |control| Ok(control.read(view::programs))).await
}

/// One program.
#[utoipa::path(get, path = "/v1/programs/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = ProgramView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(id): Part<u32>) -> Answer<ProgramView> {
    blocking(&control, move |control| find(control, id)).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeQuery {
    /// Which form; `xlated` when not given.
    form: Option<CodeForm>,
}

/// A program's code: linked instructions (`xlated`), below their C lines (`source`), what the
/// compiler makes of them (`xir`, `clif`, `llvm`), or the machine code that runs (`jited`).
#[utoipa::path(get, path = "/v1/programs/{id}/code",
    params(("id" = u32, Path), ("form" = Option<CodeForm>, Query)),
    responses((status = 200, body = CodeView), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody)))]
pub(super) async fn code(
    control: Daemon,
    Part(id): Part<u32>,
    Asked(query): Asked<CodeQuery>,
) -> Answer<CodeView> {
    blocking(&control, move |control| {
        let object = object(control, id)?;
        let program = object.program();
        // Outside of the lock: compiling takes its time.
        let code = CodeView::of(program, query.form.unwrap_or(CodeForm::Xlated));
        code.map_err(|error| Refusal::refused(format!("program {}: {error}", program.name())))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileQuery {
    /// For so many seconds, 0.05 to 10; 1 when not given.
    seconds: Option<f64>,
}

/// Where a program's time goes, by C line: samples of the workers, 2,000 a second of each. One at a
/// time.
#[utoipa::path(get, path = "/v1/programs/{id}/profile",
    params(("id" = u32, Path), ("seconds" = Option<f64>, Query)),
    responses((status = 200, body = ProfileView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn profile(
    control: Daemon,
    Part(id): Part<u32>,
    Asked(query): Asked<ProfileQuery>,
) -> Answer<ProfileView> {
    let seconds = query.seconds.unwrap_or(1.0);
    working(&control, move |control| {
        let object = object(control, id)?;
        profile::profile(control, object.program(), seconds)
    })
    .await
}

/// Runs a program on a packet, apart from traffic; or, `live`, has frames judged by it that then go
/// through the daemon's ports. Ends with EINTR after two seconds.
#[utoipa::path(post, path = "/v1/programs/{id}/run", params(("id" = u32, Path)),
    request_body = RunRequest,
    responses((status = 200, body = RunView), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn run(
    control: Daemon,
    Part(id): Part<u32>,
    Body(request): Body<RunRequest>,
) -> Answer<RunView> {
    working(&control, move |control| {
        let RunRequest { port, rx_queue, metadata, repeat, live, batch_size, data } = request;
        let data = parse_hex(&data).ok_or_else(|| Refusal::bad("data: expected bytes in hex"))?;
        if batch_size.is_some() && !live {
            return Err(Refusal::bad("batch_size: only of live frames (EINVAL)"));
        }
        let (mut session, ingress) = control.read(|inner| {
            let ingress = port.map_or(Ok(0), |port| match inner.live.ports.get(&port) {
                Some(port) => Ok(port.ifindex),
                None => Err(not_open(inner, &port)),
            });
            Ok::<_, Refusal>((inner.session(), ingress?))
        })?;
        session.program(&Selector::Id(id)).map_err(|_none| no_program(id))?;
        let live = live.then(|| batch_size.unwrap_or(0));
        let run = Run { data: &data, metadata, ingress, rx_queue, repeat, live };
        let done = session.run(&Selector::Id(id), &run);
        let done = done.map_err(|error| Refusal::refused(error.to_string()))?;
        Ok(RunView {
            retval: done.returned,
            data_out: hex(&done.data),
            metadata: done.metadata,
            linear_end: done.linear_end,
            duration_ns: done.duration.as_nanos() as u64,
        })
    })
    .await
}

fn find(control: &Control, id: u32) -> Result<ProgramView, Refusal> {
    let found = control.read(view::programs).into_iter().find(|program| program.id == id);
    found.ok_or_else(|| no_program(id))
}

/// A program by its id.
pub(super) fn object(control: &Control, id: u32) -> Result<Arc<ProgramObject>, Refusal> {
    let session = control.read(Inner::session);
    session.program(&Selector::Id(id)).map_err(|_none| no_program(id))
}

fn no_program(id: u32) -> Refusal {
    Refusal::missing(format!("no program with id {id}: `towpath prog show` lists them (ENOENT)"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UploadQuery {
    /// What the file is called in messages.
    name: Option<String>,
}

/// Loads a program and pins it, without a port to run on: into maps, or to be attached later.
#[utoipa::path(post, path = "/v1/programs", request_body = LoadRequest,
    responses((status = 200, body = ProgramView), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn load(control: Daemon, Body(request): Body<LoadRequest>) -> Answer<ProgramView> {
    working(&control, move |control| {
        let id = control.load_pinned(&request)?;
        find(control, id)
    })
    .await
}

/// A program's types (BTF), as they were loaded.
#[utoipa::path(get, path = "/v1/programs/{id}/btf", params(("id" = u32, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ErrorBody)))]
pub(super) async fn btf(control: Daemon, Part(id): Part<u32>) -> Result<Vec<u8>, ApiError> {
    let program = object(&control, id)?;
    Ok(types("program", program.name(), program.btf())?)
}

/// Sends an object file, to be named by its hash in what follows. What is not used is forgotten
/// after some more uploads.
#[utoipa::path(put, path = "/v1/objects", params(("name" = Option<String>, Query)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = UploadView), (status = 400, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn upload(
    control: Daemon,
    Asked(query): Asked<UploadQuery>,
    bytes: Bytes,
) -> Answer<UploadView> {
    working(&control, move |control| {
        let sha256 = control.upload(&bytes, query.name.as_deref().unwrap_or("object"))?;
        Ok(UploadView { sha256 })
    })
    .await
}
