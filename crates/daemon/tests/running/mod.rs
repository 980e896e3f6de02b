//! A daemon's engine that runs in the test, and its counters.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::{Live, Report};
use towpath_engine::Port;
use towpath_engine::counters::PortCounters;

/// Runs a configuration, whose objects are the fixtures.
pub(crate) fn start(text: &str) -> (Live, State) {
    let (live, state, report) = start_with(text, |_| {}, &Arc::default());
    assert_eq!(report.failures, [], "{report:?}");
    (live, state)
}

/// The same, with something done before there are ports and programs; whatever comes of it.
pub(crate) fn start_with(
    text: &str,
    prepare: impl FnOnce(&mut Live),
    objects: &Arc<ObjectFiles>,
) -> (Live, State, Report) {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let loaded = parse(text, Path::new("t.toml"), here, objects).expect("it is fine");
    let mut live =
        Live::start(&loaded.state, Arc::clone(objects), Arc::default()).expect("there is memory");
    prepare(&mut live);
    let report = live.reconcile(&loaded.state);
    (live, loaded.state, report)
}

/// The sum of a counter of a port over all workers.
pub(crate) fn sum(live: &Live, port: &str, read: impl Fn(&PortCounters) -> u64) -> u64 {
    counters(live, port).iter().map(read).sum()
}

/// The counters of a port, by worker.
pub(crate) fn counters(live: &Live, port: &str) -> Arc<[PortCounters]> {
    let id = live.ports()[port].id;
    let counters = |slot: &Arc<Port>| Arc::clone(&slot.opened.counters);
    live.engine().read(|_, snapshot| snapshot.port(id).map(counters)).expect("it is open")
}

#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "no {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
