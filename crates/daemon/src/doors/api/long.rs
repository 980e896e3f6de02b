//! Long answers: lists that are made in pieces as the client reads them. No piece is made ahead, or
//! for a client that has disconnected.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde::Serialize as _;

use super::answer::{Shared, apart, look};
use super::error::ApiError;
use super::sse;
use crate::doors::serve::Holds;
use crate::live::elements::Listing;
use crate::model::refusal::Refusal;

/// Answers with the elements of a map as a JSON list.
///
/// # Errors
///
/// Fails as `begin` and the first piece do. If a later piece fails, the answer breaks off, so that
/// the client does not take a part for the whole.
pub(super) async fn answer(
    control: &Shared,
    begin: impl FnOnce(&Shared) -> Result<Listing, Refusal> + Send + 'static,
) -> Result<Response, ApiError> {
    let begun = |control: &Shared| begin(control).map(|listing| List { listing, rest: Some("[") });
    let list = look(control, begun).await?;
    let holds = Holds(list.listing.bytes());
    let (list, first) = piece(control, list).await?;
    if list.rest.is_none() {
        return Ok(([(CONTENT_TYPE, JSON)], first).into_response());
    }
    let more = stream::try_unfold((control.clone(), list), async |(control, list)| {
        if list.rest.is_none() {
            return Ok(None);
        }
        let (list, text) = piece(&control, list).await?;
        Ok(Some((text, (control, list))))
    });
    let pieces = stream::iter([Ok::<_, ApiError>(first)]).chain(more);
    let mut answer = sse::stream(JSON, pieces);
    answer.extensions_mut().insert(holds);
    Ok(answer)
}

/// A list that is being written.
struct List {
    listing: Listing,
    /// Text before the next element; `None` when the list is complete.
    rest: Option<&'static str>,
}

/// Makes the next piece of the text; pieces for all clients are made one at a time.
async fn piece(control: &Shared, list: List) -> Result<(List, Bytes), ApiError> {
    let place = control.places.for_a_piece().await?;
    apart(control, place, |_| list.text()).await
}

impl List {
    fn text(mut self) -> Result<(List, Bytes), Refusal> {
        let mut text = Vec::with_capacity(2 * TEXT_BYTES);
        while text.len() < TEXT_BYTES
            && let Some(before) = self.rest
        {
            let Some(piece) = self.listing.piece()? else {
                text.extend_from_slice(if before == "[" { b"[]" } else { b"]" });
                self.rest = None;
                break;
            };
            for element in piece {
                text.extend_from_slice(self.rest.replace(",").unwrap_or(",").as_bytes());
                let mut json = serde_json::Serializer::new(&mut text);
                element.serialize(&mut json).map_err(|error| Refusal::failed(error.to_string()))?;
            }
        }
        Ok((self, text.into()))
    }
}

const JSON: &str = "application/json";
/// Size in bytes at which a piece ends, after the current elements.
const TEXT_BYTES: usize = 32 << 10;
