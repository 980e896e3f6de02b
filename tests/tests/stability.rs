//! The promises of docs/stability.md, compared with the last release (`tests/stable`).
//!
//! Additions are allowed; nothing may be removed, and no request may need more. After a release,
//! `TOWPATH_BLESS=1 cargo test --workspace stable` rewrites the files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// The last release's file; `TOWPATH_BLESS` rewrites it first.
fn released(name: &str, now: &str) -> String {
    let path: PathBuf = top().join("tests/stable").join(name);
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        fs::write(&path, now).expect("the repository is writable");
    }
    fs::read_to_string(path).expect("it is in the repository")
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "see docs/stability.md:\n{}", complaints.join("\n"));
}

#[test]
fn stable_c_declarations_are_still_there() {
    let headers = [
        ("towpath.h", "crates/capi/include/towpath/towpath.h"),
        ("xsk.h", "crates/xsk/include/towpath/xsk.h"),
    ];
    for (name, path) in headers {
        let now = fs::read_to_string(top().join(path)).expect("it is in the repository");
        let (old, new) = (declarations(&released(name, &now)), declarations(&now));
        assert!(old.len() > 10, "{name}: {old:?}");
        let gone = old.difference(&new).map(|it| format!("{name} lost: {it}"));
        assert_none(&gone.collect::<Vec<_>>());
    }
}

/// Declarations of a header, each on a line: structures as a whole, since their size is seen; of
/// inline functions what callers see.
fn declarations(header: &str) -> BTreeSet<String> {
    let (mut found, mut current, mut depth) = (BTreeSet::new(), String::new(), 0);
    for c in code(header).chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        current.push(c);
        let is_body = c == '}' && depth == 0 && current.contains(") {");
        if depth == 0 && (c == ';' || is_body) {
            let declared = if is_body { current.split(") {").next() } else { Some(&*current) };
            let words = declared.unwrap_or_default().trim_end_matches(';').split_whitespace();
            found.insert(words.collect::<Vec<_>>().join(" "));
            current.clear();
        }
    }
    found
}

/// A header without comments, directives, and what only C++ sees.
fn code(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_comment, after)| after);
    }
    text.push_str(rest);
    // A directive may go on in the next line.
    let text = text.replace("\\\n", " ");
    let mut is_cplusplus = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        if line.starts_with('#') {
            is_cplusplus = line.starts_with("#ifdef __cplusplus");
        } else if !is_cplusplus {
            lines.push(line);
        }
    }
    lines.join(" ")
}

#[test]
fn stable_c_functions_are_exported() {
    let libraries = [
        ("libtowpath.symbols", "crates/capi/src/capi_unsafe.rs"),
        ("libtowpath_xsk_client.symbols", "crates/xsk/capi/src/capi_unsafe.rs"),
    ];
    for (name, path) in libraries {
        let source = fs::read_to_string(top().join(path)).expect("it is in the repository");
        let behind = source.split("#[unsafe(no_mangle)]").skip(1);
        let exported = behind.filter_map(|it| it.split_once("fn ")?.1.split('(').next());
        let new: BTreeSet<&str> = exported.collect();
        let now = new.iter().fold(String::new(), |text, name| text + name + "\n");
        let old = released(name, &now);
        let gone =
            old.lines().filter(|it| !new.contains(it)).map(|it| format!("{name} lost: {it}"));
        assert_none(&gone.collect::<Vec<_>>());
    }
}

#[test]
fn stable_paths_and_types_of_the_api_are_still_there() {
    let mut new = towpath_daemon::api::openapi();
    without_prose(&mut new);
    let now = serde_json::to_string_pretty(&new).expect("it is JSON");
    let old: Json = serde_json::from_str(&released("openapi.json", &now)).expect("it is JSON");
    let mut complaints = Vec::new();
    compare(&old, &new, "", &mut complaints);
    let mut asked = BTreeSet::new();
    requests(&new["paths"], &new, false, &mut asked);
    for name in asked {
        let of = |document: &Json| required(&document["components"]["schemas"][&name]);
        if !old["components"]["schemas"][&name].is_null() {
            let more = of(&new).difference(&of(&old)).cloned().collect::<Vec<_>>();
            let more = more.iter().map(|it| format!("{name}: {it} was not asked for"));
            complaints.extend(more);
        }
    }
    assert_none(&complaints);
}

/// Texts for people may change.
fn without_prose(value: &mut Json) {
    match value {
        Json::Object(members) => {
            let is_prose = |key: &str, value: &Json| {
                ["description", "summary", "operationId", "example", "tags"].contains(&key)
                    && !value.is_object()
            };
            members.retain(|key, value| !is_prose(key, value) && key != "info");
            members.values_mut().for_each(without_prose);
        }
        Json::Array(elements) => elements.iter_mut().for_each(without_prose),
        _ => {}
    }
}

/// Compares documents: each member of an old object and each element of an old list must exist.
fn compare(old: &Json, new: &Json, place: &str, complaints: &mut Vec<String>) {
    match (old, new) {
        (Json::Object(members), Json::Object(_)) => {
            for (key, value) in members {
                compare(value, &new[key], &format!("{place}/{key}"), complaints);
            }
        }
        // Required keys are compared apart: answers keep theirs, and requests may have fewer.
        (Json::Array(_), _) if place.ends_with("/required") => {}
        (Json::Array(before), Json::Array(after)) => {
            for element in before {
                let is_there = after.iter().any(|it| {
                    let mut differences = Vec::new();
                    compare(element, it, "", &mut differences);
                    differences.is_empty()
                });
                if !is_there {
                    complaints.push(format!("{place} lost: {element}"));
                }
            }
        }
        _ if old != new => complaints.push(format!("{place}: was {old}, is {new}")),
        _ => {}
    }
}

fn required(schema: &Json) -> BTreeSet<String> {
    let listed = schema["required"].as_array().into_iter().flatten();
    listed.filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Names of types that clients send.
fn requests(value: &Json, whole: &Json, is_sent: bool, found: &mut BTreeSet<String>) {
    match value {
        Json::Object(members) => {
            for (key, member) in members {
                let name = member.as_str().filter(|_it| key == "$ref" && is_sent);
                let name = name.and_then(|it| it.rsplit('/').next());
                if let Some(name) = name.filter(|it| found.insert((*it).to_owned())) {
                    requests(&whole["components"]["schemas"][name], whole, true, found);
                }
                requests(member, whole, is_sent || key == "requestBody", found);
            }
        }
        Json::Array(elements) => {
            elements.iter().for_each(|it| requests(it, whole, is_sent, found));
        }
        _ => {}
    }
}

#[test]
fn what_is_lost_is_found() {
    let old = serde_json::json!({"a": {"enum": ["x", "y"]}, "b": 1, "required": ["a"]});
    let mut complaints = Vec::new();
    compare(
        &old,
        &serde_json::json!({"a": {"enum": ["z", "x", "y"]}, "b": 1}),
        "",
        &mut complaints,
    );
    assert_none(&complaints);
    compare(&old, &serde_json::json!({"a": {"enum": ["x"]}}), "", &mut complaints);
    assert_eq!(complaints, ["/a/enum lost: \"y\"", "/b: was 1, is null"]);
    let header = "/* a; */\n#define X 1\nstruct s {\n int a;\n};\nint f(void); int g(\n  int a);\n";
    let found = declarations(header);
    assert_eq!(Vec::from_iter(&found), ["int f(void)", "int g( int a)", "struct s { int a; }"]);
}
