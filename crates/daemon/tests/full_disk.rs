//! On a full disk, recordings end with a message; traffic goes on.

mod served;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use towpath_daemon::client::Client;

use served::Served;

const LIMIT: Duration = Duration::from_secs(20);

/// A small disk.
struct Disk(PathBuf);

impl Disk {
    fn mount() -> Option<Disk> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let path = std::env::temp_dir().join(format!("towpath-small-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("there is room");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none"])
            .arg(&path)
            .status();
        let is_mounted = mount.is_ok_and(|status| status.success());
        let disk = Disk(path);
        is_mounted.then_some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _not_mounted = Command::new("umount").arg("-l").arg(&self.0).status();
        let _not_empty = std::fs::remove_dir(&self.0);
    }
}

fn config(disk: &Path) -> String {
    let disk = disk.display();
    format!(
        "[[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 20000\nupper = \"out\"\n\
         frames = [\"02000000000202000000000108000000000000000000000000000000\"]\n\
         record = \"{disk}/record\"\ntrace = \"{disk}/trace\"\n\
         [[port]]\nname = \"out\"\nkind = \"pcap\"\nout = \"{disk}/out\"\n"
    )
}

fn failures(served: &Served) -> Vec<String> {
    let status = served.get("/v1/status");
    let failures = status["failures"].as_array().expect("a list").clone();
    failures
        .iter()
        .filter_map(|it| Some(format!("{}: {}", it["subject"].as_str()?, it["why"].as_str()?)))
        .collect()
}

/// A number of `/v1/stats` about a port.
fn count(served: &Served, port: &str, name: &str) -> u64 {
    served.get("/v1/stats")["ports"][port][name].as_u64().unwrap_or_default()
}

fn detail(served: &Served, port: &str, name: &str) -> String {
    let port = served.get(&format!("/v1/ports/{port}"));
    port["details"][name].as_str().expect("a detail").to_owned()
}

/// The failures from now on.
fn listen(served: &Served) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (client, kept) = (Client::new(&served.dir.join("api.sock")), Arc::clone(&heard));
    let client = client.expect("there are descriptors");
    std::thread::spawn(move || {
        let _ended = client.events("/v1/events", |_kind, event| {
            if event["kind"] == json!("failure") {
                let text = event["text"].as_str().unwrap_or_default().to_owned();
                kept.lock().push(text);
            }
            true
        });
    });
    heard
}

#[test]
fn a_full_disk_ends_recordings_and_nothing_else() {
    let Some(disk) = Disk::mount() else {
        return println!("skipped: a disk that is soon full needs root");
    };
    let served = Served::start("full", &config(&disk.0));
    let heard = listen(&served);
    let ended = |what: &str| {
        let what = format!("{what} ended: ");
        failures(&served).iter().any(|it| it.contains(&what) && it.contains("No space left"))
    };
    let record = format!("port gen: record {}/record", disk.0.display());
    let out = format!("port out: out {}/out", disk.0.display());
    for what in [record.as_str(), "port gen: trace", &out] {
        served.wait(what, LIMIT, || ended(what));
    }
    served.wait("events", LIMIT, || {
        let heard = heard.lock();
        let news = |what: &str| heard.iter().filter(|it| it.starts_with(what)).count();
        [news(&record), news("port gen: trace"), news(&out)] == [1, 1, 1]
    });
    // Frames go on, and what is not written is counted.
    let (before, shown) = (count(&served, "gen", "rx_packets"), detail(&served, "gen", "record"));
    served.wait("frames", LIMIT, || count(&served, "gen", "rx_packets") > before + 1000);
    assert!(shown.contains("ended") && shown.ends_with(" frames not written"), "{shown}");
    assert_ne!(detail(&served, "gen", "record"), shown);
    assert!(detail(&served, "gen", "trace").ends_with(" frames not written"));
    let drops = served.get("/v1/stats")["ports"]["out"]["tx_drops"]["tx_error"].clone();
    assert!(drops.as_u64().is_some_and(|drops| drops > 0), "{drops}");
    // Another change is accepted all the same, and starts a new file.
    let dir = served.dir.display();
    let patch = json!({ "record": format!("{dir}/record"), "trace": Value::Null });
    served.client.json::<Value>("PATCH", "/v1/ports/gen", &patch).expect("there is room");
    assert!(failures(&served).iter().all(|it| !it.contains("port gen")), "{:?}", failures(&served));
    let patch = json!({ "out": format!("{dir}/out") });
    served.client.json::<Value>("PATCH", "/v1/ports/out", &patch).expect("there is room");
    served.wait("peace", LIMIT, || failures(&served).is_empty());
    served.wait("no loss", LIMIT, || served.get("/v1/stats")["frames"]["missing"] == json!(0));
    served.end();
}
