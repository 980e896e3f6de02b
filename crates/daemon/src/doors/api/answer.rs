//! How handlers read requests and answer them: where their work runs, and what is refused how.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::error::ApiError;
use crate::control::Control;
use crate::model::refusal::Refusal;

/// What handlers share.
pub(crate) type Shared = Arc<Control>;

/// ... as they are given it.
pub(super) type Daemon = State<Shared>;

/// What handlers give.
pub(crate) type Answer<T> = Result<Json<T>, ApiError>;

/// Runs a look, which may take long, or wait for workers, apart from the API's own thread. There is
/// a limit to that at a time, too: further ones wait for a while, in the order they came.
pub(crate) async fn blocking<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    look(control, work).await.map(Json)
}

/// The same, for answers that are no JSON of one value.
pub(crate) async fn look<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, ApiError> {
    let place = control.places.to_look().await?;
    apart(control, place, work).await
}

/// Runs something apart from the API's own thread. Its place is held for as long as it takes, also
/// when the client has gone.
pub(crate) async fn apart<T: Send + 'static>(
    control: &Shared,
    place: OwnedSemaphorePermit,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, ApiError> {
    let control = Arc::clone(control);
    let placed = move || {
        let _place = place;
        work(&control)
    };
    let done = tokio::task::spawn_blocking(placed).await;
    let done = done.unwrap_or_else(|error| Err(Refusal::failed(error.to_string())));
    done.map_err(ApiError::from)
}

/// The same for what changes something, or is work in itself. There is a limit to that at a time,
/// so that whoever only looks finds a connection and a thread.
pub(crate) async fn working<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    apart(control, control.place_to_work()?, work).await.map(Json)
}

/// A JSON body, with errors as ours are: by path.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Refusal::bad(error.body_text()))?;
        Ok(Body(parse(&bytes)?))
    }
}

/// A JSON text as a type.
///
/// # Errors
///
/// What is no JSON, and where; or the key or value that does not fit.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let json: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| Refusal::bad(format!("body: {error}")))?;
    towpath_document::typed(json).map_err(Refusal::bad)
}

/// A part of the path.
pub(crate) struct Part<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Part<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::from_request_parts(parts, state).await;
        Ok(Part(path.map_err(|error| Refusal::bad(error.body_text()))?.0))
    }
}

/// What comes behind the question mark.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        Ok(Asked(query.map_err(|error| Refusal::bad(error.body_text()))?.0))
    }
}

/// An answer without contents.
#[derive(Serialize)]
pub(super) struct Done {}

/// Whether a request reads its body itself.
pub(crate) fn is_streamed(parts: &Parts) -> bool {
    let id = parts.uri.path().strip_prefix("/v1/maps/");
    parts.method == Method::PUT && id.is_some_and(|rest| rest.ends_with("/entries"))
}
