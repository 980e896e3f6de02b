//! `load` of what is there already, and which of several programs a new version replaces.

use serde_json::Value;

use super::{CONFIG, Daemon};
use crate::support::Bench;

const LOAD: [&str; 5] = ["load", "gen", "keeper_1.o", "-n", "keeper"];

/// Program, link and priority of each program on `gen`, in the order in which they run.
fn links(daemon: &Daemon<'_>) -> Vec<(u64, u64, u64)> {
    let status = daemon.json(&["status", "gen"]);
    let number = |link: &Value, key: &str| link[key].as_u64().expect("a number");
    let links = status["links"].as_array().expect("a list").iter();
    links.map(|it| (number(it, "prog_id"), number(it, "id"), number(it, "prio"))).collect()
}

fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

#[test]
fn the_same_program_twice_is_told_and_the_one_meant_is_replaced() {
    let bench = Bench::new("versions");
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let daemon = Daemon::start(&bench, ports);
    daemon.json(&["port", "set", "gen", "up=false"]);
    // Without anything there, it is attached.
    daemon.json(&with(&LOAD, &["-P", "10", "--replace"]));
    let [(first, link, 10)] = links(&daemon)[..] else { panic!("{:?}", links(&daemon)) };
    daemon.json(&["map", "update", "flows", "key", "7", "value", "{\"packets\": 5}"]);

    for again in [&["-P", "10"][..], &[]] {
        let said = daemon.refusal(1, &with(&LOAD, again));
        let there = format!("program {first}, link {link}, priority 10");
        assert!(said.contains("keeper is attached already"), "{said}");
        assert!(said.contains(&there) && said.contains("--replace"), "{said}");
        assert!(said.contains("(EEXIST)"), "{said}");
    }
    // A user may want a second copy.
    daemon.json(&with(&LOAD, &["-P", "20"]));
    let [_, (second, _, 20)] = links(&daemon)[..] else { panic!("{:?}", links(&daemon)) };

    // The refusal of an ambiguous map or program lists the ids.
    let said = daemon.refusal(2, &["map", "lookup", "flows", "key", "7"]);
    for id in [first, second] {
        assert!(said.contains(&format!("of keeper on gen, program {id}")), "{said}");
    }
    let said = daemon.refusal(1, &with(&LOAD, &["--replace"]));
    assert!(said.contains("2 programs keeper are attached"), "{said}");
    for id in [first, second] {
        assert!(said.contains(&format!("keeper (program {id}, link")), "{said}");
    }
    assert!(said.contains("--replace=ID"), "{said}");
    assert_eq!(links(&daemon).len(), 2, "nothing was replaced");

    // Its priority says which one is meant, and so does its id.
    daemon.json(&with(&LOAD, &["--replace", "-P", "10"]));
    let [(newer, kept, 10), (other, _, 20)] = links(&daemon)[..] else {
        panic!("{:?}", links(&daemon))
    };
    assert!((kept, other) == (link, second) && newer != first);
    daemon.json(&with(&LOAD, &[&format!("--replace={second}")]));
    assert_eq!(links(&daemon)[0].0, newer, "the other one stays");
    let map = daemon.json(&["map", "show", "name", "flows"]);
    let map = map.as_array().expect("two maps").iter();
    let map = map.filter_map(|it| it["id"].as_u64()).min().expect("two").to_string();
    let found = daemon.formatted(&["map", "lookup", "id", &map, "key", "7"]);
    assert_eq!(found["value"]["packets"], 5, "it has its maps");

    // All of them, and what is new begins with the maps of none.
    daemon.json(&["load", "gen", "keeper_2.o", "-n", "keeper", "--replace=all", "-P", "10"]);
    let [(_, kept, 10)] = links(&daemon)[..] else { panic!("{:?}", links(&daemon)) };
    assert_eq!(kept, link);
    let usage = bench.run(&with(&LOAD, &["--replace=any"]));
    assert!(usage.stderr.contains("expected an id, or all"), "{usage:?}");
    daemon.end();
}

#[test]
fn a_new_version_is_found_among_other_programs_by_its_name() {
    let bench = Bench::new("versions_named");
    let (ports, _) = CONFIG.split_once("[[attach]]").expect("it attaches a program");
    let daemon = Daemon::start(&bench, ports);
    daemon.json(&["port", "set", "gen", "up=false"]);
    daemon.json(&with(&LOAD, &["-P", "30"]));
    daemon.json(&["load", "gen", "every_verdict.o", "-n", "every_verdict", "-P", "10"]);
    daemon.json(&["map", "update", "flows", "key", "7", "value", "{\"packets\": 5}"]);
    let before = links(&daemon);

    // The file is another one, the function is not.
    daemon.json(&["load", "gen", "keeper_2.o", "-n", "keeper", "--replace"]);
    let after = links(&daemon);
    assert_eq!(after[0], before[0], "the other program goes on");
    assert_eq!((after[1].1, after[1].2), (before[1].1, 30), "the link stays, and its priority");
    assert_ne!(after[1].0, before[1].0);
    let found = daemon.formatted(&["map", "lookup", "flows", "key", "7"]);
    assert_eq!(found["value"]["packets"], 5);

    let said = daemon.refusal(1, &["load", "gen", "endless.o", "--replace"]);
    assert!(said.contains("to replace; these are attached: every_verdict (program"), "{said}");
    assert!(said.contains("--replace=ID, or --replace=all"), "{said}");
    assert_eq!(links(&daemon), after, "nothing was replaced");
    // Several at once: each takes its own.
    let both = ["load", "gen", "keeper_1.o", "keeper_2.o", "-n", "keeper", "--replace"];
    assert!(daemon.refusal(1, &both).contains("no program keeper to replace"));
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper", "--replace=all"]);
    assert_eq!(links(&daemon).len(), 1);
    daemon.end();
}
