//! `/v1/trace` and `/v1/programs/{id}/streams/{stream}`: output of programs.

use axum::response::Response;
use serde::Deserialize;
use towpath_xdp::StreamId;

use super::answer::{Asked, Daemon, Part};
use super::error::{ApiError, ErrorBody};
use super::programs;
use super::sse;
use crate::control::listen::Follower;
use crate::model::messages::{PrintedLine, StreamText};
use crate::model::refusal::Refusal;

/// Streams lines that programs print with `bpf_printk` from now on, as events of kind `line`.
///
/// A slow listener loses lines; an event of kind `lost` in their place gives their number.
#[utoipa::path(get, path = "/v1/trace",
    responses((status = 200, content_type = "text/event-stream", body = PrintedLine)))]
pub(super) async fn trace(control: Daemon) -> Result<Response, ApiError> {
    let heard = control.read(|inner| control.trace.listen(&inner.live.registry));
    let heard = heard.map_err(|error| Refusal::failed(error.to_string()))?;
    Ok(sse::answer(futures_util::stream::unfold(heard, async |mut heard| {
        let text = heard.next().await?;
        Some((text.into(), heard))
    })))
}

/// Parameters of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamQuery {
    follow: bool,
}

/// Streams the unread text that a program printed with `bpf_stream_printk` to `stdout` or `stderr`,
/// as events of kind `text`. With `follow`, the stream continues until the program goes.
///
/// Reading consumes the text. A stream holds 100000 bytes; events of kind `lost` count prints for
/// which it had no room (`ENOSPC` for the program).
#[utoipa::path(get, path = "/v1/programs/{id}/streams/{stream}",
    params(("id" = u32, Path), ("stream" = String, Path), ("follow" = Option<bool>, Query)),
    responses((status = 200, content_type = "text/event-stream", body = StreamText),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn stream(
    control: Daemon,
    Part((id, stream)): Part<(u32, String)>,
    Asked(StreamQuery { follow }): Asked<StreamQuery>,
) -> Result<Response, ApiError> {
    let stream = match stream.as_str() {
        "stdout" => StreamId::Stdout,
        "stderr" => StreamId::Stderr,
        other => {
            let message = format!("no stream {other:?}: a program has stdout and stderr");
            return Err(Refusal::missing(message).into());
        }
    };
    let program = programs::object(&control, id)?;
    let follower = Follower::new(&program, stream, follow);
    Ok(sse::answer(futures_util::stream::unfold(follower, async |mut follower| {
        let text = follower.next().await?;
        Some((text.into(), follower))
    })))
}
