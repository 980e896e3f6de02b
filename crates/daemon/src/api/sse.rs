//! Answers that are streams: of server-sent events, or of other bytes.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};

/// An answer of such events, as they come.
pub(super) fn answer(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    stream("text/event-stream", events)
}

/// An answer of such a type, as its pieces come.
pub(super) fn stream(
    content_type: &'static str,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Response {
    let headers = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(pieces.map(Ok::<_, Infallible>))).into_response()
}
