//! Interfaces of the host's that go and come back: ports on them work again by themselves.

mod namespaces;
mod served;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use namespaces::{Namespaces, ip};
use served::Served;

/// After its interface is back, a port works within this time.
const SOON: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(10);

/// A port and a generator whose frames leave by it.
fn port(name: &str, keys: &str) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\n{keys}\n\
         [[port]]\nname = \"to-{name}\"\nkind = \"generator\"\nrate = 2000\nupper = \"{name}\"\n\
         frames = [\"ffffffffffff02000000000108000000000000000000000000000000\"]\n"
    )
}

fn sent(served: &Served, port: &str) -> u64 {
    served.get("/v1/stats")["ports"][port]["tx_packets"].as_u64().expect("a number")
}

/// What the port sends arrives at the far end.
fn works(served: &Served, port: &str) {
    let before = sent(served, port);
    let took = served.wait(port, LIMIT, || sent(served, port) > before + 20);
    assert!(took < SOON, "{port} works again after {took:?}");
}

fn has_failed(served: &Served, port: &str) -> bool {
    let status = served.get("/v1/status");
    let what = format!("port {port}");
    let failures = status["failures"].as_array().expect("a list");
    failures.iter().any(|it| it["subject"].as_str().is_some_and(|it| it == what))
}

/// All that can happen to the interface of a port; each time it comes back.
fn abuse(served: &Served, namespaces: &Namespaces, name: &str) {
    let gone = || served.wait("loss", LIMIT, || has_failed(served, name));
    let back = || {
        works(served, name);
        assert!(!has_failed(served, name), "{name}");
    };
    let (near, far) = (&namespaces.near, &namespaces.far);
    works(served, name);
    namespaces.ip(&format!("link del {name}"));
    gone();
    namespaces.wire(name, &format!("{name}-far"), "");
    back();
    // At once: nobody may notice that it was away.
    namespaces.ip(&format!("link del {name}"));
    namespaces.wire(name, &format!("{name}-far"), "");
    served.wait("return", LIMIT, || !has_failed(served, name));
    back();
    namespaces.ip(&format!("link set {name} netns {far}"));
    gone();
    ip(&["-n", far, "link", "set", name, "netns", near]);
    namespaces.ip(&format!("link set {name} up"));
    back();
    namespaces.ip(&format!("link set {name} down"));
    namespaces.ip(&format!("link set {name} name other"));
    gone();
    namespaces.ip(&format!("link set other name {name}"));
    namespaces.ip(&format!("link set {name} up"));
    back();
    namespaces.ip(&format!("link set {name} down"));
    std::thread::sleep(Duration::from_millis(100));
    namespaces.ip(&format!("link set {name} up"));
    back();
}

fn active(served: &Served) -> Option<String> {
    let bond = served.get("/v1/bonds/bond");
    bond["active"].as_str().map(str::to_owned)
}

#[test]
fn ports_come_back_with_their_interfaces() {
    let Some(namespaces) = Namespaces::new("returns") else {
        return println!("skipped: network namespaces and taps need root and /dev/net/tun");
    };
    for name in ["near0", "near1", "m0", "m1"] {
        namespaces.wire(name, &format!("{name}-far"), "");
    }
    let on = |kind: &str| format!("kind = \"{kind}\"\nnetns = \"{}\"", namespaces.near);
    let mut config = [
        port("near0", &on("packet")),
        port("near1", &on("afxdp")),
        port("tap", &on("tap")),
        port("bond", "kind = \"bond\"\nmembers = [\"m0\", \"m1\"]\nmode = 1\nmiimon = 10"),
        port("slow", "kind = \"bond\"\nmembers = [\"d0\", \"d1\"]\nmode = 1\nmiimon = 50"),
    ]
    .concat();
    for (name, kind) in [("m0", "packet"), ("m1", "packet"), ("d0", "tap"), ("d1", "tap")] {
        config += &format!("[[port]]\nname = \"{name}\"\n{}\n", on(kind));
    }
    let served = Served::start("returns", &config);
    abuse(&served, &namespaces, "near0");
    abuse(&served, &namespaces, "near1");

    works(&served, "tap");
    namespaces.ip("link del tap");
    served.wait("another tap", SOON, || {
        let seen = std::process::Command::new("ip")
            .args(["-n", &namespaces.near, "link", "show", "tap"])
            .output();
        seen.is_ok_and(|seen| seen.status.success())
    });
    works(&served, "tap");

    served.wait("m0", LIMIT, || active(&served).as_deref() == Some("m0"));
    namespaces.ip("link del m0");
    served.wait("fail-over", SOON, || active(&served).as_deref() == Some("m1"));
    works(&served, "bond");
    namespaces.wire("m0", "m0-far", "");
    served.wait("m0's return", SOON, || {
        served.get("/v1/bonds/bond")["members"][0]["mii_status"] == json!("up")
    });
    namespaces.ip("link del m1");
    served.wait("return", SOON, || active(&served).as_deref() == Some("m0"));
    works(&served, "bond");
    carriers_are_followed(&served, &namespaces);
    served.end();
}

/// Fail-over and return take two looks at the links, and no more, whenever the machine has a
/// processor for them: the quickest of four counts.
fn carriers_are_followed(served: &Served, namespaces: &Namespaces) {
    let looks = Duration::from_millis(2 * 50 + 5);
    let link = |member: usize| -> Value {
        served.get("/v1/bonds/slow")["members"][member]["mii_status"].clone()
    };
    let follow = |state: &str, wanted: &str| {
        namespaces.ip(&format!("link set d0 carrier {state}"));
        let start = Instant::now();
        served.wait(state, LIMIT, || link(0) == json!(wanted));
        start.elapsed()
    };
    let took = [(); 4].map(|()| [follow("off", "down"), follow("on", "up")]);
    for state in [0, 1] {
        let quickest = took.iter().map(|it| it[state]).min();
        // Asking takes its time, too.
        assert!(quickest < Some(looks + Duration::from_millis(25)), "{took:?}");
    }
}
