//! Tables and pools among many workers: nothing is lost, the limit is exact, and memory that all
//! workers write is written seldom.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use fastrand::Rng;
use towpath_bpf::Errno;
use towpath_bpf::program::MapType;

use super::pool::Pool;
use crate::flags::{BPF_ANY, BPF_NOEXIST};
use crate::map::{CreateOptions, Map};
use crate::qsbr::Domain;
use crate::shared::counted;
use crate::store::USER;
use crate::testing::def;

const WORKERS: usize = 4;
const BURST: u32 = 64;

fn create(kind: MapType, entries: u32) -> Arc<Map> {
    let options = CreateOptions::new(Domain::new(WORKERS));
    // A worker that runs nothing must not keep unlinked elements from being reused.
    (0..WORKERS).for_each(|worker| options.domain.offline(worker));
    Map::create(&def(kind, 8, 8, entries, 0), &options).expect("a valid definition")
}

fn insert(map: &Map, worker: usize, key: u64) -> Result<(), Errno> {
    map.update(worker, &key.to_ne_bytes(), &key.to_ne_bytes(), BPF_NOEXIST)
}

fn delete(map: &Map, worker: usize, key: u64) -> Result<(), Errno> {
    map.delete(worker, &key.to_ne_bytes())
}

fn on_each_worker(run: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        let run = &run;
        (0..WORKERS).for_each(|worker| _ = scope.spawn(move || run(worker)));
    });
}

/// Takes and gives back elements in every way; returns those that it still has.
fn come_and_go(pool: &Pool, worker: usize) -> Vec<u32> {
    let (mut random, mut have) = (Rng::with_seed(worker as u64), Vec::new());
    for step in 0..20_000u32 {
        let any = (!have.is_empty()).then(|| random.usize(..have.len()));
        match (random.u32(..9), any) {
            (0, _) => have.extend(pool.take(worker)),
            (1..=3, _) => have.extend(pool.take_place(worker)),
            (4, Some(any)) => pool.give_back(worker, have.swap_remove(any)),
            (5, Some(any)) => {
                let mut new = None;
                if pool.exchange(worker, have[any], |element| new = Some(element)) {
                    have[any] = new.expect("an exchange gives one");
                }
            }
            (6, Some(any)) => {
                have[any] = pool.swap(worker, have[any]).expect("one was given");
            }
            (_, Some(any)) => pool.retire(worker, have.swap_remove(any)),
            (_, None) => {}
        }
        if step.is_multiple_of(BURST) {
            pool.domain.quiesce(worker);
        }
    }
    pool.domain.offline(worker);
    have
}

#[test]
fn no_element_is_lost_or_had_twice() {
    for (places, reserve) in [(10, 0), (200, 8), (20_000, 64)] {
        let pool = Pool::new(places, reserve, 64, Domain::new(WORKERS)).unwrap();
        let had = parking_lot::Mutex::new(Vec::new());
        on_each_worker(|worker| {
            let have = come_and_go(&pool, worker);
            had.lock().extend(have);
        });
        let mut all = had.into_inner();
        assert_eq!(pool.taken() as usize, all.len(), "{places} places");
        all.extend(std::iter::from_fn(|| pool.take(USER)));
        let different: BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), different.len(), "{places} places: none twice");
        assert_eq!(different.len(), pool.elements as usize, "{places} places: none lost");
    }
}

#[test]
fn the_limit_is_exact_for_all_workers_together() {
    for entries in [1, 5, 1000, 30_000] {
        let map = create(MapType::Hash, entries);
        let stored = AtomicUsize::new(0);
        on_each_worker(|worker| {
            for number in 0..u64::from(entries) {
                match insert(&map, worker, number * 8 + worker as u64) {
                    Ok(()) => _ = stored.fetch_add(1, SeqCst),
                    Err(errno) => assert_eq!(errno, Errno::E2BIG),
                }
            }
        });
        assert_eq!(stored.into_inner(), entries as usize);
        assert_eq!(map.count(), Some(entries.into()));
        // Any other worker can store as many elements as one worker deletes, and no more.
        let keys: Vec<_> = map.user().entries().map(|(key, _)| key).collect();
        let deleted = &keys[..keys.len().div_ceil(3)];
        deleted.iter().for_each(|key| map.delete(1, key).unwrap());
        for (number, worker) in (0..deleted.len()).zip([0, 2, 3, USER].into_iter().cycle()) {
            assert_eq!(insert(&map, worker, 1 << 40 | number as u64), Ok(()), "{entries}");
        }
        assert_eq!(insert(&map, 0, 1 << 41), Err(Errno::E2BIG));
        assert_eq!(map.count(), Some(entries.into()));
    }
}

#[test]
fn a_table_with_room_is_never_full() {
    // Each worker has places of its own, which it always gets.
    for own in [1, 3, 100] {
        let map = create(MapType::Hash, own * WORKERS as u32);
        on_each_worker(|worker| {
            let key = |number: u32| u64::from(number) << 8 | worker as u64;
            for round in 0..30_000 / own {
                (0..own).for_each(|number| insert(&map, worker, key(number)).unwrap());
                (0..own).for_each(|number| delete(&map, worker, key(number)).unwrap());
                if round.is_multiple_of(7) {
                    map.domain().quiesce(worker);
                }
            }
            map.domain().offline(worker);
        });
        assert_eq!(map.count(), Some(0));
    }
}

#[test]
fn what_one_worker_inserts_another_deletes() {
    let map = create(MapType::Hash, 3000);
    let inserted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..200_000u64 {
                while let Err(errno) = insert(&map, 0, key) {
                    assert_eq!(errno, Errno::E2BIG);
                    map.domain().quiesce(0);
                    std::thread::yield_now();
                }
                inserted.store(key as usize + 1, SeqCst);
                if key.is_multiple_of(u64::from(BURST)) {
                    map.domain().quiesce(0);
                }
            }
            map.domain().offline(0);
        });
        scope.spawn(|| {
            for key in 0..200_000u64 {
                while inserted.load(SeqCst) <= key as usize {
                    map.domain().quiesce(1);
                    std::thread::yield_now();
                }
                delete(&map, 1, key).unwrap();
            }
            map.domain().offline(1);
        });
    });
    assert_eq!(map.count(), Some(0));
}

/// Number of writes to memory that all workers write, for each operation, while all workers run.
fn shared_writes(map: &Map, operations: u32, run: impl Fn(usize, u32) + Sync) -> f64 {
    let writes = AtomicUsize::new(0);
    on_each_worker(|worker| {
        counted::take();
        for step in 0..operations {
            run(worker, step);
            if step % BURST == BURST - 1 {
                map.domain().quiesce(worker);
            }
        }
        writes.fetch_add(counted::take() as usize, SeqCst);
        map.domain().offline(worker);
    });
    writes.into_inner() as f64 / f64::from(operations) / WORKERS as f64
}

#[test]
fn operations_seldom_write_what_all_workers_write() {
    const OPERATIONS: u32 = 20_000;
    let key = |worker: usize, step: u32| u64::from(step) << 8 | worker as u64;
    let table = create(MapType::Hash, 200_000);
    let seldom = |what: &str, map: &Map, run: &(dyn Fn(usize, u32) + Sync)| {
        let writes = shared_writes(map, OPERATIONS, run);
        assert!(writes < 1.0 / 10.0, "{what}: {writes} writes an operation");
    };
    seldom("insert", &table, &|worker, step| insert(&table, worker, key(worker, step)).unwrap());
    let replace = |worker, step| {
        let key = key(worker, step).to_ne_bytes();
        table.update(worker, &key, &[1; 8], BPF_ANY).unwrap();
    };
    seldom("replace", &table, &replace);
    seldom("delete", &table, &|worker, step| delete(&table, worker, key(worker, step)).unwrap());
    let both = |worker, step| {
        insert(&table, worker, key(worker, step)).unwrap();
        delete(&table, worker, key(worker, step)).unwrap();
    };
    seldom("insert and delete", &table, &both);
    let lru = create(MapType::LruHash, 10_000);
    seldom("evict", &lru, &|worker, step| insert(&lru, worker, key(worker, step)).unwrap());
    let full = create(MapType::Hash, 1000);
    (0..1000).for_each(|number| insert(&full, USER, 1 << 50 | number).unwrap());
    let refused = |worker, step| {
        assert_eq!(insert(&full, worker, key(worker, step)), Err(Errno::E2BIG));
    };
    assert_eq!(shared_writes(&full, OPERATIONS, refused), 0.0, "an insertion that is refused");
    let hit = |worker: usize, _step| {
        assert!(full.lookup(worker, &(1u64 << 50).to_ne_bytes()).is_some());
    };
    assert_eq!(shared_writes(&full, OPERATIONS, hit), 0.0, "a hit");
}

#[test]
fn entries_are_evicted_in_about_the_order_of_insertion() {
    const PLACES: u64 = 8192;
    for workers in [1, WORKERS] {
        let map = create(MapType::LruHash, PLACES as u32);
        let last = PLACES * 5;
        for key in 0..last {
            let worker = key as usize % workers;
            insert(&map, worker, key).unwrap();
            if key.is_multiple_of(u64::from(BURST)) {
                (0..workers).for_each(|worker| map.domain().quiesce(worker));
            }
        }
        assert_eq!(map.count(), Some(PLACES));
        let there = |key: &u64| map.user().lookup(&key.to_ne_bytes(), 0).is_ok();
        // Each worker may be a block behind or ahead.
        let disorder = (workers as u64 - 1) * 64;
        let early = (last - PLACES + disorder..last).filter(|key| !there(key)).count();
        assert_eq!(early, 0, "{workers} workers");
    }
}

#[test]
fn who_evicts_seldom_evicts_old_entries_too() {
    const PLACES: u64 = 8192;
    let map = create(MapType::LruHash, PLACES as u32);
    let mut seldom = Vec::new();
    let last = PLACES * 6;
    for key in 0..last {
        let is_seldom = key % 1000 == 999;
        insert(&map, usize::from(is_seldom), key).unwrap();
        if is_seldom {
            seldom.push(key);
        }
        if key.is_multiple_of(u64::from(BURST)) {
            (0..2).for_each(|worker| map.domain().quiesce(worker));
        }
    }
    let there = |key: &u64| map.user().lookup(&key.to_ne_bytes(), 0).is_ok();
    let disorder = 2 * WORKERS as u64 * 32;
    // The places that its own entries get may have waited long.
    let early = |key: &u64| !there(key) && (key % 1000 != 999 || key + PLACES / 3 > last);
    let early: Vec<u64> = (last - PLACES + disorder..last).filter(early).collect();
    assert_eq!(early, [0; 0], "{} were inserted by a worker that seldom does", seldom.len());
}
