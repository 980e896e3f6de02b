//! A filter is never replaced by nothing: reloads and starts whose program is refused.

mod served;

use std::time::Duration;

use serde_json::{Value, json};
use served::Served;

const LIMIT: Duration = Duration::from_secs(20);
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures");

/// A generator, whose frames `every_verdict` drops where their address ends with 01.
fn config(attach: &str) -> String {
    format!(
        r#"
[state]
dir = "state"
[[port]]
name = "gen"
kind = "generator"
rate = 20000
frames = ["02000000000102000000000108000000000000000000000000000000"]
upper = "out"
[[port]]
name = "out"
kind = "sink"
{attach}
"#
    )
}

fn attach(object: &str, program: &str) -> String {
    let object =
        if object.contains('/') { object.to_owned() } else { format!("{FIXTURES}/{object}") };
    format!("[[attach]]\nport = \"gen\"\nobject = \"{object}\"\nprogram = \"{program}\"\n")
}

fn drops_all() -> String {
    attach("every_verdict.o", "every_verdict")
}

fn refused() -> String {
    attach("refused.o", "reads_too_far")
}

fn reload(served: &Served, config: &str) -> Value {
    std::fs::write(served.dir.join("t.toml"), config).expect("there is room");
    served.client.json("POST", "/v1/reload", &json!({})).expect("it is taken")
}

fn codes(list: &Value) -> Vec<String> {
    let list = list["failures"].as_array().expect("a list").iter();
    list.map(|it| it["code"].as_str().expect("a word").to_owned()).collect()
}

fn port(served: &Served, port: &str) -> Value {
    served.get("/v1/stats")["ports"][port].clone()
}

/// Waits until more frames have arrived.
fn goes_on(served: &Served) {
    let count = || port(served, "gen")["rx_packets"].as_u64().expect("a number");
    let before = count();
    served.wait("frames", LIMIT, || count() >= before + 1000);
}

fn passed(served: &Served) -> u64 {
    port(served, "out")["tx_packets"].as_u64().expect("a number")
}

fn runs(served: &Served) -> Vec<String> {
    let status = served.get("/v1/status");
    let links = status["links"].as_array().expect("a list").iter();
    links.map(|link| link["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_reload_with_another_file_that_is_refused_leaves_the_old_program() {
    let served = Served::start("filters-refused", &config(&drops_all()));
    goes_on(&served);
    let report = reload(&served, &config(&refused()));
    assert_eq!(codes(&report), ["program"], "{report}");
    goes_on(&served);
    assert_eq!((passed(&served), runs(&served)), (0, vec!["every_verdict".to_owned()]));
    let failures = served.get("/v1/status");
    assert_eq!(codes(&failures), ["program"], "it is told as long as it is so: {failures}");
    // The same file, and a program that it doesn't have.
    let report = reload(&served, &config(&attach("every_verdict.o", "nothing")));
    assert_eq!(codes(&report), ["program"], "{report}");
    goes_on(&served);
    assert_eq!((passed(&served), runs(&served).len()), (0, 1));
    let report = reload(&served, &config(&drops_all()));
    assert_eq!(report["failures"], json!([]), "{report}");
    served.end();
}

#[test]
fn a_reload_with_another_file_keeps_maps() {
    let served = Served::start("filters-maps", &config(&attach("keeper_1.o", "keeper")));
    let ids = || {
        let maps = served.get("/v1/maps");
        let maps = maps.as_array().expect("a list").iter();
        let named = maps.filter(|map| map["name"] == "flows");
        named.map(|map| map["id"].clone()).collect::<Vec<_>>()
    };
    let before = ids();
    let report = reload(&served, &config(&attach("keeper_2.o", "keeper")));
    assert_eq!(report["failures"], json!([]), "{report}");
    assert_eq!((before.len(), ids()), (1, before));
    served.end();
}

#[test]
fn a_port_that_was_never_filtered_drops_or_passes_as_it_is_said() {
    let served = Served::start("filters-first", &config(&refused()));
    goes_on(&served);
    let status = served.get("/v1/status");
    assert_eq!(codes(&status), ["program", "port-shut"], "{status}");
    assert_eq!(passed(&served), 0);
    assert!(port(&served, "gen")["drops"]["no_program"].as_u64() >= Some(1000));
    let passes = format!("{}on_failure = \"pass\"\n", refused());
    let report = reload(&served, &config(&passes));
    assert_eq!(codes(&report), ["program"], "{report}");
    served.wait("frames", LIMIT, || passed(&served) > 0);
    // The port had no filter; its new filter is refused.
    let report = reload(&served, &config(""));
    assert_eq!(report["failures"], json!([]), "{report}");
    let report = reload(&served, &config(&refused()));
    assert_eq!(codes(&report), ["program", "port-shut"], "{report}");
    goes_on(&served);
    let now = passed(&served);
    goes_on(&served);
    assert_eq!(passed(&served), now);
    served.end();
}

#[test]
fn a_start_refuses_what_a_reload_refused() {
    let first = config(&attach("keeper_1.o", "keeper"));
    let served = Served::start("filters-again", &first);
    // Its map `flows` has another shape.
    let other = config(&attach("keeper_3.o", "keeper"));
    let report = reload(&served, &other);
    assert_eq!(codes(&report), ["program"], "{report}");
    let sha = |served: &Served| served.get("/v1/programs")[0]["sha256"].clone();
    let before = sha(&served);
    let dir = served.stop();
    let served = Served::start_in(dir, &other);
    let status = served.get("/v1/status");
    assert_eq!(codes(&status), ["program"], "{status}");
    assert_eq!((sha(&served), runs(&served).len()), (before, 1));
    served.end();
}

#[test]
fn a_start_refuses_what_a_reload_would_refuse() {
    let first = config(&attach("keeper_1.o", "keeper"));
    let mut dir = None;
    // The program changes while the daemon is down: to one with another map, and to an invalid one.
    for other in [attach("keeper_3.o", "keeper"), refused()] {
        let served = match dir.take() {
            None => Served::start("filters-down", &first),
            Some(dir) => Served::start_in(dir, &first),
        };
        goes_on(&served);
        let sha = |served: &Served| served.get("/v1/programs")[0]["sha256"].clone();
        let before = sha(&served);
        assert_eq!(codes(&served.get("/v1/status")), Vec::<String>::new());
        let id = served.get("/v1/maps").as_array().and_then(|maps| {
            maps.iter().find(|map| map["name"] == "flows").map(|map| map["id"].to_string())
        });
        let entry = json!({ "key": 3, "value": { "packets": 5, "bytes": 6 } });
        let path = format!("/v1/maps/{}/update", id.expect("it has one"));
        served.client.json::<Value>("POST", &path, &entry).expect("there is room");
        let served = Served::start_in(served.stop(), &config(&other));
        let status = served.get("/v1/status");
        assert_eq!(codes(&status), ["program"], "{status}");
        assert_eq!((sha(&served), runs(&served).len()), (before, 1));
        let maps = served.get("/v1/maps");
        let flows = maps.as_array().and_then(|maps| maps.iter().find(|it| it["name"] == "flows"));
        let path = format!("/v1/maps/{}/lookup", flows.expect("the old one's")["id"]);
        let found: Value = served.client.json("POST", &path, &json!({ "key": 3 })).expect("kept");
        assert_eq!(found["value"]["packets"], json!(5), "{found}");
        dir = Some(served.stop());
    }
    std::fs::remove_dir_all(dir.expect("it ran")).expect("it is ours");
}

#[test]
fn an_object_file_that_is_gone_or_cut_at_the_start_is_told_and_read_later() {
    let bytes = std::fs::read(format!("{FIXTURES}/every_verdict.o")).expect("a fixture");
    let object = "./fw.o".to_owned();
    let text = config(&attach(&object, "every_verdict"));
    // The daemon never read the file.
    let served = Served::start("filters-gone", &text);
    let status = served.get("/v1/status");
    assert_eq!(codes(&status), ["program", "port-shut", "object"], "{status}");
    std::fs::write(served.dir.join("fw.o"), &bytes[..bytes.len() / 2]).expect("there is room");
    goes_on(&served);
    assert_eq!(passed(&served), 0);
    std::fs::write(served.dir.join("fw.o"), &bytes).expect("there is room");
    served.wait("peace", LIMIT, || codes(&served.get("/v1/status")).is_empty());
    assert_eq!(runs(&served).len(), 1, "what is over is over");
    assert_eq!(passed(&served), 0);
    // The saved state has it, whatever became of the file.
    let dir = served.stop();
    std::fs::write(dir.join("fw.o"), &bytes[..100]).expect("there is room");
    let served = Served::start_in(dir, &text);
    let status = served.get("/v1/status");
    assert_eq!(codes(&status), ["object"], "{status}");
    goes_on(&served);
    assert_eq!((passed(&served), runs(&served).len()), (0, 1));
    served.end();
}

#[test]
fn a_configuration_without_ports_is_refused_unless_it_is_meant() {
    let served = Served::start("filters-empty", &config(&drops_all()));
    std::fs::write(served.dir.join("t.toml"), "").expect("there is room");
    let refused = served.client.json::<Value>("POST", "/v1/reload", &json!({}));
    let error = refused.expect_err("it would take everything away").to_string();
    assert!(error.contains("--allow-empty"), "{error}");
    assert_eq!(runs(&served).len(), 1);
    let meant = served.client.json::<Value>("POST", "/v1/reload?allow_empty=true", &json!({}));
    meant.expect("it is meant");
    assert_eq!(served.get("/v1/status")["ports"], json!([]));
    served.end();
}

#[test]
fn a_program_stays_whose_port_is_not_there() {
    let text =
        config(&attach("keeper_1.o", "keeper")).replace("kind = \"generator\"", "kind = \"pcap\"");
    let text = text.replace("rate = 20000", "in = \"none.pcap\"");
    let text = text.lines().filter(|line| !line.starts_with("frames")).collect::<Vec<_>>();
    let served = Served::start("filters-absent", &text.join("\n"));
    let maps = || {
        let maps = served.get("/v1/maps");
        let maps = maps.as_array().expect("a list").iter();
        maps.map(|map| map["id"].clone()).collect::<Vec<_>>()
    };
    let before = maps();
    assert!(!before.is_empty());
    let port = json!({ "name": "more", "kind": "sink" });
    served.client.json::<Value>("POST", "/v1/ports", &port).expect("it is free");
    assert_eq!(codes(&served.get("/v1/status")), ["port-open"]);
    assert_eq!(maps(), before, "its maps hold what was saved");
    served.end();
}

#[test]
fn what_was_saved_and_fits_no_more_is_named_and_the_rest_comes_back() {
    let more = "[[port]]\nname = \"more\"\nkind = \"sink\"\n";
    let served = Served::start("filters-unfit", &config(&format!("{}{more}", drops_all())));
    let add = |port: &str| {
        let port = json!({ "name": port, "kind": "sink", "upper": null });
        served.client.json::<Value>("POST", "/v1/ports", &port).expect("it is free");
    };
    add("extra");
    let object = std::fs::read(format!("{FIXTURES}/every_verdict.o")).expect("a fixture");
    let put = served.client.send::<Value>("PUT", "/v1/objects?name=e.o", object.into());
    let sha = put.expect("an object")["sha256"].clone();
    let program = json!({ "sha256": sha, "object": "e.o", "program": "every_verdict" });
    let link = json!({ "port": "more", "programs": [program] });
    served.client.json::<Value>("POST", "/v1/links", &link).expect("it is fine");
    let dir = served.stop();
    let served = Served::start_in(dir, &config(&drops_all()));
    let status = served.get("/v1/status");
    assert_eq!(codes(&status), ["saved"], "{status}");
    assert!(status["failures"][0]["why"].as_str().is_some_and(|it| it.contains("aside-1")));
    let names = status["ports"].to_string();
    assert!(names.contains("\"extra\"") && !names.contains("\"more\""), "{names}");
    goes_on(&served);
    assert_eq!(passed(&served), 0);
    assert!(served.dir.join("state/aside-1/state").exists());
    served.end();
}

/// Turns a bit in the line of what is saved that says this.
fn damage(dir: &std::path::Path, says: &str) {
    let path = dir.join("state/state");
    let mut bytes = std::fs::read(&path).expect("it was saved");
    let text = String::from_utf8(bytes.clone()).expect("it is text");
    let is_it = |line: &&str| line.contains(says) && !line.contains("\"parts\":");
    let line = text.lines().find(is_it).expect("it is saved");
    let at = line.as_ptr() as usize - text.as_ptr() as usize + line.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("there is room");
}

#[test]
fn a_damaged_program_is_as_the_configuration_has_it_and_no_older_one() {
    let first = config(&attach("keeper_1.o", "keeper"));
    let second = config(&attach("keeper_2.o", "keeper"));
    let sha = |served: &Served| served.get("/v1/programs")[0]["sha256"].clone();
    for part in ["wanted/programs", "file/programs"] {
        let served = Served::start("filters-damaged", &first);
        let older = sha(&served);
        reload(&served, &second);
        let newer = sha(&served);
        assert_ne!(older, newer);
        let dir = served.stop();
        damage(&dir, part);
        let served = Served::start_in(dir, &second);
        let status = served.get("/v1/status");
        assert_eq!(codes(&status), ["saved"], "{part}: {status}");
        assert_eq!((sha(&served), runs(&served).len()), (newer.clone(), 1), "{part}");
        reload(&served, &second);
        assert_eq!(codes(&served.get("/v1/status")), Vec::<String>::new(), "{part}");
        assert_eq!(sha(&served), newer, "{part}: what is over is over");
        // The configuration goes back to what was before: that is another one.
        reload(&served, &first);
        assert_eq!(sha(&served), older, "{part}");
        served.end();
    }
}

#[test]
fn what_fails_beside_a_change_is_no_reason_to_refuse_it() {
    let served = Served::start("filters-beside", &config(&drops_all()));
    let path = served.dir.join("late.pcap").display().to_string();
    let more = format!("[[port]]\nname = \"late\"\nkind = \"pcap\"\nin = \"{path}\"\n");
    reload(&served, &format!("{}{more}", config(&drops_all())));
    let why = || served.get("/v1/status")["failures"][0]["why"].clone();
    let add = |port: &Value| served.client.json::<Value>("POST", "/v1/ports", port);
    let before = why();
    // The same trouble for another reason, which the change is the first to see.
    std::fs::create_dir(path).expect("there is room");
    add(&json!({ "name": "extra", "kind": "sink" })).expect("it has nothing to do with it");
    assert_eq!(codes(&served.get("/v1/status")), ["port-open"]);
    assert_ne!(why(), before, "it is told why it is now");
    // A change fails if the trouble concerns the change itself.
    let other = json!({ "in": "other.pcap" });
    let refused = served.client.json::<Value>("PATCH", "/v1/ports/late", &other);
    let error = refused.expect_err("there is none").to_string();
    assert!(error.contains("other.pcap"), "{error}");
    let refused = add(&json!({ "name": "none", "kind": "pcap", "in": "none.pcap" }));
    refused.expect_err("there is none");
    assert!(!served.get("/v1/ports").to_string().contains("none.pcap"));
    served.end();
}

#[test]
fn a_port_that_was_never_open_is_shown_and_can_be_set() {
    let more = "[[port]]\nname = \"late\"\nkind = \"pcap\"\nin = \"late.pcap\"\n";
    let served = Served::start("filters-never", &format!("{}{more}", config(&drops_all())));
    let path = "/v1/ports/late";
    let set = served.client.json::<Value>("PATCH", path, &json!({ "up": false }));
    let set = set.expect("it is wanted");
    assert_eq!((&set["up"], &set["index"]), (&json!(false), &json!(0)), "{set}");
    assert!(set["failure"].as_str().is_some_and(|why| why.contains("late.pcap")), "{set}");
    assert_eq!(served.get(path), set);
    let all = served.get("/v1/ports");
    assert!(all.as_array().is_some_and(|all| all.contains(&set)), "{all}");
    for what in ["features", "dump"] {
        let error = served.client.get::<Value>(&format!("{path}/{what}")).expect_err("not open");
        let error = error.to_string();
        assert!(error.contains("not open") && error.contains("late.pcap"), "{error}");
    }
    served.client.send::<Value>("DELETE", path, [].as_slice().into()).expect("it is wanted");
    served.client.get::<Value>(path).expect_err("it is gone");
    served.end();
}
