//! Bonds as people see them: `bond show`, and what `check` says of a program that breaks one.

use serde_json::json;

use super::Daemon;
use crate::support::Bench;

/// Two bonds face to face. `{keys}` and `{program}` differ.
fn config(keys: &str, program: &str) -> String {
    let mut text = String::new();
    for (one, other) in [("a0", "b0"), ("b0", "a0"), ("a1", "b1"), ("b1", "a1")] {
        text += &format!("[[port]]\nname = \"{one}\"\nkind = \"pair\"\npeer = \"{other}\"\n");
    }
    for end in ["a", "b"] {
        text += &format!(
            "[[port]]\nname = \"bond{end}\"\nkind = \"bond\"\nmembers = [\"{end}0\", \"{end}1\"]\n\
             {keys}\n"
        );
    }
    text + program
}

const PASSES: &str = r#"
[[attach]]
port = "bonda"
object = "every_verdict.o"
program = "every_verdict"
maps = { overrides = { "2" = 2 } }
"#;

#[test]
fn bond_show_is_the_table_of_proc_net_bonding() {
    let bench = Bench::new("daemon_bond_show");
    let keys = "mode = \"active-backup\"\nmiimon = 10\nprimary = \"{0}1\"";
    let text = config(keys, PASSES);
    let text = text.replacen("{0}", "a", 1).replacen("{0}", "b", 1);
    let daemon = Daemon::start(&bench, &text);
    daemon.wait_for("the primary", || daemon.json(&["bond", "show", "bonda"])[0]["active"] == "a1");
    let all = daemon.json(&["bond", "show"]);
    let names: Vec<_> = all.as_array().expect("a list").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["bonda", "bondb"]);
    let bond = &all[0];
    assert_eq!((&bond["mii_status"], &bond["miimon"]), (&json!("up"), &json!(10)));
    let member = &bond["members"][1];
    let speed = (&member["speed"], &member["duplex"], &member["can_send"]);
    assert_eq!(speed, (&json!(10_000), &json!("full"), &json!(true)), "{member}");
    let shown = bench.run(&["bond", "show", "bonda", "--socket", super::SOCKET]);
    assert_eq!(shown.status, 0);
    let ifindex = bond["ifindex"].as_u64().expect("a number");
    let text = |key: &str| bond[key].as_str().expect("a text").to_owned();
    let mac = |at: usize| bond["members"][at]["permanent_mac"].as_str().expect("an address");
    let member = |name: &str, mac: &str| {
        format!(
            "\nSlave Interface: {name}\nMII Status: up\nSpeed: 10000 Mbps\nDuplex: full\n\
             Link Failure Count: 0\nPermanent HW addr: {mac}\n"
        )
    };
    let expected = format!(
        "Bond: bonda (ifindex {ifindex})\n\
         Bonding Mode: fault-tolerance (active-backup)\n\
         Primary Slave: a1 (primary_reselect always)\n\
         Currently Active Slave: a1\n\
         MII Status: up\n\
         MII Polling Interval (ms): 10\n\
         Up Delay (ms): 0\n\
         Down Delay (ms): 0\n\
         Peer Notification Delay (ms): 0\n\
         HW addr: {}\n\
         XDP (delegated to all slaves): every_verdict\n{}{}",
        text("mac"),
        member("a0", mac(0)),
        member("a1", mac(1)),
    );
    assert_eq!(shown.stdout, expected);
    let error = daemon.refusal(1, &["bond", "show", "bondc"]);
    assert!(error.contains("bondc"), "{error}");
    daemon.end();
}

#[test]
fn a_bond_fails_over_when_the_far_end_of_a_pair_goes_down() {
    let bench = Bench::new("daemon_bond_carrier");
    let ends = config("mode = \"active-backup\"\nmiimon = 10\n{upper}", "");
    let ends = ends.replacen("{upper}", "", 1).replacen("{upper}", "upper = \"out\"", 1);
    let traffic = "[[port]]\nname = \"out\"\nkind = \"sink\"\n\
                   [[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 20000\n\
                   upper = \"bonda\"\n";
    let daemon = Daemon::start(&bench, &(ends + traffic));
    let sent = || daemon.json(&["stats"])["ports"]["out"]["tx_packets"].as_u64().expect("a number");
    let carries = |member: &str| {
        let is_active = |bond: &str| daemon.json(&["bond", "show", bond])[0]["active"] == member;
        daemon.wait_for("fail-over", || is_active(&format!("bond{}", &member[..1])));
        let before = sent();
        daemon.wait_for("traffic", || sent() > before + 1000);
    };
    carries("a0");
    // The test does not change a0 itself.
    daemon.json(&["port", "set", "b0", "up=false"]);
    carries("a1");
    let bond = daemon.json(&["bond", "show", "bonda"]);
    let members = bond[0]["members"].as_array().expect("a list");
    assert_eq!(
        (&members[0]["mii_status"], &members[0]["link_failure_count"]),
        (&json!("down"), &json!(1))
    );
    daemon.json(&["port", "set", "b0", "up=true"]);
    daemon.json(&["port", "set", "b1", "up=false"]);
    carries("a0");
    daemon.end();
}

#[test]
fn bond_show_tells_of_lacp() {
    let bench = Bench::new("daemon_bond_lacp");
    let daemon = Daemon::start(&bench, &config("mode = \"802.3ad\"\nlacp_rate = \"fast\"", PASSES));
    daemon.wait_for("an aggregate of two", || {
        daemon.json(&["bond", "show", "bonda"])[0]["lacp"]["aggregator"]["ports"] == 2
    });
    let shown = bench.run(&["bond", "show", "bonda", "--socket", super::SOCKET]).stdout;
    for line in [
        "Bonding Mode: IEEE 802.3ad Dynamic link aggregation",
        "Transmit Hash Policy: layer2",
        "802.3ad info",
        "LACP active: on",
        "LACP rate: fast",
        "Aggregator selection policy (ad_select): stable",
        "Active Aggregator Info:",
        "\tNumber of ports: 2",
        // 10 Gbit/s is the kernel's number 7, and full duplex.
        "\tActor Key: 15",
        "details actor lacp pdu:",
        "    port key: 15",
    ] {
        assert!(shown.lines().any(|it| it == line), "no {line:?} in\n{shown}");
    }
    daemon.end();
}

#[test]
fn check_warns_of_a_program_that_drops_lacpdus() {
    let bench = Bench::new("bond_check");
    let drops = PASSES.replace("\"2\" = 2", "\"2\" = 1");
    bench.file("t.toml", config("mode = \"802.3ad\"", &drops));
    let checked = bench.json(&["check", "-c", "t.toml"]);
    assert_eq!(checked["ports"].as_array().map(Vec::len), Some(6), "{checked}");
    let warnings = checked["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let text = warnings[0].as_str().expect("a text");
    assert!(
        text.starts_with("port bonda: program every_verdict says XDP_DROP to LACPDUs"),
        "{text}"
    );
    bench.file("t.toml", config("mode = \"802.3ad\"", PASSES));
    assert_eq!(bench.json(&["check", "-c", "t.toml"])["warnings"], json!([]));
}
