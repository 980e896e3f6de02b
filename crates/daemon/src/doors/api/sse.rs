//! Answers that are streams: of server-sent events, or of other bytes.

use std::convert::Infallible;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};

/// An answer of such events, as they come.
pub(super) fn answer(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    stream("text/event-stream", events.map(Ok::<_, Infallible>))
}

/// An answer of such a type, as its pieces come; it breaks off with an error.
pub(super) fn stream<E: Into<BoxError> + 'static>(
    content_type: &'static str,
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Response {
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(pieces)).into_response()
}
