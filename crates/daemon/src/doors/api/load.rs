//! `PUT /v1/maps/{id}/entries`: the loading of many elements, from a streamed body.

use std::io::{self, BufReader, Read};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use towpath_maps::rows::{self, Format, RowsError};
use towpath_objects::{Object, Selector};

use super::answer::{Answer, Asked, Daemon, Part, Shared, apart};
use super::error::{ApiError, ErrorBody};
use crate::control::{Control, Inner};
use crate::model::messages::LoadView;
use crate::model::refusal::Refusal;

/// Parameters of a load.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoadQuery {
    format: Option<String>,
    replace: bool,
}

/// Stores rows in a map, all or none. `format` is `json` (objects with `key` and `value`, in
/// sequence or in a list; the default), `csv` or `packed`. With `replace`, the map has exactly
/// these rows afterwards; only differences are written, and keys that are present before and after
/// are never absent in between.
#[utoipa::path(put, path = "/v1/maps/{id}/entries",
    params(("id" = u32, Path), ("format" = Option<String>, Query),
        ("replace" = Option<bool>, Query)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = LoadView), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 413, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(super) async fn load(
    control: Daemon,
    Part(id): Part<u32>,
    Asked(LoadQuery { format, replace }): Asked<LoadQuery>,
    body: axum::body::Body,
) -> Answer<LoadView> {
    let place = control.place_to_work()?;
    let (sender, pieces) = mpsc::channel(PIECES);
    let upload = Upload { pieces, piece: Bytes::new(), has_ended: false };
    let work = move |control: &Shared| {
        let format = format.as_deref().map_or(Ok(Format::Json), Format::named);
        let format = format.map_err(|problem| Refusal::bad(format!("format: {problem}")))?;
        store(control, id, format, replace, upload)
    };
    let (sent, stored) = tokio::join!(send(body, sender), apart(&control, place, work));
    sent.and(stored).map(axum::Json)
}

fn store(
    control: &Control,
    id: u32,
    format: Format,
    is_replace: bool,
    upload: Upload,
) -> Result<LoadView, Refusal> {
    let session = control.read(Inner::session);
    let map = session.map(&Selector::Id(id)).map_err(|_none| super::maps::no_map(id))?;
    let mut from = BufReader::with_capacity(BUFFER_BYTES, upload);
    let read = rows::read(map.map(), format, &mut from).map_err(|error| {
        let message = format!("map {}: {error}: nothing changed", map.name());
        match error {
            RowsError::Unreadable(_) => Refusal::bad(message),
            _ => Refusal::refused(message),
        }
    })?;
    let is_it = |object: &Object| matches!(object, Object::Map(other) if other.object().id() == id);
    let pins = control.read(|inner| inner.live.registry.pins());
    let is_pinned = pins.iter().any(|(_, object)| is_it(object));
    let loaded = control.keeper.load(&map, &read, is_replace, is_pinned)?;
    let (duplicates, rows::Loaded { rows, written, unchanged, deleted }) =
        (read.duplicates(), loaded);
    Ok(LoadView { rows, duplicates, written, unchanged, deleted })
}

/// Forwards the body as it arrives. If the reader has stopped, the rest is read and dropped, since
/// the client would not read the answer otherwise.
async fn send(body: axum::body::Body, sender: Sender<Piece>) -> Result<(), ApiError> {
    let mut body = body;
    let mut bytes = 0;
    while let Some(frame) = timeout(IDLE_MAX, body.frame()).await.map_err(late)? {
        let frame = frame.map_err(|error| Refusal::bad(format!("body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len() as u64;
        if bytes > BODY_BYTES_MAX {
            let message =
                format!("the body is longer than {BODY_BYTES_MAX} bytes: nothing changed");
            return Err(ApiError { status: 413, message });
        }
        let _read_or_not = sender.send(Piece::More(data)).await;
    }
    let _read_or_not = sender.send(Piece::End).await;
    Ok(())
}

fn late(_elapsed: tokio::time::error::Elapsed) -> ApiError {
    let message = format!("no more of the body arrived for {} s", IDLE_MAX.as_secs());
    ApiError { status: 408, message }
}

/// A piece of a body.
enum Piece {
    More(Bytes),
    End,
}

/// The reading end of a body, which blocks its thread.
struct Upload {
    pieces: Receiver<Piece>,
    piece: Bytes,
    has_ended: bool,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.has_ended {
            match self.pieces.blocking_recv() {
                Some(Piece::More(piece)) => self.piece = piece,
                Some(Piece::End) => self.has_ended = true,
                None => {
                    let message = "the rest of the body did not arrive";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Longest body in bytes: a table of 10^7 rows as JSON takes about 500 MB.
const BODY_BYTES_MAX: u64 = 4 << 30;
/// Longest pause between two pieces of a body.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Number of pieces queued for the reader.
const PIECES: usize = 8;
const BUFFER_BYTES: usize = 64 << 10;
const _: () =
    assert!((PIECES * BUFFER_BYTES) as u64 <= BODY_BYTES_MAX, "less is held than may come");
