//! Programs, maps and links as bpftool shows them, and pins that keep them.

use serde_json::json;

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

#[test]
fn objects_are_shown_in_bpftools_words() {
    let bench = Bench::new("show_objects");
    let daemon = Daemon::start(&bench, CONFIG);
    let program = daemon.json(&["prog", "show", "name", "every_verdict"]);
    for key in ["id", "tag", "gpl_compatible", "loaded_at", "uid", "bytes_xlated", "bytes_jited"] {
        assert!(!program[key].is_null(), "{key}: {program}");
    }
    assert_eq!((&program["type"], &program["jited"]), (&json!("xdp"), &json!(true)), "{program}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.expect("it is after 1970").as_secs() as i64
        - program["loaded_at"].as_i64().expect("a time");
    assert!((0..600).contains(&age), "loaded {age} s ago");
    let map = daemon.json(&["map", "show", "name", "counts"]);
    assert_eq!((&map["bytes_key"], &map["frozen"]), (&json!(4), &json!(0)), "{map}");
    assert_eq!(map["towpath"]["prog_ids"], json!([program["id"]]));
    assert!(program["map_ids"].as_array().is_some_and(|ids| ids.contains(&map["id"])));
    let link = daemon.json(&["link", "show"])[0].clone();
    assert_eq!((&link["type"], &link["prog_id"]), (&json!("xdp"), &program["id"]), "{link}");

    let text = |words: &[&str]| {
        let ended = bench.run(&[words, &["--socket", SOCKET]].concat());
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.stdout
    };
    let (id, tag) = (&program["id"], program["tag"].as_str().expect("a text"));
    let shown = text(&["prog", "show"]);
    assert!(
        shown.starts_with(&format!("{id}: xdp  name every_verdict  tag {tag}  gpl\n\tloaded_at "))
    );
    let shown = text(&["map", "show", "counts"]);
    assert!(
        shown.contains("  name counts  flags 0x0\n\tkey 4B  value 16B  max_entries "),
        "{shown}"
    );
    let shown = text(&["link", "show"]);
    assert!(shown.contains(&format!(": xdp  prog {id}\n\tifindex gen(65537)  hook rx")), "{shown}");
    daemon.end();
}

#[test]
fn what_is_pinned_outlives_what_used_it() {
    let bench = Bench::new("pins");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.wait_for("traffic", || daemon.rx("gen") > 0);
    let program = daemon.json(&["prog", "show", "every_verdict"])["id"].clone();
    let pin = daemon.json(&["prog", "pin", "id", &program.to_string(), "fw/main"]);
    assert_eq!(pin, json!({"path": "/sys/fs/bpf/fw/main", "kind": "prog", "id": program}));
    daemon.json(&["map", "pin", "counts", "/sys/fs/bpf/fw/counts"]);
    daemon.json(&["link", "pin", "name", "every_verdict", "link"]);
    assert!(daemon.refusal(1, &["map", "pin", "counts", "fw/main"]).contains("(EEXIST)"));
    assert!(daemon.refusal(1, &["map", "pin", "counts", "/tmp/counts"]).contains("(EPERM)"));
    let shown = daemon.json(&["prog", "show", "pinned", "fw/main"]);
    assert_eq!(shown["pinned"], json!(["/sys/fs/bpf/fw/main"]), "{shown}");

    daemon.json(&["unload", "gen", "-a"]);
    let link = daemon.json(&["link", "show", "pinned", "link"]);
    assert_eq!((&link["ifindex"], &link["prog_id"]), (&json!(0), &program), "it holds nothing");
    let shown = daemon.json(&["prog", "show"]);
    assert_eq!((&shown[0]["id"], &shown[0]["towpath"]["key"]), (&program, &json!(null)), "{shown}");
    let counted = daemon.formatted(&["map", "lookup", "pinned", "fw/counts", "key", "2"]);
    assert!(counted["values"][0]["value"]["frames"].as_u64() > Some(0), "{counted}");
    assert!(daemon.json(&["prog", "dump", "pinned", "fw/main", "xir"])["text"].is_string());
    for path in ["fw/main", "/sys/fs/bpf/fw/counts", "link"] {
        daemon.json(&["prog", "unpin", path]);
    }
    for what in ["prog", "map", "link"] {
        assert_eq!(daemon.json(&[what, "show"]), json!([]), "with their last pin they go");
    }
    assert!(daemon.refusal(1, &["map", "unpin", "fw/counts"]).contains("(ENOENT)"));
    // Ids are not used again at once.
    let loaded = daemon.json(&["load", "gen", "every_verdict.o", "-n", "every_verdict"]);
    assert!(loaded["links"][0]["prog_id"].as_u64() > program.as_u64(), "{loaded}");
    daemon.end();
}
