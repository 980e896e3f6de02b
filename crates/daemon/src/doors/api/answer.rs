//! Extraction of requests, and execution of handlers apart from the API's thread.

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

/// The state shared by all handlers.
pub(crate) type Shared = Arc<Control>;

/// The extractor by which handlers receive [`Shared`].
pub(super) type Daemon = State<Shared>;

/// The result of handlers that answer JSON.
pub(crate) type Answer<T> = Result<Json<T>, ApiError>;

/// Runs a reader that may take long, or wait for workers, apart from the API's thread. Their number
/// is limited: further ones wait for a while, in order of arrival.
pub(crate) async fn blocking<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    look(control, work).await.map(Json)
}

/// As [`blocking`], for answers other than a single JSON value.
pub(crate) async fn look<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, ApiError> {
    let place = control.places.to_look().await?;
    apart(control, place, work).await
}

/// Runs work apart from the API's thread. The slot is held until the work is done, even if the
/// client disconnects.
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

/// As [`blocking`], for changes and long computations. Their number is limited separately, so that
/// readers always find a connection and a thread.
pub(crate) async fn working<T: Send + 'static>(
    control: &Shared,
    work: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    apart(control, control.place_to_work()?, work).await.map(Json)
}

/// Extractor for a JSON body, whose errors contain the path of the wrong value.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = axum::body::Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| Refusal::bad(error.body_text()))?;
        Ok(Body(parse(&bytes)?))
    }
}

/// Parses JSON into a type.
///
/// # Errors
///
/// Fails with the position of a syntax error, or the path of a wrong key or value.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let json: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| Refusal::bad(format!("body: {error}")))?;
    towpath_document::typed(json).map_err(Refusal::bad)
}

/// Extractor for parameters in the path.
pub(crate) struct Part<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Part<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::from_request_parts(parts, state).await;
        Ok(Part(path.map_err(|error| Refusal::bad(error.body_text()))?.0))
    }
}

/// Extractor for the query string.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        Ok(Asked(query.map_err(|error| Refusal::bad(error.body_text()))?.0))
    }
}

/// An empty answer.
#[derive(Serialize)]
pub(super) struct Done {}

/// Whether the request's handler reads the body itself.
pub(crate) fn is_streamed(parts: &Parts) -> bool {
    let id = parts.uri.path().strip_prefix("/v1/maps/");
    parts.method == Method::PUT && id.is_some_and(|rest| rest.ends_with("/entries"))
}
