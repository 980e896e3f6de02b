//! `status` shows changes of devices while the configuration stays the same.

mod served;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use served::Served;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn frames_that_are_all_in_use_are_told_of() {
    let config = "[engine]\nframes = 256\n\
                  [[port]]\nname = \"held\"\nkind = \"generator\"\n\
                  fault = { delay_ms = 600000, on = \"rx\" }\n";
    let served = Served::start("used-up", config);
    let says = || {
        let status = served.get("/v1/status");
        let warnings = status["warnings"].as_array().expect("a list").clone();
        let is_said = |it: &Value| it.as_str().is_some_and(|it| it.starts_with("all 256 frames"));
        warnings.iter().any(is_said)
    };
    served.wait("the last frame", LIMIT, says);
    let _gone: Value = served.client.json("DELETE", "/v1/ports/held", &json!({})).expect("it goes");
    served.wait("frames that come back", LIMIT, || !says());
    served.end();
}

#[test]
fn another_mtu_of_an_interface_is_taken_over() {
    let name = format!("tpmtu{}", std::process::id() % 100_000);
    let config = format!("[[port]]\nname = \"{name}\"\nkind = \"tap\"\n");
    let served = Served::start("mtu", &config);
    let mtu = || served.get("/v1/status")["ports"][0]["mtu_now"].clone();
    let failures = served.get("/v1/status")["failures"].clone();
    if failures != json!([]) {
        println!("skipped: {failures}");
        return served.end();
    }
    assert_eq!(mtu(), json!(1500));
    let run = Command::new("ip").args(["link", "set", &name, "mtu", "1400"]).status();
    assert!(run.is_ok_and(|status| status.success()), "ip(8)");
    served.wait("the MTU", LIMIT, || mtu() == json!(1400));
    served.end();
}
