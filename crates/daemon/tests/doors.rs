//! Sockets that can't be made keep no port from working.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use towpath_daemon::client::Client;
use towpath_daemon::{Options, up};

/// The value of a metric, if the daemon answers.
fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_daemon_whose_sockets_cant_be_made_forwards_and_makes_them_later() {
    let dir = std::env::temp_dir().join(format!("towpath-doors-{}", std::process::id()));
    let _absent = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("there is room");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let config = format!(
        "[metrics]\nlisten = \"{address}\"\n\
         [[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 20000\nupper = \"out\"\n\
         frames = [\"02000000000102000000000108000000000000000000000000000000\"]\n\
         [[port]]\nname = \"out\"\nkind = \"sink\"\n"
    );
    std::fs::write(dir.join("t.toml"), config).expect("there is room");
    // A file where the sockets' directory, with the lock in it, is to be.
    std::fs::write(dir.join("run"), "").expect("there is room");
    let socket = dir.join("run/api.sock");
    let options = Options {
        config: Some(dir.join("t.toml")),
        socket: Some(socket.clone()),
        quiet: true,
        ..Options::default()
    };
    let thread = std::thread::spawn(move || up(&options));
    let sent = "towpath_port_tx_frames_total{port=\"out\"}";
    wait_for("frames", || metric(address, sent).is_some_and(|count| count > 1000.0));
    assert_eq!(metric(address, "towpath_failures "), Some(2.0), "both sockets");
    std::fs::remove_file(dir.join("run")).expect("it is ours");
    let client = Client::new(&socket).expect("there are descriptors");
    wait_for("an answer", || client.get::<Value>("/v1/status").is_ok());
    wait_for("peace", || metric(address, "towpath_failures ") == Some(0.0));
    assert!(std::fs::exists(dir.join("run/api.sock.xsk")).expect("it is ours"));
    let ours = rustix::process::getpid();
    rustix::process::kill_process(ours, rustix::process::Signal::TERM).expect("it is us");
    thread.join().expect("no panic").expect("no error");
    std::fs::remove_dir_all(&dir).expect("it is ours");
}
