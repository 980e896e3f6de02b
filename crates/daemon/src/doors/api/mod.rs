//! The API: REST over a unix socket, described by `/openapi.json`.

pub(crate) mod answer;
mod bonds;
mod bridges;
mod dump;
pub mod error;
mod events;
mod guests;
pub(crate) mod links;
pub(crate) mod load;
mod long;
mod maps;
pub(crate) mod pins;
mod ports;
mod programs;
mod records;
mod sas;
mod sse;
mod stats;
mod trace;
mod versions;
mod whole;
mod workers;
mod xsk;

use std::sync::Arc;

use axum::Json;
use axum::extract::DefaultBodyLimit;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use crate::model::messages as types;
use crate::model::refusal::Refusal;
use answer::Shared;
pub use answer::parse;
use error::ApiError;

#[derive(OpenApi)]
#[openapi(info(title = "Towpath", description = ABOUT), components(schemas(types::LostView)))]
struct Doc;

/// The router with all routes, and their OpenAPI description.
pub fn router(control: &Shared) -> axum::Router {
    let (router, doc) = described().split_for_parts();
    let document = Arc::new(doc);
    let openapi = move || {
        let document = Arc::clone(&document);
        async move { Json(document.as_ref().clone()) }
    };
    router
        .route("/openapi.json", axum::routing::get(openapi))
        .fallback(async || ApiError::from(Refusal::missing(NO_PATH)))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(control))
}

/// The OpenAPI description, as JSON.
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(described().into_openapi()).unwrap_or_default()
}

fn described() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(ports::list, ports::add))
        .routes(routes!(ports::show, ports::set, ports::remove))
        .routes(routes!(ports::features))
        .routes(routes!(dump::dump))
        .routes(routes!(bonds::list))
        .routes(routes!(bonds::show))
        .routes(routes!(bridges::list, bridges::add))
        .routes(routes!(bridges::set, bridges::remove))
        .routes(routes!(bridges::fdb))
        .routes(routes!(sas::list, sas::add, sas::flush))
        .routes(routes!(sas::show, sas::remove))
        .routes(routes!(sas::policies, sas::add_policy))
        .routes(routes!(sas::remove_policy))
        .routes(routes!(guests::list))
        .routes(routes!(guests::show, guests::reset))
        .routes(routes!(guests::save, guests::restore))
        .routes(routes!(programs::list, programs::load))
        .routes(routes!(programs::show))
        .routes(routes!(programs::code))
        .routes(routes!(programs::btf))
        .routes(routes!(programs::run))
        .routes(routes!(programs::profile))
        .routes(routes!(programs::upload))
        .routes(routes!(trace::trace))
        .routes(routes!(trace::stream))
        .routes(routes!(links::list, links::attach))
        .routes(routes!(links::show, links::detach))
        .routes(routes!(maps::list, maps::create))
        .routes(routes!(maps::show))
        .routes(routes!(maps::entries, load::load))
        .routes(routes!(records::records))
        .routes(routes!(maps::lookup))
        .routes(routes!(maps::update))
        .routes(routes!(maps::delete))
        .routes(routes!(maps::btf))
        .routes(routes!(maps::next))
        .routes(routes!(maps::pop))
        .routes(routes!(pins::list, pins::pin, pins::unpin))
        .routes(routes!(stats::stats))
        .routes(routes!(workers::list))
        .routes(routes!(workers::history))
        .routes(routes!(workers::flows))
        .routes(routes!(xsk::sockets))
        .routes(routes!(events::events))
        .routes(routes!(whole::status))
        .routes(routes!(whole::state, whole::replace))
        .routes(routes!(whole::reload))
}

const NO_PATH: &str = "no such path: /openapi.json lists what there is";
const ABOUT: &str =
    "Ports, programs, maps and links of one daemon. Errors are {\"error\": \"...\"}.";
/// Longest body in bytes, which suffices for object files.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(
    BODY_BYTES_MAX as u64 >= crate::live::files::OBJECT_BYTES_MAX,
    "any object can be uploaded"
);
