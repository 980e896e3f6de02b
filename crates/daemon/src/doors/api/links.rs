//! `/v1/links`: programs on hooks, with the kernel's rules for attaching and replacing.

use super::answer::{Answer, Body, Daemon, Done, Part, blocking, working};
use super::error::ErrorBody;
use super::ports::no_port;
use super::versions::Versions;
use crate::control::Inner;
use crate::doors::view;
use crate::live::LiveLink;
use crate::live::files::ObjectFiles;
use crate::model::identity::free_key;
use crate::model::messages::{AttachMode, AttachedView, LinkRequest, LinkView, ProgramRequest};
use crate::model::refusal::Refusal;
use crate::model::state::{AttachState, ProgramState, State};

/// Lists all links by port, in the order in which the programs run.
#[utoipa::path(get, path = "/v1/links", responses((status = 200, body = Vec<LinkView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<LinkView>> {
    blocking(&control, |control| Ok(control.read(view::links))).await
}

/// Shows a link.
#[utoipa::path(get, path = "/v1/links/{id}", params(("id" = u32, Path)),
    responses((status = 200, body = LinkView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(id): Part<u32>) -> Answer<LinkView> {
    blocking(&control, move |control| {
        let found = control.read(view::links).into_iter().find(|link| link.id == id);
        found.ok_or_else(|| no_link(id))
    })
    .await
}

/// Attaches programs, all or none, between two bursts.
#[utoipa::path(post, path = "/v1/links", request_body = LinkRequest,
    responses((status = 200, body = AttachedView), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn attach(
    control: Daemon,
    Body(request): Body<LinkRequest>,
) -> Answer<AttachedView> {
    working(&control, move |control| {
        let what = format!("attaching to port {}", request.port);
        let objects = control.objects();
        let keys = control.change(&what, |state, inner| apply(state, inner, objects, &request))?;
        let is_new = |link: &LiveLink| {
            link.attach.port == request.port && keys.contains(&link.attach.program)
        };
        control.read(|inner| {
            let ids: Vec<u32> =
                inner.live.links.iter().filter(|link| is_new(link)).map(|link| link.id).collect();
            let links = view::links(inner).into_iter().filter(|link| ids.contains(&link.id));
            let warnings = inner.warnings.iter().filter(|it| it.port == request.port);
            let warnings = warnings.map(|it| it.text.clone()).collect();
            Ok(AttachedView { warnings, links: links.collect() })
        })
    })
    .await
}

/// Detaches a link. Its program is removed with the last link.
#[utoipa::path(delete, path = "/v1/links/{id}", params(("id" = u32, Path)),
    responses((status = 200), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn detach(control: Daemon, Part(id): Part<u32>) -> Answer<Done> {
    working(&control, move |control| {
        control.change(&format!("detaching link {id}"), |state, inner| {
            let links = &inner.live.links;
            let identity = links.iter().find(|link| link.id == id).map(|it| it.attach.identity());
            let identity = identity.ok_or_else(|| no_link(id))?;
            state.attachments.retain(|attach| attach.identity() != identity);
            Ok(Done {})
        })
    })
    .await
}

/// Changes the wanted state, and returns the keys of the programs.
fn apply(
    state: &mut State,
    inner: &Inner,
    objects: &ObjectFiles,
    request: &LinkRequest,
) -> Result<Vec<String>, Refusal> {
    if state.port(&request.port).is_none() {
        return Err(no_port(state, &request.port));
    }
    if request.programs.is_empty() {
        return Err(Refusal::bad("programs: at least one (EINVAL)"));
    }
    if request.expected.is_some() && request.mode != AttachMode::Replace {
        return Err(Refusal::bad("expected: only with mode \"replace\" (EINVAL)"));
    }
    let here = |attach: &AttachState| attach.port == request.port && attach.hook == request.hook;
    let links: Vec<&LiveLink> = inner.live.links.iter().filter(|it| here(&it.attach)).collect();
    let places = Versions::new(state, &links, objects, request).find()?;
    if request.mode == AttachMode::ReplaceAll {
        let stay: Vec<_> = places.iter().flatten().map(|link| link.attach.identity()).collect();
        state.attachments.retain(|it| !here(it) || stay.contains(&it.identity()));
    }
    let programs = request.programs.iter().zip(places);
    let keys = programs.map(|(program, place)| match place {
        Some(link) => exchange(state, link, request, program),
        None => add(state, request, program, None),
    });
    Ok(keys.collect())
}

/// Adds a program, which keeps the maps of the program `maps_of`, if given.
fn add(
    state: &mut State,
    request: &LinkRequest,
    program: &ProgramRequest,
    maps_of: Option<String>,
) -> String {
    let file = program.object.rsplit('/').next().unwrap_or_default();
    let base = match program.program.as_ref().or(program.section.as_ref()) {
        Some(name) => format!("{file}:{name}"),
        None => file.to_owned(),
    };
    let key = free_key(&base, &state.programs);
    state.programs.push(ProgramState { maps_of, ..request.program_state(program, key.clone()) });
    state.attachments.push(AttachState {
        program: key.clone(),
        port: request.port.clone(),
        hook: request.hook,
        prio: program.prio,
        actions: program.actions.clone(),
        ..AttachState::default()
    });
    key
}

/// Replaces the program of a link. If other links use the previous program, too, it stays, and both
/// programs share its maps.
fn exchange(
    state: &mut State,
    link: &LiveLink,
    request: &LinkRequest,
    program: &ProgramRequest,
) -> String {
    let key = link.attach.program.clone();
    let users = state.attachments.iter().filter(|attach| attach.program == key).count();
    let identity = link.attach.identity();
    if users > 1 {
        state.attachments.retain(|attach| attach.identity() != identity);
        return add(state, request, program, Some(key));
    }
    if let Some(slot) = state.programs.iter_mut().find(|it| it.key == key) {
        *slot = ProgramState {
            generation: slot.generation + 1,
            ..request.program_state(program, key.clone())
        };
    }
    if let Some(attach) = state.attachments.iter_mut().find(|it| it.identity() == identity) {
        attach.prio = program.prio.or(attach.prio);
        attach.actions = program.actions.clone().or(attach.actions.take());
    }
    key
}

fn no_link(id: u32) -> Refusal {
    Refusal::missing(format!("no link with id {id}: `towpath link show` lists them (ENOENT)"))
}
