//! `/v1/events`: what happens, as server-sent events, one JSON object each.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State as Context;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::types::Event;

/// What happens from now on, without end.
///
/// A listener that is too slow misses events: their numbers show it.
#[utoipa::path(get, path = "/v1/events",
    responses((status = 200, content_type = "text/event-stream", body = Event)))]
pub(super) async fn events(Context(control): Context<Shared>) -> Response {
    let receiver = control.subscribe();
    let stream = futures_util::stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await {
                Ok(event) => {
                    let json = serde_json::to_string(&event).unwrap_or_default();
                    let text =
                        format!("id: {}\nevent: {}\ndata: {json}\n\n", event.number, event.kind);
                    let frame = Frame::data(Bytes::from(text));
                    return Some((Ok::<_, Infallible>(frame), receiver));
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    (headers, Body::new(StreamBody::new(stream))).into_response()
}
