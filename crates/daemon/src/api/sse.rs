//! Answers that are streams of server-sent events.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::Frame;

/// An answer of such events, as they come.
pub(super) fn answer(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let frames = events.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(StreamBody::new(frames))).into_response()
}
