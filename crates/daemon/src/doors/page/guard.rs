//! Access control for the API over TCP.
//!
//! Any web page can make a browser send requests. So a request must address the daemon by an IP
//! address or a known name (`Host`; this stops DNS rebinding), and must not come from a page of
//! another origin (`Origin`, `Sec-Fetch-Site`). Without a configured token, nothing can be changed
//! and no packets can be seen; with one, every API request needs it.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::doors::api::error::ApiError;
use crate::model::settings::HttpSettings;

/// Decides which requests are admitted.
#[derive(Debug)]
pub(crate) struct Guard {
    settings: HttpSettings,
}

impl Guard {
    pub(crate) fn new(settings: HttpSettings) -> Guard {
        Guard { settings }
    }

    /// Checks a request; the error is the answer if it is refused.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        let host = self.host(uri, headers)?;
        let is_look = [Method::GET, Method::HEAD].contains(method);
        // The page's files are public, and other sites may link to them.
        if !uri.path().starts_with("/v1/") && is_look {
            return Ok(());
        }
        same_origin(&host, headers)?;
        match &self.settings.token {
            Some(token) => {
                bearer(headers).is_some_and(|text| token.is(text)).then_some(()).ok_or_else(|| {
                    refused(401, "the daemon's token is needed: Authorization: Bearer TOKEN")
                })
            }
            None if !is_look => Err(refused(403, "changes need a token ([api] token_file)")),
            // Packets, and records of programs, which may contain parts of packets.
            None if ["/dump", "/records"].iter().any(|end| uri.path().ends_with(end)) => {
                Err(refused(403, "packets are shown only with a token ([api] token_file)"))
            }
            None => Ok(()),
        }
    }

    /// The host that the request addresses: an IP address, or one of the daemon's names.
    fn host(&self, uri: &Uri, headers: &HeaderMap) -> Result<Authority, ApiError> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let (Some(host), None, None) = (host, hosts.next(), uri.authority()) else {
            return Err(refused(400, "a request has one Host, and no other in its path"));
        };
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let is_known = name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.settings.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        if !is_known || host.as_str().contains('@') {
            let message = "this daemon has no such name: use its address, or add the name to \
                           [api] http_names";
            return Err(refused(403, &format!("Host {host}: {message}")));
        }
        Ok(host)
    }
}

/// Refuses requests that pages of other sites have sent.
fn same_origin(host: &Authority, headers: &HeaderMap) -> Result<(), ApiError> {
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_ours = match headers.get(ORIGIN).map(HeaderValue::to_str) {
        None => true,
        // A reverse proxy may terminate TLS.
        Some(Ok(origin)) => ["http", "https"].iter().any(|scheme| {
            origin.strip_prefix(scheme).and_then(|it| it.strip_prefix("://")) == Some(host.as_str())
        }),
        Some(Err(_)) => false,
    };
    match is_ours && site.is_none_or(|site| [&b"same-origin"[..], b"none"].contains(&site)) {
        true => Ok(()),
        false => Err(refused(403, "the request comes from another site's page")),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn refused(status: u16, message: &str) -> ApiError {
    ApiError { status, message: message.to_owned() }
}

/// 401 or 403 response.
pub(super) fn refusal(error: ApiError) -> Response {
    let is_unknown = error.status == 401;
    let mut response = error.into_response();
    if is_unknown {
        let how = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, how);
    }
    response
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::Token;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn guard(token: Option<&str>) -> Guard {
        let token = token.map(|text| Token::new(text).expect("it is long"));
        let address = "127.0.0.1:8480".parse().expect("an address");
        Guard::new(HttpSettings {
            address,
            token,
            unread_token: None,
            names: vec!["router.example".to_owned()],
        })
    }

    /// The status with which a request is refused; 0 if it is admitted.
    fn status(guard: &Guard, request: &str, headers: &[(&str, &str)]) -> u16 {
        let (method, path) = request.split_once(' ').expect("two words");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header");
            map.append(name, value.parse().expect("a value"));
        }
        let (method, uri) = (method.parse().expect("a method"), path.parse().expect("a path"));
        guard.check(&method, &uri, &map).err().map_or(0, |error| error.status)
    }

    #[test]
    fn only_our_names_are_answered() {
        let guard = guard(None);
        let of = |host: &str| status(&guard, "GET /v1/status", &[("host", host)]);
        for ours in ["127.0.0.1:8480", "localhost", "LOCALHOST:1", "[::1]:8480", "router.example"] {
            assert_eq!(of(ours), 0, "{ours}");
        }
        for other in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8480"] {
            assert_eq!(of(other), 403, "{other}");
        }
        assert_eq!(of("me@127.0.0.1"), 403);
        assert_eq!(of(""), 400);
        assert_eq!(status(&guard, "GET /v1/status", &[]), 400);
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&guard, "GET /v1/status", &two), 400);
        let absolute = "GET http://evil.example/v1/status";
        assert_eq!(status(&guard, absolute, &[("host", "localhost")]), 400);
    }

    #[test]
    fn other_sites_pages_are_refused() {
        let guard = guard(None);
        let of = |path: &str, name: &str, value: &str| {
            status(&guard, &format!("GET {path}"), &[("host", "localhost:1"), (name, value)])
        };
        assert_eq!(of("/v1/status", "origin", "http://localhost:1"), 0);
        for other in ["http://localhost:2", "http://evil.example", "null", "localhost:1"] {
            assert_eq!(of("/v1/status", "origin", other), 403, "{other}");
        }
        assert_eq!(of("/v1/status", "sec-fetch-site", "same-origin"), 0);
        for other in ["cross-site", "same-site"] {
            assert_eq!(of("/v1/status", "sec-fetch-site", other), 403, "{other}");
        }
        // Other sites may link to the page.
        assert_eq!(of("/", "sec-fetch-site", "cross-site"), 0);
    }

    #[test]
    fn changes_need_a_token_and_with_one_everything_does() {
        let host = ("host", "localhost");
        let open = guard(None);
        for (request, refused) in [
            ("GET /", 0),
            ("GET /v1/maps/1/entries", 0),
            ("POST /v1/maps/1/update", 403),
            ("DELETE /v1/links/1", 403),
            ("PUT /", 403),
            ("GET /v1/ports/p0/dump", 403),
            ("GET /v1/maps/1/records", 403),
        ] {
            assert_eq!(status(&open, request, &[host]), refused, "{request}");
        }
        let closed = guard(Some(SECRET));
        let right = format!("Bearer {SECRET}");
        let wrong = format!("Bearer {}0", &SECRET[1..]);
        for request in ["GET /v1/status", "POST /v1/maps/1/update", "GET /v1/ports/p0/dump"] {
            assert_eq!(status(&closed, request, &[host]), 401, "{request}");
            assert_eq!(status(&closed, request, &[host, ("authorization", &wrong)]), 401);
            assert_eq!(status(&closed, request, &[host, ("authorization", SECRET)]), 401);
            assert_eq!(status(&closed, request, &[host, ("authorization", &right)]), 0);
            let elsewhere = ("origin", "http://evil.example");
            let headers = [host, ("authorization", right.as_str()), elsewhere];
            assert_eq!(status(&closed, request, &headers), 403, "a token is no excuse");
        }
        assert_eq!(status(&closed, "GET /", &[host]), 0, "the page can ask for the token");
        assert!(Token::new("short").is_err());
        assert!(Token::new("0123456789abc def").is_err());
    }
}
