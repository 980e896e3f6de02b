//! Doors that somebody holds: to the API, to metrics, to sockets. Everybody else is let in all the
//! same, and at once.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use towpath_xsk_client::Connection;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// Less than the daemon gives a connection that says nothing (5 s): a caller who waits for another
/// one's end is kept out for longer, and one who waits for a processor is not.
const LIMIT: Duration = Duration::from_secs(4);
const MIB: usize = 1 << 20;

/// The configuration, with metrics at a port that nobody has.
fn config() -> (String, u16) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it is bound").port();
    (format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n{CONFIG}"), port)
}

impl<'a> Daemon<'a> {
    /// One that may have so many descriptors.
    fn with_descriptors(bench: &'a Bench, config: &str, count: u32) -> Daemon<'a> {
        let limited = format!("ulimit -n {count}; exec \"$0\" \"$@\"");
        Daemon::start_by(bench, config, &["sh", "-c", &limited])
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.bench.path(SOCKET)).expect("somebody listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
        stream
    }

    /// Sends this and nothing more.
    fn hold(&self, request: &str) -> UnixStream {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("somebody listens");
        stream
    }

    /// Status and text of an answer, which comes soon.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let start = Instant::now();
        let mut stream = self.hold(&format!(
            "{method} {path} HTTP/1.1\r\nhost: towpath\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let answer = answer(&mut stream);
        assert!(start.elapsed() < LIMIT, "{method} {path} after {:?}", start.elapsed());
        answer
    }

    fn is_answered(&self, method: &str, path: &str, body: &str) {
        let (status, text) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {text}");
    }

    /// Bytes of memory that it has, without the pages of files: LLVM is opened when it likes.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it has some");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }
}

fn answer(stream: &mut (impl std::io::Read + Write)) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it is answered");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), text)
}

fn scrape(port: u16) {
    let start = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: towpath\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("somebody listens");
    let (status, text) = answer(&mut stream);
    assert!(status == 200 && text.contains("towpath_port_rx_frames"), "{text}");
    assert!(start.elapsed() < LIMIT, "after {:?}", start.elapsed());
}

#[test]
fn idle_connections_lock_nobody_out() {
    let bench = Bench::new("doors_idle");
    let (config, metrics) = config();
    let daemon = Daemon::with_descriptors(&bench, &config, 256);
    let idle = || TcpStream::connect(("127.0.0.1", metrics)).expect("somebody listens");
    let mut scrapers = Vec::new();
    let mut callers = Vec::new();
    for _ in 0..300 {
        scrapers.push(idle());
        callers.push(daemon.hold("GET /v1/status HTTP/1.1\r\nhost:"));
    }
    for _ in 0..10 {
        daemon.is_answered("GET", "/v1/status", "");
        scrape(metrics);
    }
    for number in 0..20 {
        let port =
            json!({"name": format!("a{number}"), "kind": "pair", "peer": format!("b{number}")});
        daemon.is_answered("POST", "/v1/ports", &port.to_string());
    }
    // Applications that connect and say nothing have places of their own, not all of them.
    let path = bench.path(&format!("{SOCKET}.xsk"));
    let mut silent: Vec<Connection> = Vec::new();
    let refused = loop {
        match Connection::open(&path) {
            Ok(connection) => silent.push(connection),
            Err(error) => break error,
        }
        assert!(silent.len() < 256, "there is a limit");
    };
    assert_eq!(refused.raw_os_error(), Some(24), "EMFILE: {refused}");
    assert!(silent.len() >= 20, "{}", silent.len());
    daemon.is_answered("GET", "/v1/status", "");
    let port = json!({"name": "last", "kind": "pair", "peer": "tsal"});
    daemon.is_answered("POST", "/v1/ports", &port.to_string());
    silent.pop();
    daemon.wait_for("a place", || Connection::open(&path).is_ok());
    let ended = daemon.json(&["xsk", "count", "gen", "-n", "100"]);
    assert_eq!(ended["packets"], 100);
    drop((scrapers, callers, silent));
    daemon.end();
}

#[test]
fn who_holds_a_request_or_an_answer_delays_nobody() {
    let bench = Bench::new("doors_held");
    let (config, metrics) = config();
    let daemon = Daemon::start(&bench, &config);
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let head = "PUT /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-length: 8388608\r\n\r\n7f";
    let held = [
        "GET /v1/sta",
        head,
        "POST /v1/reload HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n",
        "GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /v1/ports/gen/dump HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n",
    ];
    let held: Vec<UnixStream> = held.iter().map(|request| daemon.hold(request)).collect();
    let scraper = TcpStream::connect(("127.0.0.1", metrics)).expect("somebody listens");
    let silent = Connection::open(&bench.path(&format!("{SOCKET}.xsk"))).expect("it is let in");
    for round in 0..20 {
        for path in ["/v1/status", "/v1/stats", "/v1/state", "/v1/ports/gen"] {
            daemon.is_answered("GET", path, "");
        }
        scrape(metrics);
        // News, which those who listen do not read.
        let change = json!({ "mtu": 1400 + round }).to_string();
        daemon.is_answered("PATCH", "/v1/ports/p0", &change);
    }
    let before = daemon.rx("gen");
    daemon.wait_for("traffic", || daemon.rx("gen") > before + 1000);
    daemon.end();
    drop((held, scraper, silent));
}

#[test]
fn unfinished_bodies_have_a_limit_together_and_give_their_memory_back() {
    let bench = Bench::new("doors_bodies");
    let daemon = Daemon::start(&bench, CONFIG);
    let before = daemon.memory();
    let body = vec![7; 8 * MIB - 1];
    let unfinished: Vec<UnixStream> = (0..150)
        .map(|_| {
            let head = format!(
                "PUT /v1/objects HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
                body.len() + 1
            );
            let mut stream = daemon.hold(&head);
            // Those for whom there is no room are told so while they write.
            let _refused = stream.write_all(&body);
            stream
        })
        .collect();
    let most = daemon.memory();
    assert!(most < before + 256 * MIB, "{} MiB more", (most - before) / MIB);
    daemon.is_answered("GET", "/v1/status", "");
    // There is room for one who has something to say.
    let state = daemon.ask("GET", "/v1/state", "").1;
    let state: Value = state
        .split("\r\n\r\n")
        .nth(1)
        .map(serde_json::from_str)
        .expect("it has a body")
        .expect("JSON");
    daemon.is_answered("PUT", "/v1/state", &format!("{state}{}", " ".repeat(MIB)));
    drop(unfinished);
    daemon.wait_for("memory that is given back", || daemon.memory() < before + 32 * MIB);
    daemon.end();
}
