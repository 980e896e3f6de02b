//! Streamed answers: server-sent events, or other bytes. No keep-alive events are sent. `events`,
//! `trace` and `dump` decide what a slow reader loses.

use std::convert::Infallible;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};

/// An answer that streams server-sent events.
pub(super) fn answer(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    stream("text/event-stream", events.map(Ok::<_, Infallible>))
}

/// An answer that streams pieces of the given content type, and breaks off at an error.
pub(super) fn stream<E: Into<BoxError> + 'static>(
    content_type: &'static str,
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Response {
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(pieces)).into_response()
}
