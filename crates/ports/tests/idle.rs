//! An engine without work costs nothing. Alone in its process, because it looks at all threads.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use towpath_engine::{Engine, Mode, Options, PortOptions, WorkerOptions};
use towpath_ports::pair::{self, Pair};

#[test]
fn an_idle_engine_sleeps() {
    let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
    let engine = Engine::start(&Options { workers: vec![worker; 2], frames: 1024 }).unwrap();
    let (a, b) = Pair::new(pair::Options::default());
    engine.add_port(PortOptions::new("a"), Box::new(a)).unwrap();
    engine.add_port(PortOptions::new("b"), Box::new(b)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu_ns();
    std::thread::sleep(Duration::from_millis(1000));
    let used = cpu_ns() - before;
    // A bound for a broken sleep, not a measurement: spinning would be 1000 ms for each worker.
    assert!(used < 500_000_000, "{used} ns in a second of nothing to do");
}

fn cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let times = tasks.map(|task| {
        let path = task.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        let stat = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        if name.starts_with("worker-") { ns } else { 0 }
    });
    times.sum()
}
