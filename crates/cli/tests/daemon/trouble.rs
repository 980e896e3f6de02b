//! Nothing beside the data plane stops it: what can't be had is a failure as long as it can't, and
//! is tried again.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use towpath_xsk_client::Connection;

use super::restart::kept;
use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

impl Daemon<'_> {
    /// Failures in `status` that have this code.
    fn failures(&self, code: &str) -> Vec<Value> {
        let status = self.json(&["status"]);
        let all = status["failures"].as_array().expect("a list").clone();
        all.into_iter().filter(|failure| failure["code"] == json!(code)).collect()
    }

    fn wait_for_peace(&self) {
        self.wait_for("peace", || self.json(&["status"])["failures"] == json!([]));
    }

    fn forwards(&self) {
        let before = self.rx("gen");
        self.wait_for("traffic", || self.rx("gen") > before + 1000);
    }
}

/// A file system of its own.
struct Disk(PathBuf);

impl Disk {
    fn mount(bench: &Bench, name: &str) -> Option<Disk> {
        let path = bench.path(name);
        std::fs::create_dir(&path).expect("there is room");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(&path).stderr(Stdio::null());
        let is_mounted = mount.status();
        let is_root = rustix::process::geteuid().is_root();
        is_mounted.is_ok_and(|status| status.success() && is_root).then_some(Disk(path))
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(done.expect("mount is there").success(), "{how}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _not_mounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_state_directory_that_is_read_only_stops_nothing_and_keeps_what_is_saved() {
    let bench = Bench::new("trouble_read_only");
    let Some(disk) = Disk::mount(&bench, "disk") else {
        return println!("skipped: a file system that is read-only needs root");
    };
    let config = kept().replacen("dir = \"saved\"", "dir = \"disk/saved\"", 1);
    // Nothing was ever saved there.
    disk.remount("ro");
    let daemon = Daemon::start(&bench, &config);
    daemon.forwards();
    let failures = daemon.failures("state");
    assert!(
        failures[0]["why"].as_str().is_some_and(|why| why.contains("Read-only")),
        "{failures:?}"
    );
    let refused = daemon.refusal(1, &["port", "add", "more", "kind=sink"]);
    assert!(refused.contains("it can't be saved, and was undone"), "{refused}");
    disk.remount("rw");
    daemon.wait_for_peace();
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.end();
    // Saved programs and ports come back even while nothing can be saved.
    disk.remount("ro");
    let daemon = Daemon::start(&bench, &config);
    let ports = daemon.json(&["status"])["ports"].to_string();
    assert!(ports.contains("\"more\""), "{ports}");
    assert_eq!(daemon.failures("state").len(), 1);
    daemon.forwards();
    disk.remount("rw");
    daemon.wait_for_peace();
    daemon.end();
    let daemon = Daemon::start(&bench, &config);
    let ports = daemon.json(&["status"])["ports"].to_string();
    assert!(ports.contains("\"more\""), "{ports}");
    daemon.end();
}

#[test]
fn a_state_that_cant_be_read_is_not_lost_when_it_can_be_written() {
    let bench = Bench::new("trouble_unreadable");
    let daemon = Daemon::start(&bench, &kept());
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.end();
    // A directory in place of a file, which cannot be read.
    for name in ["state", "state.before"] {
        std::fs::rename(bench.path(&format!("saved/{name}")), bench.path(name)).expect("ours");
        std::fs::create_dir(bench.path(&format!("saved/{name}"))).expect("there is room");
    }
    let daemon = Daemon::start(&bench, &kept());
    daemon.forwards();
    let failures = daemon.failures("saved");
    let why = failures[0]["why"].as_str().expect("a reason");
    assert!(why.contains("aside-1") && why.contains("configuration alone"), "{why}");
    assert!(bench.path("saved/aside-1/objects").is_dir(), "it is kept with all that belongs to it");
    daemon.end();
}

#[test]
fn damaged_contents_of_a_map_are_told_until_somebody_looked() {
    let bench = Bench::new("trouble_contents");
    let daemon = Daemon::start(&bench, &kept());
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    daemon.json(&["map", "pin", "flows", "fw/flows"]);
    daemon.json(&["port", "add", "more", "kind=sink"]);
    daemon.end();
    let maps = std::fs::read_dir(bench.path("saved/maps")).expect("it is there");
    for map in maps.map(|map| map.expect("it is readable").path()) {
        let mut bytes = std::fs::read(&map).expect("it is readable");
        bytes[40] ^= 1;
        std::fs::write(&map, bytes).expect("there is room");
    }
    let daemon = Daemon::start(&bench, &kept());
    // Meanwhile the daemon retries the parts that failed.
    std::thread::sleep(Duration::from_millis(500));
    let failures = daemon.failures("saved");
    assert_eq!(failures[0]["subject"], json!("saved map flows"), "{failures:?}");
    let why = failures[0]["why"].as_str().expect("a reason");
    assert!(why.contains("it was cut or changed") && why.ends_with(".aside"), "{why}");
    assert!(daemon.json(&["status"])["ports"].to_string().contains("\"more\""));
    daemon.forwards();
    daemon.json(&["reload"]);
    daemon.wait_for_peace();
    daemon.end();
}

#[test]
fn files_that_cant_be_read_at_a_start_are_read_as_soon_as_they_can_be() {
    let bench = Bench::new("trouble_files");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let config = format!(
        "[host]\ntables = \"routes.toml\"\n[api]\nhttp = \"{address}\"\ntoken_file = \"token\"\n\
         {CONFIG}maps = \"maps.json\"\n"
    );
    let daemon = Daemon::start(&bench, &config);
    let subjects = |code: &str| -> Vec<String> {
        let all = daemon.failures(code);
        all.iter().filter_map(|it| Some(it["subject"].as_str()?.to_owned())).collect()
    };
    assert!(subjects("object")[0].ends_with("maps.json"), "{:?}", subjects("object"));
    assert!(subjects("host")[0].ends_with("routes.toml"), "{:?}", subjects("host"));
    assert_eq!(subjects("listen"), ["[api] http token_file"]);
    // A filter without the contents of its maps lets nothing pass.
    assert_eq!(subjects("port-shut"), ["port gen"]);
    let stats = |name: &str| daemon.json(&["stats"])["ports"]["gen"]["drops"][name].clone();
    daemon.wait_for("drops", || stats("no_program").as_u64() > Some(1000));
    assert_eq!(daemon.rx("p0"), 0);

    bench.file("maps.json", "{\"overrides\": [{\"key\": 2, \"value\": 1}]");
    bench.file("routes.toml", "[[route]]\nto = ");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(subjects("object").len(), 1, "half of a file is none");
    assert_eq!(subjects("host").len(), 1);
    bench.file("maps.json", "{\"overrides\": [{\"key\": 2, \"value\": 1}]}");
    bench.file("routes.toml", "");
    bench.file("token", "a-token-that-nobody-guesses-so-soon");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(bench.path("token"), mode).expect("it is ours");
    daemon.wait_for_peace();
    let dumped = daemon.formatted(&["map", "dump", "overrides"]);
    assert_eq!(dumped, json!([{"key": 2, "value": 1}]));
    daemon.wait_for("its verdicts", || stats("verdict").as_u64() > Some(1000));
    let page = bench.run(&["status", "--socket", SOCKET, "--exit-status"]);
    assert_eq!(page.status, 0, "{page:?}");
    // Nothing of that is another configuration.
    let report = daemon.json(&["reload"]);
    assert_eq!((&report["changes"], &report["restart"]), (&json!([]), &json!([])), "{report}");
    daemon.end();
}

#[test]
fn ports_of_metrics_and_the_page_that_are_taken_are_told_until_they_are_free() {
    let bench = Bench::new("trouble_listen");
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let [metrics, page] =
        taken.each_ref().map(|it| it.local_addr().expect("it is bound").to_string());
    let config = format!("[metrics]\nlisten = \"{metrics}\"\n[api]\nhttp = \"{page}\"\n{CONFIG}");
    let daemon = Daemon::start(&bench, &config);
    daemon.forwards();
    let failures = daemon.failures("listen");
    let subjects: Vec<_> = failures.iter().map(|it| it["subject"].clone()).collect();
    assert_eq!(
        subjects,
        [json!(format!("[api] http on {page}")), json!(format!("metrics on {metrics}"))]
    );
    assert!(failures.iter().all(|it| it["since"].as_f64() > Some(0.0)), "{failures:?}");
    drop(taken);
    daemon.wait_for_peace();
    for address in [metrics, page] {
        let mut stream = std::net::TcpStream::connect(&address).expect("somebody listens");
        stream.write_all(b"GET / HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1."), "{answer}");
    }
    daemon.end();
}

#[test]
fn the_service_s_reload_succeeds_while_a_port_fails_and_not_with_a_broken_file() {
    let bench = Bench::new("trouble_service");
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/towpath.service");
    let unit = std::fs::read_to_string(unit).expect("it is in the repository");
    let command = |key: &str| -> Vec<String> {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).expect("it has one");
        line.split(' ').map(str::to_owned).collect()
    };
    let reload = command("ExecReload=/usr/bin/towpath ");
    let reload: Vec<&str> = reload.iter().map(String::as_str).chain(["--socket", SOCKET]).collect();
    let daemon = Daemon::start(&bench, CONFIG);
    let fails =
        format!("{CONFIG}[[port]]\nname = \"gone\"\nkind = \"packet\"\ninterface = \"no0\"\n");
    bench.file("t.toml", &fails);
    let ended = bench.run(&reload);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(daemon.failures("port-open").len(), 1);
    let changed = format!("{fails}[[port]]\nname = \"new\"\nkind = \"sink\"\n");
    bench.file("t.toml", changed);
    assert_eq!(bench.run(&reload).status, 0);
    assert!(daemon.json(&["status"])["ports"].to_string().contains("\"new\""));
    bench.file("t.toml", "[[port]]\nname = \n");
    assert_ne!(bench.run(&reload).status, 0, "nothing of it was taken");
    daemon.end();
    // A check that fails keeps a start from nothing: the start says what is wrong by itself.
    let check = command("ExecStartPre=");
    assert_eq!(check[0], "-/usr/bin/towpath");
}

/// An interface of the host's; it goes with the test.
struct Veth(String);

impl Veth {
    fn ip(words: &str) -> bool {
        let ip = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
        ip.is_ok_and(|status| status.success())
    }

    fn add(&self) -> bool {
        Veth::ip(&format!("link add {0} type veth peer name {0}p", self.0))
            && Veth::ip(&format!("link set {} up", self.0))
            && Veth::ip(&format!("link set {}p up", self.0))
    }

    fn remove(&self) {
        Veth::ip(&format!("link del {}", self.0));
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn entries_of_maps_that_lead_to_a_port_are_stored_again_when_it_is_back() {
    let bench = Bench::new("trouble_entries");
    let veth = Veth(format!("tp{}", std::process::id()));
    if !veth.add() {
        return println!("skipped: interfaces need root");
    }
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let port = format!("[[port]]\nname = \"far\"\nkind = \"packet\"\ninterface = \"{}\"\n", veth.0);
    let more = "[[port]]\nname = \"more\"\nkind = \"sink\"\n";
    let daemon = Daemon::start(&bench, &format!("{ports}{port}{more}"));
    daemon.json(&["load", "gen", "redirector.o", "-n", "redirector"]);
    let index = |port: &str| daemon.json(&["port", "show", port])[0]["index"].to_string();
    let before = index("far");
    daemon.json(&["map", "update", "tx_ports", "key", "0", "value", &before]);
    daemon.json(&["map", "update", "tx_ports", "key", "1", "value", &index("more")]);
    let sent = || daemon.json(&["stats"])["ports"]["far"]["tx_packets"].as_u64().unwrap_or(0);
    let flows = || {
        let before = sent();
        daemon.wait_for("frames", || sent() > before + 1000);
    };
    flows();
    veth.remove();
    daemon.wait_for("the loss", || !daemon.failures("port-open").is_empty());
    assert!(veth.add());
    flows();
    daemon.wait_for_peace();
    assert_ne!(index("far"), before, "it is another interface");
    let entries = daemon.formatted(&["map", "dump", "tx_ports"]);
    let index = index("far").parse::<u32>().expect("a number");
    assert_eq!(entries[0], json!({"key": 0, "value": {"ifindex": index}}));
    assert!(daemon.log().contains("map tx_ports[0]: leads to port far again"), "{}", daemon.log());
    // The entries of a removed port are removed with it, as in the kernel.
    daemon.json(&["port", "del", "more"]);
    assert_eq!(daemon.formatted(&["map", "dump", "tx_ports"]).as_array().map(Vec::len), Some(1));
    assert_eq!(daemon.json(&["status"])["failures"], json!([]));
    daemon.end();
}

#[test]
fn entries_that_lead_to_a_port_which_is_not_there_yet_shut_no_filter() {
    let bench = Bench::new("trouble_late");
    let veth = Veth(format!("tl{}", std::process::id()));
    if !veth.add() {
        return println!("skipped: interfaces need root");
    }
    veth.remove();
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let late = format!(
        "[[port]]\nname = \"far\"\nkind = \"packet\"\ninterface = \"{}\"\nifindex = 77\n",
        veth.0
    );
    let more = "[[port]]\nname = \"more\"\nkind = \"sink\"\nifindex = 78\n";
    let attach = "[[attach]]\nport = \"gen\"\nobject = \"redirector.o\"\n\
                  program = \"redirector\"\nmaps = \"maps.json\"\n";
    bench.file(
        "maps.json",
        "{\"tx_ports\": [{\"key\": 0, \"value\": 77}, {\"key\": 1, \"value\": 78}]}",
    );
    let daemon = Daemon::start(&bench, &format!("{ports}{late}{more}{attach}"));
    // The filter runs, the other entry is there, and this one is told.
    assert_eq!(daemon.failures("port-shut"), [] as [Value; 0]);
    assert_eq!(daemon.failures("program"), [] as [Value; 0]);
    let failures = daemon.failures("map");
    assert_eq!(failures[0]["subject"], json!("map tx_ports[0]"), "{failures:?}");
    let why = failures[0]["why"].as_str().expect("a reason");
    assert!(why.contains("ifindex 77, which is not there"), "{why}");
    let links = daemon.json(&["status"])["links"].clone();
    assert_eq!(links[0]["name"], json!("redirector"));
    let entries = daemon.formatted(&["map", "dump", "tx_ports"]);
    assert_eq!(entries, json!([{"key": 1, "value": {"ifindex": 78}}]));
    let sent = || daemon.json(&["stats"])["ports"]["far"]["tx_packets"].as_u64().unwrap_or(0);
    assert!(veth.add());
    daemon.wait_for("frames", || sent() > 1000);
    daemon.wait_for_peace();
    assert!(daemon.log().contains("map tx_ports[0]: leads to port far now"), "{}", daemon.log());
    daemon.end();
}

#[test]
fn sockets_whose_files_are_removed_are_made_again() {
    let bench = Bench::new("trouble_sockets");
    let daemon = Daemon::start(&bench, CONFIG);
    let (path, xsk) = (bench.path(SOCKET), bench.path(&format!("{SOCKET}.xsk")));
    let mut held = UnixStream::connect(&path).expect("somebody listens");
    let _application = Connection::open(&xsk).expect("somebody listens");
    // A client that is already connected is still answered, and no other client can connect.
    let mut ask = || -> String {
        let request = b"GET /v1/status HTTP/1.1\r\nhost: towpath\r\n\r\n";
        held.write_all(request).expect("it is read");
        let mut bytes = vec![0; 1 << 16];
        let len = held.read(&mut bytes).expect("an answer");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    std::fs::remove_file(&path).expect("it is there");
    bench.file(SOCKET, "something else");
    std::fs::remove_file(&xsk).expect("it is there");
    daemon.wait_for("a failure", || ask().contains("can't be made again"));
    assert!(ask().contains("API socket"));
    std::fs::remove_file(&path).expect("it is there");
    daemon.wait_for("an answer", || bench.run(&["status", "--socket", SOCKET]).status == 0);
    daemon.wait_for_peace();
    Connection::open(&xsk).expect("somebody listens again");
    let log = daemon.log();
    for what in ["API socket", "application socket"] {
        let lines = log.lines().filter(|line| line.contains(what)).count();
        assert!((2..=3).contains(&lines), "removed, and made again: {log}");
    }
    daemon.forwards();
    daemon.end();
}
