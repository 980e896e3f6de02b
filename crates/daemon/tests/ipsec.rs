//! Security associations and policies of a daemon: packets through two accelerators, over reloads,
//! restarts and mistakes.

mod served;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_daemon::file::{ObjectFiles, parse};

use served::Served;

const LIMIT: Duration = Duration::from_secs(20);

/// Frames are encapsulated by `enc`, decapsulated by `dec`, and end in `out`; no program is needed.
const PORTS: &str = r#"
[state]
dir = "saved"
[[port]]
name = "gen"
kind = "generator"
rate = 2000
upper = "enc"
[[port]]
name = "enc"
kind = "ipsec"
upper = "dec"
[[port]]
name = "dec"
kind = "ipsec"
upper = "out"
[[port]]
name = "out"
kind = "sink"
[[policy]]
name = "all"
port = "enc"
source = "198.18.0.0/15"
destination = "198.18.0.0/15"
action = "protect"
reqid = 1
"#;

/// Configuration of an SA: of port `enc` for the direction `out`, else of port `dec`. `more` are
/// further lines of it.
fn sa(direction: &str, number: u32, more: &str) -> String {
    let port = if direction == "out" { "enc" } else { "dec" };
    let spi = 0x1000 + number;
    format!(
        "[[sa]]\nname = \"{direction}{number}\"\nport = \"{port}\"\ndirection = \"{direction}\"\n\
         spi = {spi}\nsource = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\n\
         suite = \"aes-gcm-128\"\nkey_file = \"{number}.key\"\nreqid = 1\n{more}"
    )
}

fn both(number: u32) -> String {
    sa("out", number, "") + &sa("in", number, "")
}

/// A key that no other test has, in hex.
fn key(byte: u8) -> String {
    format!("{byte:02x}5ec2e7{byte:02x}").repeat(4)
}

fn write_key(dir: &Path, number: u32, byte: u8) {
    let path = dir.join(format!("{number}.key"));
    std::fs::write(&path, key(byte) + "\n").expect("there is room");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
}

fn start(test: &str, config: &str) -> Served {
    let dir = std::env::temp_dir().join(format!("towpath-{test}-{}", std::process::id()));
    let _absent = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("there is room");
    (1..=2).for_each(|number| write_key(&dir, number, number as u8));
    Served::start_in(dir, config)
}

fn reload(served: &Served, config: &str) -> Result<Value, String> {
    std::fs::write(served.dir.join("t.toml"), config).expect("there is room");
    let done = served.client.json::<Value>("POST", "/v1/reload", &json!({}));
    done.map_err(|error| error.to_string())
}

fn ask(served: &Served, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    served.client.json::<Value>(method, path, body).map_err(|error| error.to_string())
}

fn show(served: &Served, name: &str) -> Value {
    served.get(&format!("/v1/sas/{name}"))
}

fn number(view: &Value, key: &str) -> u64 {
    view[key].as_u64().unwrap_or_else(|| panic!("no {key}: {view}"))
}

fn failures(served: &Served) -> Vec<(String, String, String)> {
    let status = served.get("/v1/status");
    let text = |failure: &Value, key: &str| failure[key].as_str().unwrap_or_default().to_owned();
    let all = status["failures"].as_array().expect("a list").iter();
    all.map(|it| (text(it, "code"), text(it, "subject"), text(it, "why"))).collect()
}

/// Waits until an SA brings packets that it did not have before.
fn wait_for_packets(served: &Served, name: &str) {
    let before = number(&show(served, name), "packets");
    served.wait(&format!("packets of {name}"), LIMIT, || {
        number(&show(served, name), "packets") > before + 10
    });
}

/// All that the daemon shows or stores.
fn everything(served: &Served) -> String {
    let paths = ["/v1/status", "/v1/state", "/v1/sas", "/v1/policies", "/v1/ports", "/v1/stats"];
    let answers: String = paths.iter().map(|path| served.get(path).to_string()).collect();
    let mut files = vec![served.dir.join("saved")];
    let mut text = answers;
    while let Some(path) = files.pop() {
        match std::fs::read_dir(&path) {
            Ok(inside) => files.extend(inside.map(|entry| entry.expect("it is there").path())),
            Err(_file) => {
                text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default());
            }
        }
    }
    assert!(text.contains("1.key") && text.contains("towpath-state"), "{text}");
    text
}

/// The port with the engine `ipsec-mb` encrypts, and the one with the default engine decrypts.
#[test]
fn the_engine_is_chosen_for_each_port() {
    let engine = "name = \"enc\"\nkind = \"ipsec\"";
    let ports = PORTS.replace(engine, &format!("{engine}\nengine = \"ipsec-mb\""));
    let sas = both(3).replace("aes-gcm-128", "aes-cbc-128-hmac-sha-256-128");
    let dir = std::env::temp_dir().join(format!("towpath-ipsec-mb-{}", std::process::id()));
    let _absent = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("there is room");
    let path = dir.join("3.key");
    let text = format!("{}\n{}\n", "5e".repeat(16), "7a".repeat(32));
    std::fs::write(&path, text).expect("there is room");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("it is ours");
    let served = Served::start_in(dir, &(ports + &sas));
    if let [(code, subject, why), ..] = &failures(&served)[..] {
        assert_eq!((&**code, &**subject), ("port-open", "port enc"));
        assert!(why.contains("libIPSec_MB.so") && why.contains("install the package"), "{why}");
        eprintln!("skipped: {why}");
    } else {
        wait_for_packets(&served, "in3");
        assert_eq!(show(&served, "in3")["refused"], json!({}));
        let all = served.get("/v1/ports");
        let ports = all.as_array().expect("a list").iter();
        let engines: Vec<_> = ports.filter_map(|it| it["details"]["engine"].as_str()).collect();
        // The ports `dec` and `enc`.
        assert_eq!(engines, ["aws-lc", "ipsec-mb"], "{all}");
        assert!(all.to_string().contains("\"library\":\""), "{all}");
    }
    served.end();
}

#[test]
fn packets_go_through_two_accelerators_and_keys_are_shown_nowhere() {
    let served = start("ipsec", &(PORTS.to_owned() + &both(1)));
    assert_eq!(failures(&served), []);
    wait_for_packets(&served, "in1");
    let (sent, received) = (show(&served, "out1"), show(&served, "in1"));
    assert_eq!((&sent["status"], &received["refused"]), (&json!("active"), &json!({})));
    assert_eq!((&sent["wanted_by"], &sent["suite"]), (&json!(["file"]), &json!("aes-gcm-128")));
    assert!(number(&sent, "bytes") >= 46 * number(&sent, "packets"), "{sent}");
    assert!(number(&received, "sequence") >= number(&received, "packets"), "{received}");
    let stats = served.get("/v1/stats");
    assert!(number(&stats["ports"]["out"], "tx_packets") > 0, "{stats}");
    // Without a policy a frame is refused, and does not go out in the clear.
    let before = number(&served.get("/v1/stats")["ports"]["enc"], "rx_packets");
    assert!(before > 0);
    ask(&served, "DELETE", "/v1/policies/all", &json!({})).expect("it can be removed");
    let refused = || served.get("/v1/ports/enc")["details"]["no_policy"].clone();
    served.wait("refusals", LIMIT, || refused() != Value::Null);
    let text = everything(&served);
    assert!(!text.to_lowercase().contains("5ec2e7"), "a key is shown");
    // In bytes as JSON lists would have them, too.
    assert!(!text.contains("94,194,231") && !text.contains("94, 194, 231"), "a key is shown");
    served.end();
}

#[test]
fn a_reload_leaves_alone_what_did_not_change() {
    let (one, two) = (PORTS.to_owned() + &both(1), PORTS.to_owned() + &both(1) + &both(2));
    let served = start("ipsec-reload", &one);
    wait_for_packets(&served, "in1");
    let before = show(&served, "out1");
    let report = reload(&served, &two).expect("it is fine");
    let changes = report["changes"].clone();
    assert_eq!(changes, json!(["sa out2: added", "sa in2: added"]), "{report}");
    // The newest SA is used from now on, and the old one is still there.
    wait_for_packets(&served, "in2");
    let after = show(&served, "out1");
    assert_eq!(after["id"], before["id"]);
    assert!(number(&after, "sequence") >= number(&before, "sequence"), "{after}");
    assert_eq!(show(&served, "in1")["status"], "active");
    let report = reload(&served, &(PORTS.to_owned() + &both(2))).expect("it is fine");
    assert_eq!(report["changes"], json!(["sa in1: removed", "sa out1: removed"]));
    // Another MTU of the path is another SA with the same keys: its numbers go on.
    let before = show(&served, "out2");
    let changed = PORTS.to_owned() + &sa("out", 2, "pmtu = 1400\n") + &sa("in", 2, "");
    let report = reload(&served, &changed).expect("it is fine");
    assert_eq!(report["changes"], json!(["sa out2: replaced"]));
    wait_for_packets(&served, "in2");
    let after = show(&served, "out2");
    assert_ne!(after["id"], before["id"]);
    assert!(number(&after, "sequence") > number(&before, "sequence"), "{before} {after}");
    assert_eq!(show(&served, "in2")["refused"], json!({}), "none was a replay");
    // A port that is opened again keeps its table.
    ask(&served, "PATCH", "/v1/ports/enc", &json!({ "queues": 2, "ring": 256 })).expect("fine");
    assert_eq!(show(&served, "out2")["id"], after["id"]);
    wait_for_packets(&served, "in2");
    ask(&served, "PATCH", "/v1/ports/gen", &json!({ "up": false })).expect("it can be changed");
    let frames = || served.get("/v1/stats")["frames"].clone();
    served.wait("the end of all frames", LIMIT, || {
        frames()["missing"] == 0 && frames()["in_flight"] == 0
    });
    assert_eq!(failures(&served), []);
    served.end();
}

#[test]
fn a_changed_key_file_is_a_changed_sa() {
    let config = PORTS.to_owned() + &both(1);
    let served = start("ipsec-keys", &config);
    wait_for_packets(&served, "in1");
    let before = [show(&served, "out1"), show(&served, "in1")];
    // Nothing is read but by a reload.
    write_key(&served.dir, 1, 9);
    ask(&served, "PATCH", "/v1/ports/gen", &json!({ "mtu": 1400 })).expect("it can be changed");
    assert_eq!(show(&served, "out1")["id"], before[0]["id"]);
    let report = reload(&served, &config).expect("it is fine");
    assert_eq!(report["changes"], json!(["sa out1: replaced", "sa in1: replaced"]), "{report}");
    wait_for_packets(&served, "in1");
    // A key file that cannot be used changes nothing.
    let path = served.dir.join("1.key");
    let ids = || [show(&served, "out1")["id"].clone(), show(&served, "in1")["id"].clone()];
    let now = ids();
    for (mode, text, why) in [
        (0o644, key(7), "others than its owner can read or change it: chmod 600"),
        (0o600, "5ec2e7".to_owned(), "AES-GCM-128 needs an encryption key of 20 bytes"),
        (0o600, String::new(), "AES-GCM-128 needs 1 line with a key in hex, not 0"),
    ] {
        std::fs::write(&path, text).expect("there is room");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        let error = reload(&served, &config).expect_err(why);
        let places = error.lines().filter(|line| line.contains("].key_file: ")).count();
        assert!(error.contains(why) && places == 2 && !error.contains("5ec2e7"), "{error}");
        assert!(error.contains("sa[0].key_file: ") && error.contains("sa[1].key_file: "));
    }
    std::fs::remove_file(&path).expect("it is ours");
    assert!(reload(&served, &config).expect_err("it is gone").contains("No such file"));
    assert_eq!(ids(), now);
    wait_for_packets(&served, "in1");
    served.end();
}

#[test]
fn sas_may_exchange_their_keys_and_names() {
    let config = PORTS.to_owned() + &both(1) + &both(2);
    let served = start("ipsec-swap", &config);
    wait_for_packets(&served, "in2");
    write_key(&served.dir, 1, 2);
    write_key(&served.dir, 2, 1);
    let report = reload(&served, &config).expect("it is fine");
    assert_eq!(report["failures"], json!([]), "{report}");
    wait_for_packets(&served, "in2");
    let other = config.replace("\"in2\"", "\"in3\"").replace("\"out2\"", "\"out3\"");
    let report = reload(&served, &other).expect("it is fine");
    assert_eq!(report["failures"], json!([]), "{report}");
    served
        .wait("packets of the renamed SA", LIMIT, || number(&show(&served, "in3"), "packets") > 9);
    // The same keys for two senders are a mistake that only the contents show.
    write_key(&served.dir, 1, 1);
    let report = reload(&served, &other).expect("it is a valid file");
    let failure = &report["failures"][0];
    assert_eq!((&failure["code"], &failure["subject"]), (&json!("sa"), &json!("sa out1")));
    assert_eq!(failure["why"], "sa out3 sends with the same keys");
    // The next reconciliations find the same.
    ask(&served, "PATCH", "/v1/ports/gen", &json!({ "mtu": 1400 })).expect("it can be changed");
    assert_eq!(failures(&served).len(), 1);
    assert_eq!(show(&served, "out1")["failure"], "sa out3 sends with the same keys");
    assert_eq!(show(&served, "out1")["status"], "active", "it keeps the keys that it had");
    served.end();
}

#[test]
fn a_start_without_keys_is_a_failure_until_they_are_there() {
    let config = PORTS.to_owned() + &both(3);
    let served = Served::start("ipsec-late", &config);
    let told = failures(&served);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|(code, _, why)| code == "sa" && why.contains("No such file")));
    let view = show(&served, "out3");
    assert_eq!((&view["status"], &view["id"]), (&json!("missing"), &json!(0)), "{view}");
    assert!(view["failure"].as_str().is_some_and(|why| why.contains("No such file")), "{view}");
    write_key(&served.dir, 3, 3);
    served.wait("recovery", LIMIT, || failures(&served).is_empty());
    wait_for_packets(&served, "in3");
    served.end();
}

#[test]
fn an_sa_that_has_expired_is_a_failure_as_long_as_it_is_wanted() {
    let limits = "hard = { packets = 100 }\nsoft = { packets = 50 }\n";
    let config = PORTS.to_owned() + &sa("out", 1, limits) + &sa("in", 1, "");
    let served = start("ipsec-expired", &config);
    served.wait("its end", LIMIT, || show(&served, "out1")["status"] == "expired");
    let why = "it refuses all packets: it reached its hard limit of 100 packets";
    let expected = [("sa-expired".to_owned(), "sa out1".to_owned(), why.to_owned())];
    served.wait("the failure", LIMIT, || failures(&served) == expected);
    // The policy goes on refusing.
    let sent = number(&show(&served, "in1"), "packets");
    assert!(sent <= 100, "{sent}");
    reload(&served, &config).expect("it is the same");
    assert_eq!(failures(&served), expected, "it is wanted, and the same");
    // A successor without a limit goes on with the sequence numbers, and ends the failure.
    reload(&served, &(PORTS.to_owned() + &both(1))).expect("it is fine");
    assert_eq!(failures(&served), []);
    wait_for_packets(&served, "in1");
    assert_eq!(show(&served, "in1")["refused"], json!({}));
    served.end();
}

#[test]
fn what_the_api_adds_is_saved_without_keys_and_comes_back() {
    let served = start("ipsec-api", &(PORTS.to_owned() + &both(1)));
    let key_file = served.dir.join("2.key").display().to_string();
    let body = |direction: &str, port: &str| {
        json!({
            "name": format!("api-{direction}"), "port": port, "direction": direction,
            "spi": 0x2001, "source": "2001:db8::1", "destination": "2001:db8::2",
            "suite": "aes-gcm-128", "key_file": key_file, "reqid": 1, "udp": {},
            "tunnel": { "dscp": 46, "df": "set" }, "replay_window": 1024, "esn": true
        })
    };
    let made = ask(&served, "POST", "/v1/sas", &body("in", "dec")).expect("it can be added");
    assert_eq!((&made["wanted_by"], &made["status"]), (&json!(["api"]), &json!("active")));
    assert_eq!(made["udp"], json!({ "source_port": 4500, "destination_port": 4500 }));
    let made = ask(&served, "POST", "/v1/sas", &body("out", "enc")).expect("it can be added");
    let id = made["id"].clone();
    wait_for_packets(&served, "api-in");
    assert!(!everything(&served).contains("5ec2e7"));
    // Its key file is not the configuration's: a reload keeps the SA, and tells what is wrong.
    let file = PORTS.to_owned() + &both(1);
    let chmod = |mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&key_file, mode).expect("it is ours");
    };
    chmod(0o644);
    let report = reload(&served, &file).expect("it is a valid file");
    let subjects = report["failures"].as_array().map(|all| all.len());
    assert_eq!(subjects, Some(2), "{report}");
    let view = show(&served, "api-out");
    assert_eq!((&view["status"], &view["id"]), (&json!("active"), &id), "{view}");
    assert!(view["failure"].as_str().is_some_and(|why| why.ends_with("chmod 600")), "{view}");
    chmod(0o600);
    served.wait("recovery", LIMIT, || failures(&served).is_empty());
    assert_eq!(show(&served, "api-out")["id"], id);
    let dir = served.stop();
    let served = Served::start_in(dir, &(PORTS.to_owned() + &both(1)));
    assert_eq!(failures(&served), []);
    assert_eq!(show(&served, "api-out")["wanted_by"], json!(["api"]));
    wait_for_packets(&served, "api-in");
    // A removal of a thing of the file is shown until the file changes it.
    ask(&served, "DELETE", "/v1/sas/in1", &json!({})).expect("it can be removed");
    let overridden = served.get("/v1/status")["overridden"].clone();
    assert_eq!(overridden, json!([{ "subject": "sa in1", "is": "removed" }]));
    ask(&served, "DELETE", "/v1/sas?port=enc", &json!({})).expect("they can be removed");
    let names = served.get("/v1/sas");
    assert_eq!(names.as_array().map(Vec::len), Some(1), "{names}");
    let warnings = served.get("/v1/status")["warnings"].to_string();
    assert!(warnings.contains("policy all: no outbound SA of port enc has reqid 1"), "{warnings}");
    served.end();
}

#[test]
fn a_refused_request_changes_nothing() {
    let served = start("ipsec-refused", &(PORTS.to_owned() + &both(1)));
    wait_for_packets(&served, "in1");
    let before = show(&served, "out1")["id"].clone();
    let good = json!({
        "name": "x", "port": "enc", "direction": "out", "spi": 0x2001, "source": "192.0.2.1",
        "destination": "192.0.2.2", "suite": "aes-gcm-128",
        "key_file": served.dir.join("2.key").display().to_string()
    });
    let with = |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        body
    };
    for (body, why) in [
        (with("name", json!("out1")), "there is an SA out1 already (EEXIST)"),
        (with("port", json!("gen")), "sas[2].port: port gen is of kind \"generator\""),
        (with("port", json!("en")), "did you mean \"enc\"?"),
        (with("spi", json!(255)), "sas[2].spi: SPI 255 is reserved"),
        (with("spi", json!(0x1001)), "SA out1 has SPI 0x1001 and the destination 192.0.2.2, too"),
        (with("suite", json!("aes-gcm-182")), "did you mean \"aes-gcm-128\"?"),
        (with("suite", json!("aes-gcm-256")), "AES-GCM-256 needs an encryption key of 36 bytes"),
        (with("key_file", json!("2.key")), "key_file: expected an absolute path"),
        (with("key_file", json!("/no.key")), "sa x: /no.key: No such file"),
        (with("key", json!("00")), "unknown key \"key\""),
        (json!({ "name": "x" }), "the key \"port\" is missing"),
    ] {
        let error = ask(&served, "POST", "/v1/sas", &body).expect_err(why);
        assert!(error.contains(why), "{error}\n{why}");
    }
    ask(&served, "PATCH", "/v1/ports/gen", &json!({ "upper": null })).expect("it can be changed");
    let error = ask(&served, "DELETE", "/v1/ports/enc", &json!({})).expect_err("it has SAs");
    assert!(error.contains("port enc has the SA out1"), "{error}");
    let error = ask(&served, "DELETE", "/v1/sas/out", &json!({})).expect_err("there is none");
    assert!(error.contains("no SA \"out\"; did you mean \"out1\"?"), "{error}");
    assert_eq!(show(&served, "out1")["id"], before);
    ask(&served, "PATCH", "/v1/ports/gen", &json!({ "upper": "enc" })).expect("it can be changed");
    assert_eq!(failures(&served), []);
    wait_for_packets(&served, "in1");
    served.end();
}

#[test]
fn metrics_tell_of_each_sa() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let address = free.expect("there are ports").to_string();
    let config = format!("[metrics]\nlisten = \"{address}\"\n{PORTS}{}", both(1));
    let served = start("ipsec-metrics", &config);
    wait_for_packets(&served, "in1");
    let text = metrics(&address);
    let value = |name: &str| {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        line.rsplit(' ').next().and_then(|it| it.parse::<u64>().ok()).expect("a number")
    };
    let labels = "{sa=\"in1\",port=\"dec\",direction=\"in\"}";
    assert!(value(&format!("towpath_sa_packets_total{labels}")) > 0);
    assert!(value(&format!("towpath_sa_bytes_total{labels}")) > 0);
    assert!(value(&format!("towpath_sa_sequence{labels}")) > 0);
    assert_eq!(value(&format!("towpath_sa_usable{labels}")), 1);
    served.end();
}

fn metrics(address: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).expect("the daemon listens");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// The lines of the error of a file in which something was replaced.
fn mistakes(dir: &Path, from: &str, to: &str) -> Vec<String> {
    let file = PORTS.to_owned() + &both(1);
    assert!(file.contains(from), "{from}");
    let loaded =
        parse(&file.replacen(from, to, 1), Path::new("t.toml"), dir, &ObjectFiles::default());
    loaded.err().map(|error| error.lines).unwrap_or_default()
}

#[test]
fn mistakes_in_a_file_are_told_by_their_places() {
    let dir = std::env::temp_dir().join(format!("towpath-ipsec-file-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("there is room");
    write_key(&dir, 1, 1);
    let (family, way) = ("192.0.2.1\"\ndestination = \"192.0.2.2", "direction = \"out\"");
    let sa_end = "\"1.key\"\nreqid = 1\n";
    for (from, to, expected) in [
        ("spi = 4097", "spi = 255", "sa[0].spi: SPI 255 is reserved"),
        ("spi = 4097", "spi = -1", "sa[0].spi: expected a whole number"),
        (family, "::1\"\ndestination = \"192.0.2.2", "sa[0].destination: source ::1 and"),
        (
            family,
            "0.0.0.0\"\ndestination = \"192.0.2.2",
            "sa[0].source: 0.0.0.0 is not a valid end",
        ),
        (way, "direction = \"up\"", "sa[0].direction: "),
        ("port = \"enc\"\ndir", "port = \"gen\"\ndir", "sa[0].port: port gen is of kind"),
        (
            sa_end,
            "replay_window = 8\n",
            "sa[0].replay_window: a replay window must have 32 to 4096",
        ),
        (
            sa_end,
            "soft = { bytes = 5 }\nhard = { bytes = 5 }\n",
            "sa[0].soft.bytes: the soft limit",
        ),
        (
            sa_end,
            "udp = { source_port = 0 }\n",
            "sa[0].udp.source_port: a port of the UDP encapsulation is 0",
        ),
        (
            sa_end,
            "mode = \"transport\"\ntunnel = { ecn = false }\n",
            "sa[0].tunnel: it has no effect in transport mode",
        ),
        (sa_end, "tunnel = { dscp = 64 }\n", "sa[0].tunnel.dscp: "),
        (sa_end, "pmtu = 60\n", "sa[0].pmtu: "),
        ("aes-gcm-128", "aes-cbc-128-hmac-sha1-96", "sa[0].key_file: "),
        ("\"1.key\"", "\"2.key\"", "sa[0].key_file: "),
        ("action = \"protect\"", "action = \"bypass\"", "policy[0].reqid: it has no effect"),
        (
            "action = \"protect\"\nreqid = 1",
            "action = \"protect\"",
            "policy[0].reqid: it is missing",
        ),
        ("198.18.0.0/15", "198.18.0.0/33", "policy[0].source: \"198.18.0.0/33\" is not a prefix"),
        ("198.18.0.0/15", "::/0", "policy[0].destination: "),
        ("port = \"enc\"\nsource", "port = \"end\"\nsource", "policy[0].port: no port \"end\""),
        ("name = \"in1\"", "name = \"out1\"", "sa[1].name: the name \"out1\" is taken"),
        ("name = \"in1\"", "name = \"in 1\"", "sa[1].name: \"in 1\": 1 to 63 letters"),
        (
            "upper = \"out\"",
            "upper = \"enc\"",
            "passed frames would loop for ever: enc -> dec -> enc",
        ),
        ("kind = \"ipsec\"", "kind = \"ipsec\"\nengine = \"aes\"", "port[1].engine: "),
        ("kind = \"ipsec\"", "kind = \"ipsec\"\nqueues = 65", "port[1].queues: 1 to 64"),
    ] {
        let to = if from == sa_end { format!("{from}{to}") } else { to.to_owned() };
        let lines = mistakes(&dir, from, &to);
        let is_told =
            lines.iter().any(|line| line.starts_with("t.toml:") && line.contains(expected));
        assert!(is_told, "{from} -> {to}: {lines:#?}");
    }
    std::fs::remove_dir_all(dir).expect("it is ours");
}
