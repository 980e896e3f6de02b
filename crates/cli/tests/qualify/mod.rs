//! `qualify`: what is printed and written of ports that can be tried anywhere.

use serde_json::Value;

use crate::support::Bench;

#[test]
fn features_are_told_in_a_table_as_json_and_as_junit() {
    let bench = Bench::new("qualify");
    let ended = bench.run(&["qualify", "pair", "sink", "--junit", "out.xml"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{}", ended.stdout);
    let mut rows = ended.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(&"REDIRECT")).unwrap_or_default();
    assert_eq!(row, ["REDIRECT", "works", "-"], "{}", ended.stdout);
    assert!(ended.stdout.ends_with("everything that is advertised works\n"), "{}", ended.stdout);
    let junit = std::fs::read_to_string(bench.path("out.xml")).expect("it was written");
    assert!(junit.contains(r#"<testsuite name="pair""#) && junit.contains(r#"failures="0""#));

    let result = bench.json(&["qualify", "pair"]);
    assert_eq!(result["passed"], true);
    let features = result["ports"][0]["features"].as_array().expect("a list");
    let verdict = |name: &str| {
        let found = features.iter().find(|feature| feature["feature"] == name);
        found.map_or(Value::Null, |feature| feature["verdict"].clone())
    };
    assert_eq!((verdict("RX_SG"), verdict("XSK_ZEROCOPY")), ("works".into(), "no".into()));
}

#[test]
fn a_port_that_is_none_is_refused() {
    let bench = Bench::new("qualify_bad");
    let names = [("pear", "pair"), ("packet:eth0", "two interfaces"), ("sink:a/b", "over no")];
    for (name, why) in names {
        let ended = bench.run(&["qualify", name]);
        assert_eq!(ended.status, 2, "{}", ended.stderr);
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
}
