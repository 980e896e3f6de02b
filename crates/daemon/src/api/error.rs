//! Errors of the API: a status and a sentence.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request that failed; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// What is wrong and what to do.
    pub message: String,
}

/// The body of an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong and what to do.
    pub error: String,
}

impl ApiError {
    /// The request makes no sense: 400.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError { status: 400, message: message.into() }
    }

    /// There is no such thing: 404.
    pub fn missing(message: impl Into<String>) -> ApiError {
        ApiError { status: 404, message: message.into() }
    }

    /// It makes sense, but not with what there is: 409.
    pub fn conflict(message: impl Into<String>) -> ApiError {
        ApiError { status: 409, message: message.into() }
    }

    /// It was tried and refused, by the verifier or by the system: 422.
    pub fn refused(message: impl Into<String>) -> ApiError {
        ApiError { status: 422, message: message.into() }
    }

    /// Nobody asked wrongly, and it went wrong: 500.
    pub fn failed(message: impl Into<String>) -> ApiError {
        ApiError { status: 500, message: message.into() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody { error: self.message })).into_response()
    }
}
