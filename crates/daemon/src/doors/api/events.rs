//! `/v1/events`: events as server-sent events, one JSON object each.

use axum::response::Response;
use tokio::sync::broadcast::error::RecvError;

use super::answer::Daemon;
use super::sse;
use crate::control::listen;
use crate::model::messages::Event;

/// Streams events from now on, without end.
///
/// A slow listener misses events, which shows as a gap in their numbers.
#[utoipa::path(get, path = "/v1/events",
    responses((status = 200, content_type = "text/event-stream", body = Event)))]
pub(super) async fn events(control: Daemon) -> Response {
    let receiver = control.subscribe();
    sse::answer(futures_util::stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await {
                Ok(event) => {
                    let mut text = String::new();
                    listen::event(&mut text, Some(event.number), &event.kind, &event);
                    return Some((text.into(), receiver));
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }))
}
