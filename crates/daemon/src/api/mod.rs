//! The API: REST over a unix socket, described by `/openapi.json`.

mod bonds;
mod bridges;
mod dump;
pub mod error;
mod events;
mod guests;
pub(crate) mod links;
pub(crate) mod load;
mod long;
mod maps;
pub(crate) mod pins;
mod ports;
mod programs;
mod records;
mod sse;
mod stats;
mod trace;
pub mod types;
mod versions;
mod whole;
mod workers;
mod xsk;

use std::sync::Arc;

use axum::Json;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::control::Control;
use error::ApiError;

/// What handlers share.
pub(crate) type Shared = Arc<Control>;
/// ... as they are given it.
type Daemon = State<Shared>;
/// What handlers give.
pub(crate) type Answer<T> = Result<Json<T>, ApiError>;

#[derive(OpenApi)]
#[openapi(info(title = "Towpath", description = ABOUT), components(schemas(types::LostView)))]
struct Doc;

/// All routes, and their description.
pub fn router(control: &Shared) -> axum::Router {
    let (router, doc) = described().split_for_parts();
    let document = Arc::new(doc);
    let openapi = move || {
        let document = Arc::clone(&document);
        async move { Json(document.as_ref().clone()) }
    };
    router
        .route("/openapi.json", axum::routing::get(openapi))
        .fallback(async || ApiError::missing("no such path: /openapi.json lists what there is"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(control))
}

/// The description alone, as JSON.
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(described().into_openapi()).unwrap_or_default()
}

fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(ports::list, ports::add))
        .routes(routes!(ports::show, ports::set, ports::remove))
        .routes(routes!(ports::features))
        .routes(routes!(dump::dump))
        .routes(routes!(bonds::list))
        .routes(routes!(bonds::show))
        .routes(routes!(bridges::list, bridges::add))
        .routes(routes!(bridges::set, bridges::remove))
        .routes(routes!(bridges::fdb))
        .routes(routes!(guests::list))
        .routes(routes!(guests::show, guests::reset))
        .routes(routes!(guests::save, guests::restore))
        .routes(routes!(programs::list, programs::load))
        .routes(routes!(programs::show))
        .routes(routes!(programs::code))
        .routes(routes!(programs::btf))
        .routes(routes!(programs::run))
        .routes(routes!(programs::profile))
        .routes(routes!(programs::upload))
        .routes(routes!(trace::trace))
        .routes(routes!(trace::stream))
        .routes(routes!(links::list, links::attach))
        .routes(routes!(links::show, links::detach))
        .routes(routes!(maps::list, maps::create))
        .routes(routes!(maps::show))
        .routes(routes!(maps::entries, load::load))
        .routes(routes!(records::records))
        .routes(routes!(maps::lookup))
        .routes(routes!(maps::update))
        .routes(routes!(maps::delete))
        .routes(routes!(maps::btf))
        .routes(routes!(maps::next))
        .routes(routes!(maps::pop))
        .routes(routes!(pins::list, pins::pin, pins::unpin))
        .routes(routes!(stats::stats))
        .routes(routes!(workers::list))
        .routes(routes!(workers::history))
        .routes(routes!(workers::flows))
        .routes(routes!(xsk::sockets))
        .routes(routes!(events::events))
        .routes(routes!(whole::status))
        .routes(routes!(whole::state, whole::replace))
        .routes(routes!(whole::reload))
}

/// Runs a look, which may take long, or wait for workers, apart from the API's own thread. There is
/// a limit to that at a time, too: further ones wait for a while, in the order they came.
pub(crate) async fn blocking<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Answer<T> {
    look(control, work).await.map(Json)
}

/// The same, for answers that are no JSON of one value.
pub(crate) async fn look<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let place = control.places.to_look().await?;
    apart(control, place, work).await
}

/// Runs something apart from the API's own thread. Its place is held for as long as it takes, also
/// when the client has gone.
pub(crate) async fn apart<T: Send + 'static>(
    control: &Shared,
    place: OwnedSemaphorePermit,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let control = Arc::clone(control);
    let placed = move || {
        let _place = place;
        work(&control)
    };
    let done = tokio::task::spawn_blocking(placed).await;
    done.unwrap_or_else(|error| Err(ApiError::failed(error.to_string())))
}

/// The same for what changes something, or is work in itself. There is a limit to that at a time,
/// so that whoever only looks finds a connection and a thread.
pub(crate) async fn working<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, ApiError> + Send + 'static,
) -> Answer<T> {
    apart(control, control.place_to_work()?, work).await.map(Json)
}

/// A JSON body, with errors as ours are: by path.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| ApiError::bad(error.body_text()))?;
        parse(&bytes).map(Body)
    }
}

/// A JSON text as a type.
///
/// # Errors
///
/// What is no JSON, and where; or the key or value that does not fit.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let json: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| ApiError::bad(format!("body: {error}")))?;
    towpath_document::typed(json).map_err(ApiError::bad)
}

/// A part of the path.
pub(crate) struct Part<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Part<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(value)| Part(value)).map_err(|error| ApiError::bad(error.body_text()))
    }
}

/// What comes behind the question mark.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Asked(value)).map_err(|error| ApiError::bad(error.body_text()))
    }
}

/// An answer without contents.
#[derive(Serialize)]
struct Done {}

const ABOUT: &str =
    "Ports, programs, maps and links of one daemon. Errors are {\"error\": \"...\"}.";
/// Objects are the largest thing that is sent.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
