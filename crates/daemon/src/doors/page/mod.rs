//! The web page, and the API behind it, on a TCP address.
//!
//! The page's files are part of the binary and load nothing from other sites. A unix socket is
//! protected by file permissions; a TCP address can be reached by every user of the machine, and by
//! every web page in a local browser: `guard.rs` keeps those out.

mod guard;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;

use crate::doors::api;
use crate::doors::api::answer::Shared;
use crate::model::settings::HttpSettings;
use guard::Guard;

/// The router for the page and the API.
pub(crate) fn router(control: &Shared, settings: HttpSettings) -> Router {
    let guard = Arc::new(Guard::new(settings));
    let mut router = api::router(control);
    for (path, kind, text) in FILES {
        router = router.route(path, get(async move || ([(CONTENT_TYPE, kind)], text)));
    }
    router.layer(from_fn(move |request: Request, next: Next| {
        let guard = Arc::clone(&guard);
        async move {
            let response = match guard.check(request.method(), request.uri(), request.headers()) {
                Ok(()) => next.run(request).await,
                Err(error) => guard::refusal(error),
            };
            guarded(response)
        }
    }))
}

/// Adds the security headers.
fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Path, content type and contents of each file.
const FILES: [(&str, &str, &str); 12] = [
    ("/", HTML, include_str!("index.html")),
    ("/page.css", CSS, include_str!("page.css")),
    ("/main.js", JS, include_str!("main.js")),
    ("/daemon.js", JS, include_str!("daemon.js")),
    ("/element.js", JS, include_str!("element.js")),
    ("/ports.js", JS, include_str!("ports.js")),
    ("/port.js", JS, include_str!("port.js")),
    ("/workers.js", JS, include_str!("workers.js")),
    ("/picture.js", JS, include_str!("picture.js")),
    ("/drops.js", JS, include_str!("drops.js")),
    ("/maps.js", JS, include_str!("maps.js")),
    ("/programs.js", JS, include_str!("programs.js")),
];
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// Security headers: no resources from other sites, no inline scripts or styles, no framing.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];
