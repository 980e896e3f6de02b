//! No configuration file and no request makes the daemon's entrances panic or hang; what they
//! accept can be written down and read again.

use std::path::Path;

use towpath_daemon::api;
use towpath_daemon::api::types::{EntryRequest, LinkRequest};
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::{State, kinds};
use towpath_document::Document;

#[test]
fn any_text_as_a_configuration() {
    bolero::check!().with_type::<String>().for_each(|text| read_file(text));
}

#[test]
fn a_real_configuration_with_pieces_changed() {
    let pieces: Vec<&str> = CONFIG.split_inclusive([' ', '\n', '"']).collect();
    bolero::check!().with_type::<Vec<(u8, u8, String)>>().for_each(|changes| {
        let mut text: Vec<&str> = pieces.clone();
        for (at, from, new) in changes {
            let len = text.len();
            // Another piece of it, or something new.
            let piece = pieces[usize::from(*from) % pieces.len()];
            text[usize::from(*at) % len] = if new.is_empty() { piece } else { new };
        }
        read_file(&text.concat());
    });
}

#[test]
fn any_bytes_as_a_request() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| read_requests(bytes));
}

#[test]
fn a_real_request_with_bytes_changed() {
    let real = serde_json::to_vec(&state()).expect("it is data");
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut bytes = real.clone();
        let len = bytes.len();
        for (at, value) in changes {
            bytes[usize::from(*at) % len] = *value;
        }
        read_requests(&bytes);
    });
}

fn read_file(text: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match parse(text, Path::new("t.toml"), here, &ObjectFiles::default()) {
        Ok(loaded) => {
            let json = serde_json::to_vec(&loaded.state).expect("it is data");
            let back: State = serde_json::from_slice(&json).expect("it was one");
            assert_eq!(back, loaded.state);
            assert!(back.problems().is_empty());
        }
        Err(error) => {
            assert!(!error.lines.is_empty());
            assert!(error.lines.iter().all(|line| line.starts_with("t.toml:")), "{error}");
        }
    }
}

fn read_requests(bytes: &[u8]) {
    if let Ok(state) = api::parse::<State>(bytes) {
        let problems = state.problems();
        assert!(problems.iter().all(|problem| !problem.message.is_empty()));
    }
    // Errors say something.
    if let Err(error) = api::parse::<LinkRequest>(bytes) {
        assert!(!error.message.is_empty());
    }
    if let Err(error) = api::parse::<EntryRequest>(bytes) {
        assert!(!error.message.is_empty());
    }
    if let Ok(table) = api::parse(bytes)
        && let Ok(port) = kinds::port_from_table(table)
    {
        assert_eq!(kinds::check(&port), Ok(()));
    }
}

fn state() -> State {
    let document = Document::parse(CONFIG).expect("it is TOML");
    assert!(!document.json.is_empty());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let loaded = parse(CONFIG, Path::new("t.toml"), here, &ObjectFiles::default());
    loaded.expect("it is a configuration").state
}

const CONFIG: &str = r#"
[api]
socket = "/run/x.sock"
mode = "0660"
[metrics]
listen = "127.0.0.1:9464"
[engine]
frames = 4096
[[worker]]
cpu = 0
mode = "busy"
[[bridge]]
name = "br0"
ageing = 10
[[port]]
name = "p0"
kind = "pair"
peer = "p1"
upper = "br0"
mtu = 9000
[[port]]
name = "p1"
kind = "pair"
peer = "p0"
ring = 16
[[port]]
name = "gen"
kind = "generator"
rate = 10
fields = [{ offset = 30, width = 4, min = 1, max = 9, change = "random" }]
workers = [0]
"#;
