//! `PUT /v1/maps/{id}/entries`: many elements at once, read as they come.

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

/// What is to be done with rows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoadQuery {
    format: Option<String>,
    replace: bool,
}

/// Puts rows into a map, all of them or none: `format` is `json` (objects of `key` and `value`, one
/// behind the other or in a list; the default), `csv` or `packed`. With `replace` the map has these
/// rows and no others afterwards; only what differs is written, and keys that are there before and
/// after are there all the time.
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

/// Hands a body on as it comes. When nobody wants more of it the rest is read and forgotten: else
/// the client would not read the answer.
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
    let message = format!("no more of the body came for {} s", IDLE_MAX.as_secs());
    ApiError { status: 408, message }
}

/// A part of a body.
enum Piece {
    More(Bytes),
    End,
}

/// A body, read by a thread that waits for it.
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
                    let message = "the rest of the body did not come";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Bytes of a body: tables of 10^7 rows as JSON are some 500 MB.
const BODY_BYTES_MAX: u64 = 4 << 30;
/// Between two parts of a body.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Parts of a body that wait to be read.
const PIECES: usize = 8;
const BUFFER_BYTES: usize = 64 << 10;
const _: () =
    assert!((PIECES * BUFFER_BYTES) as u64 <= BODY_BYTES_MAX, "less is held than may come");
