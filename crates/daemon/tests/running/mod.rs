//! A daemon's engine that runs in the test, and its counters.

use std::path::Path;
use std::sync::Arc;

use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_engine::counters::PortCounters;

/// What a configuration says, running; its objects are the fixtures.
pub(crate) fn start(text: &str) -> (Live, State) {
    let objects = Arc::new(ObjectFiles::default());
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let loaded = parse(text, Path::new("t.toml"), here, &objects).expect("it is fine");
    let mut live = Live::start(&loaded.state, objects, Arc::default()).expect("there is memory");
    let report = live.reconcile(&loaded.state);
    assert_eq!(report.failures, [], "{report:?}");
    (live, loaded.state)
}

/// The sum of a counter of a port over all workers.
pub(crate) fn sum(live: &Live, port: &str, read: impl Fn(&PortCounters) -> u64) -> u64 {
    let id = live.ports()[port].id;
    live.engine().read(|_, snapshot| {
        let slot = snapshot.port(id).expect("it is open");
        slot.opened.counters.iter().map(read).sum()
    })
}
