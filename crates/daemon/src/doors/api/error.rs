//! Errors of the API: a status and a sentence.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::refusal::{Reason, Refusal};

/// A request that failed; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// The error, with advice.
    pub message: String,
}

/// The body of an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error, with advice.
    pub error: String,
}

impl From<Refusal> for ApiError {
    fn from(Refusal { reason, message }: Refusal) -> ApiError {
        let status = match reason {
            Reason::Bad => 400,
            Reason::Missing => 404,
            Reason::Conflict => 409,
            Reason::Refused => 422,
            Reason::Failed => 500,
            Reason::Busy => 503,
        };
        ApiError { status, message }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody { error: self.message })).into_response()
    }
}
