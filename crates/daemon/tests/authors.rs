//! Authors of ports, links and programs, over changes by the API, reloads and restarts.

mod served;

use std::path::Path;

use serde_json::{Value, json};
use towpath_daemon::saved::Document;

use served::Served;

const STATE: &str = "[state]\ndir = \"saved\"\n";

fn config(ports: &[&str]) -> String {
    let port = |name: &&str| format!("[[port]]\nname = \"{name}\"\nkind = \"sink\"\n");
    ports.iter().map(port).fold(STATE.to_owned(), |all, port| all + &port)
}

/// Ports and who wants each, and what isn't as the file has it.
fn seen(served: &Served) -> (Value, Value) {
    let status = served.get("/v1/status");
    let ports = status["ports"].as_array().expect("a list").iter();
    let ports = ports.map(|port| json!([port["name"], port["wanted_by"]])).collect();
    (ports, status["overridden"].clone())
}

fn reload(served: &Served, text: &str) -> Result<Value, String> {
    std::fs::write(served.dir.join("t.toml"), text).expect("there is room");
    let done = served.client.json::<Value>("POST", "/v1/reload", &json!({}));
    done.map_err(|error| error.to_string())
}

fn changes(report: &Value) -> String {
    report["changes"].to_string()
}

fn ask(served: &Served, method: &str, path: &str, body: &Value) {
    served.client.json::<Value>(method, path, body).expect("it can be done");
}

fn restart(served: Served, text: &str) -> Served {
    Served::start_in(served.stop(), text)
}

#[test]
fn a_thing_stays_as_long_as_somebody_wants_it() {
    let served = Served::start("authors", &config(&["a"]));
    ask(&served, "POST", "/v1/ports", &json!({ "name": "b", "kind": "sink", "mtu": 1400 }));
    let both = json!([["a", ["file"]], ["b", ["api"]]]);
    assert_eq!(seen(&served), (both.clone(), json!([])));
    // The file wants it, too, and otherwise: its last word counts, and that is told.
    let report = reload(&served, &config(&["a", "b"])).expect("it is fine");
    assert!(
        changes(&report).contains("port b: the configuration file's version replaces that of ")
    );
    assert_eq!(seen(&served).0, json!([["a", ["file"]], ["b", ["file", "api"]]]));
    // A file with a mistake changes nothing, nor does it change who wants what.
    reload(&served, "[[port]]\nname = 7\n").expect_err("it is refused");
    assert_eq!(seen(&served).0, json!([["a", ["file"]], ["b", ["file", "api"]]]));
    let served = restart(served, &config(&["a", "b"]));
    assert_eq!(seen(&served).0, json!([["a", ["file"]], ["b", ["file", "api"]]]));
    // The file lets go of it.
    let report = reload(&served, &config(&["a"])).expect("it is fine");
    assert!(
        changes(&report).contains("port b: it stays after its removal from the configuration file")
    );
    assert_eq!(seen(&served).0, both);
    // Changes and removals by the API are shown as long as they differ from the file.
    ask(&served, "PATCH", "/v1/ports/a", &json!({ "mtu": 1300 }));
    let changed = json!([{ "subject": "port a", "is": "changed" }]);
    assert_eq!(seen(&served), (both, changed));
    ask(&served, "DELETE", "/v1/ports/a", &json!({}));
    let removed = json!([{ "subject": "port a", "is": "removed" }]);
    assert_eq!(seen(&served), (json!([["b", ["api"]]]), removed.clone()));
    let served = restart(served, &config(&["a"]));
    assert_eq!(seen(&served), (json!([["b", ["api"]]]), removed));
    // It is the file's again, and the API's.
    ask(&served, "POST", "/v1/ports", &json!({ "name": "a", "kind": "sink" }));
    ask(&served, "DELETE", "/v1/ports/b", &json!({}));
    assert_eq!(seen(&served), (json!([["a", ["file", "api"]]]), json!([])));
    served.end();
}

/// Takes out of a saved state who wanted what, as version 0.2 wrote it.
fn forget_authors(dir: &Path) {
    let path = dir.join("saved/state");
    let text = std::fs::read(&path).expect("it was saved");
    let mut document = Document::parse(&text).expect("it is whole");
    assert_eq!(document.authors.len(), 1, "{:?}", document.authors);
    document.authors.clear();
    let text = document.text();
    assert!(!text.contains("authors"), "{text}");
    std::fs::write(&path, text).expect("there is room");
}

#[test]
fn a_state_of_an_earlier_version_is_the_author_of_what_it_brings_back() {
    let served = Served::start("authors-before", &config(&["a"]));
    ask(&served, "POST", "/v1/ports", &json!({ "name": "b", "kind": "sink" }));
    let dir = served.stop();
    forget_authors(&dir);
    let served = Served::start_in(dir, &config(&["a"]));
    let there = json!([["a", ["file"]], ["b", ["saved"]]]);
    assert_eq!(seen(&served), (there.clone(), json!([])));
    reload(&served, &config(&["a"])).expect("it is fine");
    let served = restart(served, &config(&["a"]));
    assert_eq!(seen(&served).0, there);
    assert_eq!(served.get("/v1/status")["failures"], json!([]));
    ask(&served, "DELETE", "/v1/ports/b", &json!({}));
    assert_eq!(seen(&served), (json!([["a", ["file"]]]), json!([])));
    served.end();
}

#[test]
fn what_does_not_go_together_is_refused_or_left_out_by_name() {
    let served = Served::start("authors-conflict", &config(&["a"]));
    ask(&served, "POST", "/v1/bridges", &json!({ "name": "x", "ageing": 300 }));
    ask(&served, "POST", "/v1/bridges", &json!({ "name": "y", "ageing": 300 }));
    let bridges = |served: &Served| {
        let all = served.get("/v1/bridges");
        let all = all.as_array().expect("a list").iter();
        all.map(|it| json!([it["name"], it["wanted_by"]])).collect::<Value>()
    };
    assert_eq!(bridges(&served), json!([["x", ["api"]], ["y", ["api"]]]));
    // The file has a port of that name: a reload is refused.
    let why = reload(&served, &config(&["a", "x"])).expect_err("the name is taken");
    assert!(why.contains("port x: ports[1].name: the name \"x\" is taken"), "{why}");
    assert_eq!(seen(&served).0, json!([["a", ["file"]]]));
    assert_eq!(bridges(&served), json!([["x", ["api"]], ["y", ["api"]]]));
    // A start isn't: what the file wants comes, and of the rest what goes together with it.
    let served = restart(served, &config(&["a", "x"]));
    assert_eq!(seen(&served).0, json!([["a", ["file"]], ["x", ["file"]]]));
    assert_eq!(bridges(&served), json!([["y", ["api"]]]));
    let failures = served.get("/v1/status")["failures"].clone();
    assert_eq!(failures[0]["subject"], json!("saved bridge x"), "{failures}");
    served.end();
}
