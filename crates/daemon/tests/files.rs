//! Files that are no files: FIFOs that nobody reads or writes hang nothing, and where a file is
//! needed they are refused.

mod served;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::{Value, json};
use towpath_daemon::client::ClientError;

use served::Served;

const FRAME: [u8; 60] = [0x5a; 60];
/// What a status takes is milliseconds; what hangs takes for ever.
const LIMIT: Duration = Duration::from_secs(10);

fn fifo(served: &Served, name: &str) -> PathBuf {
    let path = served.dir.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room");
    path
}

/// Somebody who opens it and reads nothing.
fn holds(path: &PathBuf) -> File {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).expect("it is there").into()
}

/// Everybody is answered, and frames flow.
fn is_alive(served: &Served) {
    let start = Instant::now();
    served.get("/v1/status");
    let before = received(served, "gen");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    served.wait("frames", Duration::from_secs(10), || received(served, "gen") > before + 100);
}

fn received(served: &Served, port: &str) -> u64 {
    served.get("/v1/stats")["ports"][port]["rx_packets"].as_u64().unwrap_or_default()
}

/// A capture (pcap) of [`FRAME`].
fn capture_of_one() -> Vec<u8> {
    let version = 4 << 16 | 2;
    let len = FRAME.len() as u32;
    // Magic, version, two zeros, length limit, Ethernet; time, length here and of the packet.
    let words = [0xa1b2_c3d4, version, 0, 0, 1 << 16, 1, 0, 0, len, len];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).chain(FRAME).collect()
}

fn set(served: &Served, key: &str, value: &Value) -> Result<Value, ClientError> {
    served.client.json("PATCH", "/v1/ports/gen", &json!({ key: value }))
}

fn add(served: &Served, port: &Value) -> Result<Value, ClientError> {
    served.client.json("POST", "/v1/ports", port)
}

#[test]
fn fifos_hang_nothing_and_are_refused_where_files_are_needed() {
    let config = "[[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 20000\nupper = \"out\"\n\
                  frames = [\"02000000000202000000000108000000000000000000000000000000\"]\n\
                  [[port]]\nname = \"out\"\nkind = \"sink\"\n";
    let served = Served::start("files", config);
    let (silent, unread, read) =
        (fifo(&served, "silent"), fifo(&served, "unread"), fifo(&served, "read"));

    // To be written, it needs a reader.
    for key in ["record", "trace"] {
        let error = set(&served, key, &json!(unread)).expect_err("nobody reads it");
        assert!(error.to_string().contains("this FIFO has no reader"), "{error}");
        let error = set(&served, key, &json!(served.dir)).expect_err("a directory");
        assert!(error.to_string().contains("directory"), "{error}");
        let error = set(&served, key, &json!(served.dir.join("api.sock"))).expect_err("a socket");
        assert!(error.to_string().contains("it is a socket"), "{error}");
    }
    let out = json!({"name": "wire", "kind": "pcap", "out": unread});
    let error = add(&served, &out).expect_err("nobody reads it");
    assert!(error.to_string().contains("this FIFO has no reader"), "{error}");
    is_alive(&served);

    // One that is there, and reads nothing, stops nobody, and what is lost is counted.
    let _held = holds(&read);
    for key in ["trace", "record"] {
        set(&served, key, &json!(read)).expect("somebody has it");
        is_alive(&served);
        let is_behind = || {
            let status = served.get("/v1/status");
            let detail = &status["ports"][0]["details"][key];
            detail.as_str().is_some_and(|it| it.contains("not written"))
        };
        served.wait("loss", Duration::from_secs(60), is_behind);
        is_alive(&served);
        set(&served, key, &Value::Null).expect("it ends");
    }

    // Nor does one who writes nothing.
    let mut heard = holds(&unread);
    add(&served, &out).expect("somebody has it");
    let input = json!({"name": "in", "kind": "pcap", "in": silent, "upper": "wire"});
    add(&served, &input).expect("it may come");
    is_alive(&served);
    // What comes goes on at once, while both are open.
    let mut writer = File::options().write(true).open(&silent).expect("it is read");
    writer.write_all(&capture_of_one()).expect("it is read");
    served.wait("a frame", Duration::from_secs(10), || received(&served, "in") == 1);
    let mut copied = Vec::new();
    let start = Instant::now();
    while !copied.windows(FRAME.len()).any(|it| it == FRAME) {
        // Nothing yet is an error here.
        let _later = heard.read_to_end(&mut copied);
        assert!(start.elapsed() < Duration::from_secs(10), "{} bytes", copied.len());
        std::thread::sleep(Duration::from_millis(5));
    }

    // What is read as a whole is a file.
    for (key, more) in [("object", ""), ("maps", "object = \"/dev/null\"\n")] {
        let path = silent.display();
        let text = format!("{config}[[attach]]\nport = \"gen\"\n{more}{key} = \"{path}\"\n");
        std::fs::write(served.dir.join("t.toml"), text).expect("there is room");
        let reloaded: Result<Value, _> = served.client.json("POST", "/v1/reload", &json!({}));
        let error = reloaded.expect_err("no file").to_string();
        assert!(error.contains(&format!("{path}: this is no regular file")), "{error}");
    }
    is_alive(&served);
    let start = Instant::now();
    served.end();
    assert!(start.elapsed() < 2 * LIMIT, "{:?}", start.elapsed());
}
