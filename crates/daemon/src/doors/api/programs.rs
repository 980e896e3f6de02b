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

/// Lists all loaded programs.
#[utoipa::path(get, path = "/v1/programs", responses((status = 200, body = Vec<ProgramView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<ProgramView>> {
    blocking(&control, |control| Ok(control.read(view::programs))).await
}

/// Shows a program.
#[utoipa::path(get, path = "/v1/programs/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = ProgramView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(id): Part<u32>) -> Answer<ProgramView> {
    blocking(&control, move |control| find(control, id)).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeQuery {
    /// The form of the code; defaults to `xlated`.
    form: Option<CodeForm>,
}

/// Shows a program's code: linked instructions (`xlated`), also with their C lines (`source`), the
/// compiler's representations (`xir`, `clif`, `llvm`), or machine code (`jited`).
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
        // Outside of the lock, since compiling may take long.
        let code = CodeView::of(program, query.form.unwrap_or(CodeForm::Xlated));
        code.map_err(|error| Refusal::refused(format!("program {}: {error}", program.name())))
    })
    .await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileQuery {
    /// Duration in seconds, 0.05 to 10; defaults to 1.
    seconds: Option<f64>,
}

/// Profiles a program by C line, with up to 2,000 samples of each worker per second. Only one
/// profile is taken at a time.
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

/// Runs a program on a packet, apart from traffic; with `live`, the daemon's ports then handle the
/// frames according to the verdicts. Ends with EINTR after two seconds. With `context`, calls a
/// program in section `syscall`.
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
        if let Some(context) = &request.context {
            return call(control, id, context);
        }
        let RunRequest { port, rx_queue, metadata, repeat, live, batch_size, data, .. } = request;
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
            context: None,
        })
    })
    .await
}

/// Calls a program in section `syscall`.
fn call(control: &Control, id: u32, context: &str) -> Result<RunView, Refusal> {
    let context =
        parse_hex(context).ok_or_else(|| Refusal::bad("context: expected bytes in hex"))?;
    let mut session = control.read(Inner::session);
    session.program(&Selector::Id(id)).map_err(|_none| no_program(id))?;
    let called = session.call(&Selector::Id(id), &context);
    let (retval, context) = called.map_err(|error| Refusal::refused(error.to_string()))?;
    Ok(RunView {
        retval,
        data_out: String::new(),
        metadata: 0,
        linear_end: 0,
        duration_ns: 0,
        context: Some(hex(&context)),
    })
}

fn find(control: &Control, id: u32) -> Result<ProgramView, Refusal> {
    let found = control.read(view::programs).into_iter().find(|program| program.id == id);
    found.ok_or_else(|| no_program(id))
}

/// Finds a program by its id.
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
    /// Name of the file for messages.
    name: Option<String>,
}

/// Loads and pins a program without attaching it, for use in maps or for later.
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

/// Returns a program's types (BTF) as they were loaded.
#[utoipa::path(get, path = "/v1/programs/{id}/btf", params(("id" = u32, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 404, body = ErrorBody)))]
pub(super) async fn btf(control: Daemon, Part(id): Part<u32>) -> Result<Vec<u8>, ApiError> {
    let program = object(&control, id)?;
    Ok(types("program", program.name(), program.btf())?)
}

/// Uploads an object file, to which later requests refer by its hash. Unused files are dropped
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
