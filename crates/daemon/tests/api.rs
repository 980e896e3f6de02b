//! The API's description and its documentation say the same.

use towpath_daemon::api;

#[test]
fn every_path_is_described_and_documented() {
    let openapi = api::openapi();
    let paths = openapi["paths"].as_object().expect("an object");
    assert!(paths.len() >= 15, "{paths:?}");
    let docs = include_str!("../../../docs/api.md");
    for (path, methods) in paths {
        // Elements of maps share a row: `.../lookup`, `update`, `delete`.
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_there = docs.contains(&format!("`{path}"))
            || docs.contains(&format!("`{last}`")) && path.contains("/{id}/");
        assert!(is_there, "docs/api.md says nothing of {path}");
        for (method, said) in methods.as_object().expect("methods") {
            assert!(said["summary"].is_string(), "{method} {path} has no summary");
            assert!(said["responses"]["200"].is_object(), "{method} {path}");
        }
    }
}

#[test]
fn errors_name_the_place() {
    use towpath_daemon::api::types::LinkRequest;
    let error = api::parse::<LinkRequest>(br#"{"port": "p0", "mode": "replcae"}"#);
    let message = error.expect_err("no such mode").message;
    assert_eq!(message, "mode: unknown word \"replcae\"; did you mean \"replace\"?");
    let error = api::parse::<LinkRequest>(br#"{"port": 5}"#).expect_err("a number");
    assert!(error.message.starts_with("port: "), "{error}");
    let error = api::parse::<LinkRequest>(b"{").expect_err("no JSON");
    assert!(error.message.starts_with("body: "), "{error}");
}
