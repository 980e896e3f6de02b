//! Measures the two promises about hash tables, as ratios within one run:
//! look-ups from two threads against one, and memory against the bytes of keys and values.
//!
//! Time is what each thread spent on a core, so that a busy machine costs precision but doesn't
//! count as contention between the threads.
//!
//! `cargo run --release -p towpath-maps --example hash_bars`

#![expect(clippy::print_stdout, reason = "a measurement prints its result")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_maps::{CreateOptions, Domain, Map};

const ENTRIES: u32 = 1_000_000;
const KEY_BYTES: u32 = 16;
const VALUE_BYTES: u32 = 64;
/// Look-ups between two announcements of a worker: a packet batch.
const BATCH: u64 = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(400);

fn main() {
    let before = resident_bytes();
    let map = full_map();
    let used = resident_bytes().saturating_sub(before);
    let payload = u64::from(ENTRIES) * u64::from(KEY_BYTES + VALUE_BYTES);
    let limit = payload * 13 / 10 + u64::from(ENTRIES) * 48;
    println!(
        "memory: {} bytes an entry; limit {} (1.3 x {} + 48)",
        used / u64::from(ENTRIES),
        limit / u64::from(ENTRIES),
        KEY_BYTES + VALUE_BYTES
    );

    // Alternating rounds, so that a change of clock rate or a neighbour hits both alike.
    let mut rates: Vec<(f64, f64)> =
        (0..ROUNDS).map(|_| (lookups_per_second(&map, 1), lookups_per_second(&map, 2))).collect();
    rates.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (one, two) = rates[ROUNDS / 2];
    println!(
        "look-ups in {ENTRIES} entries: {:.1} ns on one thread, {:.1} ns on each of two: {:.2} x \
         (bar 1.8; {:.2} to {:.2} over {ROUNDS} rounds)",
        1e9 / one,
        2e9 / two,
        two / one,
        rates[0].1 / rates[0].0,
        rates[ROUNDS - 1].1 / rates[ROUNDS - 1].0,
    );
}

fn full_map() -> Arc<Map> {
    let def = MapDef::new("full", MapType::Hash, KEY_BYTES, VALUE_BYTES, ENTRIES);
    let map = Map::create(&def, &CreateOptions::new(Domain::new(2))).expect("a valid definition");
    for number in 0..u64::from(ENTRIES) {
        map.update(0, &key(number), &[1; VALUE_BYTES as usize], 0).expect("room");
    }
    map
}

fn key(number: u64) -> [u8; KEY_BYTES as usize] {
    let mut key = [0; KEY_BYTES as usize];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&(!number).to_le_bytes());
    key
}

fn lookups_per_second(map: &Map, threads: usize) -> f64 {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let (map, start) = (&map, &start);
        let running: Vec<_> = (0..threads)
            .map(|worker| scope.spawn(move || one_thread(map, worker, start)))
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn one_thread(map: &Map, worker: usize, start: &Barrier) -> f64 {
    let mut random = fastrand::Rng::with_seed(worker as u64);
    start.wait();
    let began = Instant::now();
    let began_on_core = time_on_core();
    let mut done = 0;
    while began.elapsed() < ROUND {
        for _ in 0..BATCH {
            let number = random.u64(..u64::from(ENTRIES));
            black_box(map.lookup(worker, &key(number)).expect("every key is there"));
        }
        map.domain().quiesce(worker);
        done += BATCH;
    }
    map.domain().offline(worker);
    let spent = match (began_on_core, time_on_core()) {
        (Some(before), Some(after)) => after - before,
        _ => began.elapsed(),
    };
    done as f64 / spent.as_secs_f64()
}

/// Time that the calling thread spent on a core, if the kernel tells.
fn time_on_core() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Memory of this process, from `/proc/self/statm`.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
