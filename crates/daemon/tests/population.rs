//! Memory of large maps is there before anything is put into them.

mod served;

use std::time::Duration;

use serde_json::{Value, json};

use served::Served;

const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is ours");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    let number = line.split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
    number.expect("kilobytes") << 10
}

#[test]
fn memory_of_a_large_map_comes_by_itself() {
    let served = Served::start("population", "");
    let before = resident();
    let make = |name: &str, flags: u32, entries: u32| {
        let path = format!("/sys/fs/bpf/{name}");
        let map = json!({
            "path": path, "name": name, "type": "hash", "key": 8, "value": 64, "entries": entries,
            "flags": flags,
        });
        let made: Value = served.client.json("POST", "/v1/maps", &map).expect("there is room");
        format!("/v1/maps/{}", made["id"])
    };
    let large = make("large", 0, 500_000);
    // BPF_F_NO_PREALLOC, and one that no machine has memory for.
    let grows = make("grows", 1, 500_000);
    let huge = make("huge", 0, 2_000_000_000);
    let percent = |map: &String| served.get(map)["populated_percent"].clone();
    served.wait("memory", LIMIT, || percent(&large) == json!(100));
    assert!(resident() - before > 500_000 * 72, "{} bytes", resident() - before);
    assert_eq!(percent(&grows), Value::Null);
    assert_eq!(percent(&huge), json!(0), "it is left alone");
    served.wait("end of it", LIMIT, || served.get("/v1/status")["population"] == Value::Null);
    let status = served.get("/v1/status");
    let warnings = status["warnings"].as_array().expect("a list");
    let is_said = |it: &Value| it.as_str().is_some_and(|it| it.starts_with("map huge (id "));
    assert_eq!(warnings.iter().filter(|it| is_said(it)).count(), 1, "{warnings:?}");
    served.end();
}
