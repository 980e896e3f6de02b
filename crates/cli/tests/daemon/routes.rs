//! Look-ups answered from the configuration: a program that routes, and tables that change.

use super::Daemon;
use crate::support::Bench;

/// UDP from 192.0.2.9 to 198.51.100.7, and a program that forwards it where the tables say.
const CONFIG: &str = r#"
[[port]]
name = "in"
kind = "generator"
rate = 5000
frames = ["02000000000102000000000908004500001c0000000040118e8dc0000209c63364071000200000080000"]

[[port]]
name = "out"
kind = "sink"

[[attach]]
port = "in"
object = "router.o"
"#;

const TABLES: &str = r#"
[[route]]
to = "198.51.100.0/24"
via = "203.0.113.1"
dev = "out"

[[neighbour]]
address = "203.0.113.1"
dev = "out"
mac = "02:00:00:00:00:77"
"#;

/// The tables inside of a configuration.
fn inline() -> String {
    TABLES.replace("[[", "[[host.")
}

impl Daemon<'_> {
    fn forwarded(&self) -> u64 {
        self.json(&["stats"])["ports"]["out"]["tx_packets"].as_u64().expect("a number")
    }

    /// Applies another configuration, and gives what changed.
    fn apply(&self, config: &str) -> String {
        self.bench.file("t.toml", config);
        let report = self.json(&["reload"]);
        assert_eq!(report["failures"], serde_json::json!([]), "{report}");
        report["changes"].to_string()
    }
}

#[test]
fn routes_come_from_the_configuration_and_change_with_it() {
    let bench = Bench::new("daemon_routes");
    let daemon = Daemon::start(&bench, CONFIG);
    daemon.wait_for("traffic", || daemon.rx("in") > 100);
    assert_eq!(daemon.forwarded(), 0, "the running host has no such route");

    let changes = daemon.apply(&format!("{CONFIG}{}", inline()));
    assert!(changes.contains("host: 1 routes, 1 neighbours, as written"), "{changes}");
    daemon.wait_for("a forwarded frame", || daemon.forwarded() > 100);

    let without =
        format!("{CONFIG}[[host.route]]\nto = \"198.51.100.0/24\"\ntype = \"blackhole\"\n");
    daemon.apply(&without);
    let (forwarded, received) = (daemon.forwarded(), daemon.rx("in"));
    daemon.wait_for("more traffic", || daemon.rx("in") > received + 200);
    assert!(daemon.forwarded() <= forwarded + 64, "at most the burst of that moment");

    bench.file("routes.toml", TABLES);
    let from_file = format!("{CONFIG}[host]\ntables = \"routes.toml\"\n");
    daemon.apply(&from_file);
    let forwarded = daemon.forwarded();
    daemon.wait_for("a forwarded frame", || daemon.forwarded() > forwarded);

    bench.file("routes.toml", TABLES.replace("\"out\"", "\"uot\""));
    let error = daemon.refusal(1, &["reload"]);
    assert!(
        error.contains("host.route[0].dev: no interface is called \"uot\"; did you mean"),
        "{error}"
    );
    let changes = daemon.apply(CONFIG);
    assert!(changes.contains("host: the running host's routes and neighbours"), "{changes}");
    daemon.end();
}
