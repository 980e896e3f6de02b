//! Lines about links that go up and down, monitors that come and go, and clients that send
//! nonsense, at any rate.

mod namespaces;
mod served;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use towpath_daemon::client::Client;

use namespaces::{Namespaces, ip};
use served::Served;

const LIMIT: Duration = Duration::from_secs(10);
/// Lines of one subject that come at once.
const LINES_MAX: usize = 5;

/// The daemon's messages from now on.
fn listen(served: &Served) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let client = Client::new(&served.dir.join("api.sock")).expect("there are descriptors");
    let kept = Arc::clone(&heard);
    std::thread::spawn(move || {
        let _ended = client.events("/v1/events", |_kind, event| {
            kept.lock().push(event["text"].as_str().unwrap_or_default().to_owned());
            true
        });
    });
    // It hears when something else is heard.
    served.wait("a listener", LIMIT, || {
        let add = serde_json::json!({ "name": "b" });
        let _added: Result<Value, _> = served.client.json("POST", "/v1/bridges", &add);
        let _gone: Result<Value, _> = served.client.json("DELETE", "/v1/bridges/b", &Value::Null);
        !heard.lock().is_empty()
    });
    heard
}

fn count(heard: &Mutex<Vec<String>>, text: &str) -> usize {
    heard.lock().iter().filter(|line| line.starts_with(text)).count()
}

fn link_failures(served: &Served) -> Vec<String> {
    let status = served.get("/v1/status");
    let failures = status["failures"].as_array().expect("a list").clone();
    let of_links = failures.iter().filter(|it| it["code"] == "port-link");
    of_links.map(|it| format!("{}: {}", it["subject"], it["why"])).collect()
}

#[test]
fn a_link_that_is_lost_is_told_as_long_as_it_is() {
    let Some(namespaces) = Namespaces::new("comings") else {
        return println!("skipped: network namespaces need root and /dev/net/tun");
    };
    namespaces.wire("near0", "far0", "");
    let config =
        format!("[[port]]\nname = \"near0\"\nkind = \"packet\"\nnetns = \"{}\"\n", namespaces.near);
    let served = Served::start("comings-link", &config);
    let heard = listen(&served);
    // The far end goes down, and this one stays up.
    let set = |state: &str| ip(&["-n", &namespaces.far, "link", "set", "far0", state]);
    for round in 1..=3 {
        set("down");
        served.wait("a line", LIMIT, || count(&heard, "port near0: its link is lost") >= round);
        assert_eq!(link_failures(&served), ["\"port near0\": \"its link is lost\""]);
        set("up");
        // The look at `status` sees it at once.
        served.wait("link", LIMIT, || served.get("/v1/ports/near0")["link"] == Value::Bool(true));
        assert_eq!(link_failures(&served), [] as [String; 0]);
        served.wait("its end", LIMIT, || {
            count(&heard, "over: port near0: its link is lost") >= round
        });
    }
    served.end();
}

#[test]
fn monitors_that_come_and_go_and_nonsense_are_told_in_few_lines() {
    let dir = std::env::temp_dir().join(format!("towpath-monitors-{}", std::process::id()));
    let _absent = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("there is room");
    let socket = dir.join("vm.sock");
    let config = format!(
        "[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\npath = \"{}\"\n",
        socket.display()
    );
    let served = Served::start_in(dir, &config);
    let heard = listen(&served);
    let monitor = UnixStream::connect(&socket).expect("it listens");
    served.wait("a line", LIMIT, || count(&heard, "port vm: a monitor came") == 1);
    drop(monitor);
    served.wait("a line", LIMIT, || count(&heard, "port vm: a monitor went") == 1);
    let garbage = |path: &Path| {
        let mut stream = UnixStream::connect(path).expect("it listens");
        let _hung_up = stream.write_all(&[0xff; 64]);
        // Read to the end: a monitor that leaves before its answer counts as gone, not as refused.
        let _reset = stream.read_to_end(&mut Vec::new());
    };
    garbage(&socket);
    served.wait("a line", LIMIT, || count(&heard, "port vm: a monitor was refused") == 1);
    for _ in 0..300 {
        garbage(&served.dir.join("api.sock"));
    }
    let from_us = format!("API socket: process {} of user", std::process::id());
    // On a slow machine, the requests take longer than the time for which lines are summed up.
    let left_out = || -> Vec<usize> {
        let heard = heard.lock();
        let lines = heard.iter().filter_map(|line| line.strip_prefix("API socket: "));
        lines.filter_map(|it| it.split_once(" more lines in 10 s")?.0.parse().ok()).collect()
    };
    let all = || count(&heard, &from_us) + left_out().iter().sum::<usize>();
    served.wait("all of them", 6 * LIMIT, || all() == 300);
    let lines = count(&heard, &from_us);
    let most = LINES_MAX * (left_out().len() + 1);
    assert!((LINES_MAX..=most).contains(&lines), "{lines}");
    assert_eq!(served.get("/v1/status")["failures"], serde_json::json!([]), "that is no failure");
    served.end();
}
