//! Tests of exported metrics: numbers in maps, and all metrics that the dashboard uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use towpath_objects::Selector;

use super::*;
use crate::control::Inner;
use crate::control::file::parse;
use crate::live::elements;
use crate::live::files::ObjectFiles;
use crate::model::messages::EntryRequest;

const CONFIG: &str = r#"
[metrics]
listen = "127.0.0.1:9464"

[[metrics.map]]
map = "flows"
value = "packets"
labels = ["flow"]
type = "counter"

[[metrics.map]]
map = "flows"
name = "all_bytes"
value = "bytes"
labels = []

[[metrics.map]]
map = "flwos"

[[port]]
name = "p0"
kind = "pair"
peer = "p1"

[[port]]
name = "p1"
kind = "pair"
peer = "p0"

[[port]]
name = "bond0"
kind = "bond"
members = ["p1"]

[[attach]]
port = "p0"
object = "keeper_1.o"
program = "keeper"
"#;

/// A daemon without sockets.
fn start() -> Arc<Control> {
    start_with(CONFIG)
}

fn start_with(config: &str) -> Arc<Control> {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let objects = Arc::new(ObjectFiles::default());
    let loaded = parse(config, Path::new("t.toml"), here, &objects).expect("it is fine");
    Arc::new(Control::start(loaded, None, objects).expect("there is memory"))
}

fn store(control: &Control, key: u32, packets: u64, bytes: u64) {
    let mut session = control.read(Inner::session);
    let map = session.map(&Selector::Name("flows".into())).expect("the program has it");
    let value = Some(json!({ "packets": packets, "bytes": bytes }));
    let request = EntryRequest { key: json!(key), value, ..EntryRequest::default() };
    elements::update(&mut session, &map, &request).expect("there is room");
}

#[test]
fn numbers_in_maps_are_metrics() {
    let control = start();
    store(&control, 7, 3, 100);
    store(&control, 9, 4, 200);
    let text = text(read(&control));
    for line in [
        "# TYPE towpath_map_flows_packets counter",
        "towpath_map_flows_packets_total{flow=\"7\"} 3.0",
        "towpath_map_flows_packets_total{flow=\"9\"} 4.0",
        "towpath_map_all_bytes 300.0",
        "towpath_map_metric_maps{metric=\"towpath_map_flows_packets\"} 1.0",
        "towpath_map_metric_maps{metric=\"towpath_map_flwos\"} 0.0",
        "towpath_map_metric_left_out{metric=\"towpath_map_flows_packets\"} 0.0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    control.stop();
}

#[test]
fn the_dashboard_asks_for_what_is_exported() {
    let control = start();
    let mut reading = read(&control);
    let statistics = view::counted(&towpath_xsk::Statistics::default());
    reading.sockets = vec![XskView {
        id: 1,
        port: None,
        queue: None,
        zero_copy: false,
        rx: None,
        tx: None,
        fill: None,
        completion: None,
        maps: Vec::new(),
        udp: Vec::new(),
        statistics,
    }];
    let text = text(reading);
    control.stop();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exported: BTreeSet<String> = families
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
        .collect();
    let dashboard = include_str!("../../../../../packaging/grafana/towpath.json");
    let dashboard: Json = serde_json::from_str(dashboard).expect("it is JSON");
    let mut asked = BTreeSet::new();
    collect(&dashboard, &mut asked);
    assert!(asked.len() > 20, "{asked:?}");
    let missing: Vec<&String> = asked.difference(&exported).collect();
    assert!(missing.is_empty(), "{missing:?} of {exported:?}");
}

#[test]
fn workers_poll_each_queue_once_and_are_idle_without_frames() {
    let config = r#"
[[worker]]
[[worker]]
[[worker]]
[[port]]
name = "p2"
kind = "pair"
peer = "p10"
queues = 5
[[port]]
name = "p10"
kind = "pair"
peer = "p2"
queues = 5
[[port]]
name = "away"
kind = "packet"
interface = "none-such"
[[port]]
name = "out"
kind = "sink"
up = false
"#;
    let control = start_with(config);
    let ports = control.read(view::ports);
    let workers = control.read(crate::doors::workers::all);
    let names = |it: &WorkerView| it.queues.iter().map(|it| it.port.clone()).collect::<Vec<_>>();
    assert_eq!(workers.iter().map(names).collect::<Vec<_>>(), vec![vec!["p2", "p10"]; 3]);
    for port in ports.iter().filter(|port| port.state.up) {
        let polled =
            workers.iter().flat_map(|it| &it.queues).filter(|it| it.port == port.state.name);
        let mut queues: Vec<u32> = polled.flat_map(|it| it.queues.clone()).collect();
        queues.sort_unstable();
        assert_eq!(queues, (0..port.queues).collect::<Vec<_>>(), "{}", port.state.name);
    }
    let text = text(read(&control));
    control.stop();
    for line in [
        "towpath_worker_busy_seconds_total{worker=\"0\"} 0.0",
        "towpath_worker_frames_total{worker=\"2\"} 0",
        "towpath_worker_queues{worker=\"0\"} 4",
        "towpath_worker_queues{worker=\"2\"} 3",
        "towpath_port_up{port=\"p2\"} 1",
        "towpath_port_up{port=\"out\"} 0",
        "towpath_port_up{port=\"away\"} 0",
        "towpath_port_link{port=\"p2\"} 1",
        "towpath_port_link{port=\"out\"} 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    assert!(text.contains("towpath_build_info{version=\""), "{text}");
}

#[test]
fn ports_that_spread_say_so_and_their_workers_too() {
    let config = r#"
[[worker]]
[[worker]]
[[worker]]
[[port]]
name = "all"
kind = "generator"
rate = 1000
spread = "flow"
[[port]]
name = "some"
kind = "generator"
rate = 10
workers = [0, 2]
spread = "flow"
[[port]]
name = "one"
kind = "generator"
rate = 10
"#;
    let control = start_with(config);
    let shares = |control: &Control| {
        let workers = control.read(crate::doors::workers::all);
        workers.into_iter().map(|it| it.shares).collect::<Vec<_>>()
    };
    assert_eq!(shares(&control), [vec!["all", "some"], vec!["all"], vec!["all", "some"]]);
    let spread = |control: &Control| {
        let ports = control.read(view::ports);
        ports.iter().map(|it| it.details.get("spread").cloned()).collect::<Vec<_>>()
    };
    let said = |workers: &str| Some(format!("flows, over workers {workers}"));
    assert_eq!(spread(&control), [said("0, 1, 2"), None, said("0, 2")]);
    let text = text(read(&control));
    assert!(text.lines().any(|it| it == "towpath_worker_shares{worker=\"1\"} 1"), "{text}");
    // A change of this key needs no new device.
    let port = control.read(|inner| inner.live.ports["all"].id);
    let opened = || control.read(|it| it.live.engine.port(port).map(|it| it.opened.is_open()));
    let before = opened().expect("it is there");
    let changed = control.change("ports", |state, _| {
        state.ports.iter_mut().for_each(|port| port.spread = None);
        Ok(())
    });
    changed.expect("nothing is wrong");
    assert!(before.ptr_eq(&opened().expect("it is there")), "the same device");
    assert_eq!(
        (shares(&control), spread(&control)),
        (vec![Vec::<String>::new(); 3], vec![None; 3])
    );
    control.stop();
}

/// Collects the names of metrics in all queries.
fn collect(json: &Json, names: &mut BTreeSet<String>) {
    match json {
        Json::Object(table) => {
            for (key, value) in table {
                if let (true, Some(query)) = (["expr", "query"].contains(&&**key), value.as_str()) {
                    let is_end = |it: char| !it.is_ascii_alphanumeric() && it != '_';
                    let words = query.split(is_end).filter(|word| word.starts_with("towpath_"));
                    names.extend(words.map(str::to_owned));
                }
                collect(value, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}
