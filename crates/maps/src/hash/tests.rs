use std::collections::HashMap;

use fastrand::Rng;
use towpath_bpf::program::MapType;

use super::*;
use crate::fields::{Field, FieldKind};
use crate::flags::{BPF_ANY, BPF_F_NO_PREALLOC};
use crate::map::{CreateOptions, Map};
use crate::testing::def;

fn create(kind: MapType, sizes: (u32, u32), entries: u32, workers: usize) -> Arc<Map> {
    let def = def(kind, sizes.0, sizes.1, entries, 0);
    Map::create(&def, &CreateOptions::new(Domain::new(workers))).expect("a valid definition")
}

#[test]
fn update_flags_and_errors_are_the_kernels() {
    let map = create(MapType::Hash, (4, 8), 2, 1);
    let (one, two, three) = ([1; 4], [2; 4], [3; 4]);
    assert_eq!(map.update(0, &one, &[1; 8], BPF_EXIST), Err(Errno::ENOENT));
    assert_eq!(map.update(0, &one, &[1; 8], BPF_NOEXIST), Ok(()));
    assert_eq!(map.update(0, &one, &[1; 8], BPF_NOEXIST), Err(Errno::EEXIST));
    assert_eq!(map.update(0, &one, &[2; 8], BPF_EXIST), Ok(()));
    assert_eq!(map.update(0, &one, &[2; 8], 3), Err(Errno::EINVAL));
    assert_eq!(map.update(0, &two, &[2; 8], BPF_ANY), Ok(()));
    assert_eq!(map.update(0, &three, &[2; 8], BPF_ANY), Err(Errno::E2BIG));
    assert_eq!(map.update(0, &one, &[5; 8], BPF_ANY), Ok(()), "replacing works when full");
    assert_eq!(map.delete(0, &three), Err(Errno::ENOENT));
    assert_eq!(map.delete(0, &two), Ok(()));
    assert_eq!(map.update(0, &three, &[2; 8], BPF_ANY), Ok(()), "room after a deletion");
    assert_eq!(map.count(), Some(2));
}

#[test]
fn a_replaced_value_stays_readable_where_it_was() {
    let map = create(MapType::Hash, (4, 8), 1, 1);
    map.update(0, &[1; 4], &7u64.to_ne_bytes(), BPF_ANY).unwrap();
    let before = map.lookup(0, &[1; 4]).unwrap();
    map.update(0, &[1; 4], &8u64.to_ne_bytes(), BPF_ANY).unwrap();
    let after = map.lookup(0, &[1; 4]).unwrap();
    assert_ne!(before, after);
    assert_eq!(map.owns(before.as_ptr() as u64, 8), Some(Access::ReadWrite));
    assert_eq!(map.owns(before.as_ptr() as u64 - 8, 4), Some(Access::Read), "its key");
    assert_eq!(map.owns(before.as_ptr() as u64 - 16, 8), None, "its header");
}

#[test]
fn elements_are_found_by_the_address_of_their_value() {
    for kind in [MapType::Hash, MapType::LruHash, MapType::Array] {
        let map = create(kind, (4, 20), 40, 1);
        (0..40u32).for_each(|key| map.update(0, &key.to_ne_bytes(), &[1; 20], BPF_ANY).unwrap());
        let key_at = |address: u64| map.element_at(address, |element| element.key.to_vec());
        let visit = |element: Element<'_>| {
            let value = element.value.as_ptr() as u64;
            for within in [0, 7, 19] {
                assert_eq!(key_at(value + within).as_deref(), Some(element.key), "{kind:?}");
            }
            if let Some(key) = element.key_address {
                assert_eq!(key_at(key.as_ptr() as u64), None, "{kind:?}: in its key");
            }
            ControlFlow::Continue(())
        };
        assert_eq!(map.for_each(0, visit), Ok(40));
        let last = map.lookup(0, &39u32.to_ne_bytes()).unwrap().as_ptr() as u64;
        if map.delete(0, &39u32.to_ne_bytes()).is_ok() {
            assert_eq!(key_at(last), None, "{kind:?}: unlinked");
        }
        assert_eq!((key_at(0), key_at(u64::MAX)), (None, None));
    }
    let percpu = create(MapType::PercpuArray, (4, 8), 1, 1);
    let value = percpu.lookup(0, &[0; 4]).unwrap().as_ptr() as u64;
    assert_eq!(percpu.element_at(value, |_| ()), None);
}

#[test]
fn random_operations_agree_with_a_standard_map() {
    for kind in [MapType::Hash, MapType::PercpuHash] {
        let map = create(kind, (6, 12), 40, 2);
        let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let mut random = Rng::with_seed(7);
        for step in 0..20_000u32 {
            let key = vec![random.u64(..64) as u8; 6];
            let value = [[step as u8; 6], [(step >> 8) as u8; 6]].concat();
            let flags = random.u64(..4);
            let (exists, full) = (model.contains_key(&key), model.len() == 40);
            if random.u64(..3) == 0 {
                let removed = model.remove(&key).map(|_| ()).ok_or(Errno::ENOENT);
                assert_eq!(map.delete(0, &key), removed);
            } else {
                let expected = match flags {
                    3 => Err(Errno::EINVAL),
                    BPF_NOEXIST if exists => Err(Errno::EEXIST),
                    BPF_EXIST if !exists => Err(Errno::ENOENT),
                    _ if !exists && full => Err(Errno::E2BIG),
                    _ => Ok(()),
                };
                assert_eq!(map.update(0, &key, &value, flags), expected, "step {step}");
                if expected.is_ok() {
                    model.insert(key, value);
                }
            }
            if step % 64 == 0 {
                map.domain().quiesce(0);
            }
        }
        let found: HashMap<_, _> =
            map.user().entries().map(|(key, value)| (key, value.bytes().to_vec())).collect();
        assert_eq!(found, model);
        assert_eq!(map.count(), Some(model.len() as u64));
    }
}

#[test]
fn per_cpu_values_are_apart() {
    let map = create(MapType::PercpuHash, (4, 4), 4, 3);
    map.update(1, &[9; 4], &[1; 4], BPF_ANY).unwrap();
    map.update(2, &[9; 4], &[2; 4], BPF_ANY).unwrap();
    let all = map.user().lookup(&[9; 4], 0).unwrap();
    assert_eq!(all, Value::PerCpu(vec![vec![0; 4], vec![1; 4], vec![2; 4]]));
    assert_eq!(map.lookup_percpu(&[9; 4], 2), map.lookup(2, &[9; 4]));
    assert_eq!(map.lookup_percpu(&[9; 4], 3), None);
    let value = map.lookup(2, &[9; 4]).unwrap().as_ptr() as u64;
    assert_eq!(map.owns(value, 4), Some(Access::ReadWrite));
    assert_eq!(map.owns(value, 8), None, "the padding behind it");
}

#[test]
fn no_cpu_writes_another_ones_cache_line() {
    for value_size in [1, 8, 12, 24, 40, 96, 1000] {
        for elements in [1, 2, 33, 100, 5000] {
            let rows = PerCpu::new(elements, value_size, 3).unwrap();
            for cpu in 1..3 {
                let last = rows.offset(elements - 1, cpu - 1) + value_size - 1;
                let first = rows.offset(0, cpu);
                assert!(first / LINE_BYTES > last / LINE_BYTES, "{elements} of {value_size}");
                assert_eq!(first % rows.stride, 0, "one span covers all rows");
            }
        }
    }
}

#[test]
fn a_full_lru_map_makes_room_and_spares_what_is_used() {
    let map = create(MapType::LruHash, (4, 4), 100, 1);
    for key in 0u32..100 {
        map.update(0, &key.to_ne_bytes(), &[0; 4], BPF_ANY).unwrap();
    }
    for key in 0u32..50 {
        map.lookup(0, &key.to_ne_bytes()).unwrap();
    }
    for key in 100u32..150 {
        assert_eq!(map.update(0, &key.to_ne_bytes(), &[0; 4], BPF_NOEXIST), Ok(()));
    }
    assert_eq!(map.count(), Some(100));
    let user = map.user();
    let kept = |range: std::ops::Range<u32>| {
        range.filter(|key| user.lookup(&key.to_ne_bytes(), 0).is_ok()).count()
    };
    assert_eq!(kept(0..50), 50, "used ones stay");
    assert_eq!(kept(50..100), 0, "unused ones went");
}

#[test]
fn lru_insertions_never_fail() {
    let map = create(MapType::LruPercpuHash, (4, 4), 8, 2);
    for key in 0u32..10_000 {
        let key = (key % 1000).to_ne_bytes();
        map.update(0, &key, &[0; 4], BPF_ANY).unwrap();
        map.lookup(0, &key).unwrap();
        assert!(map.count().unwrap() <= 8);
    }
}

#[test]
fn workers_and_users_at_once() {
    let (workers, keys) = (2, 64u64);
    let map = create(MapType::Hash, (8, 16), 48, workers);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let map = &map;
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker as u64 + 1);
                for step in 0..60_000u64 {
                    let key = random.u64(..keys);
                    let value = [key, !key].map(u64::to_ne_bytes).concat();
                    match random.u64(..4) {
                        0 => _ = map.delete(worker, &key.to_ne_bytes()),
                        1 => _ = map.update(worker, &key.to_ne_bytes(), &value, BPF_ANY),
                        _ => _ = map.lookup(worker, &key.to_ne_bytes()),
                    }
                    if step % 32 == 0 {
                        map.domain().quiesce(worker);
                    }
                }
                map.domain().offline(worker);
            });
        }
        let mut random = Rng::with_seed(99);
        for _ in 0..20_000 {
            let key = random.u64(..keys).to_ne_bytes();
            if let Ok(value) = map.user().lookup(&key, 0) {
                let expected = u64::from_ne_bytes(key);
                assert_eq!(value.bytes()[..8], expected.to_ne_bytes());
                assert_eq!(value.bytes()[8..], (!expected).to_ne_bytes());
            }
        }
    });
    let listed = map.user().entries().count() as u64;
    assert_eq!(map.count(), Some(listed));
    assert!(listed <= 48);
}

#[test]
fn locked_copies_are_whole() {
    let lock = Field { kind: FieldKind::SpinLock, offset: 0, size: 4 };
    for kind in [MapType::Hash, MapType::Array] {
        let mut options = CreateOptions::new(Domain::new(2));
        options.fields = vec![lock];
        let map = Map::create(&def(kind, 4, 4 + 256, 1, 0), &options).unwrap();
        let key = [0; 4];
        let value = |byte: u8| [vec![0; 4], vec![byte; 256]].concat();
        map.update(0, &key, &value(0), BPF_ANY).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000u32 {
                    map.update(1, &key, &value(round as u8), BPF_F_LOCK).unwrap();
                }
            });
            for _ in 0..20_000 {
                let seen = map.user().lookup(&key, BPF_F_LOCK).unwrap();
                let bytes = &seen.bytes()[4..];
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
            }
        });
    }
}

#[test]
fn lock_flags_need_a_lock() {
    let map = create(MapType::Hash, (4, 8), 2, 1);
    assert_eq!(map.update(0, &[1; 4], &[1; 8], BPF_F_LOCK), Err(Errno::EINVAL));
    assert_eq!(map.user().lookup(&[1; 4], BPF_F_LOCK), Err(Errno::EINVAL));
}

#[test]
fn workers_share_a_full_lru_table() {
    let map = create(MapType::LruHash, (8, 8), 64, 2);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let map = &map;
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker as u64 + 20);
                for step in 0..40_000u64 {
                    let key = random.u64(..256).to_ne_bytes();
                    if map.lookup(worker, &key).is_none() {
                        map.update(worker, &key, &key, BPF_ANY).unwrap();
                    }
                    if random.u64(..16) == 0 {
                        let _ = map.delete(worker, &key);
                    }
                    if step % 32 == 0 {
                        map.domain().quiesce(worker);
                    }
                }
                map.domain().offline(worker);
            });
        }
    });
    let entries: Vec<_> = map.user().entries().collect();
    assert!(entries.len() <= 64);
    assert_eq!(map.count(), Some(entries.len() as u64));
    assert!(entries.iter().all(|(key, value)| key == value.bytes()));
}

#[test]
fn the_memory_of_a_full_table_is_bounded() {
    let def = def(MapType::Hash, 16, 64, 1_000_000, BPF_F_NO_PREALLOC);
    let reserve = reserve_elements(def.max_entries, HEADER_BYTES + 80, 8);
    let elements = u64::from(def.max_entries + 9 * reserve) * (HEADER_BYTES as u64 + 80);
    let buckets = u64::from(def.max_entries.next_power_of_two()) * table::BUCKET_BYTES as u64;
    let limit = 1_000_000 * (80 * 13 / 10 + 48);
    assert!(elements + buckets <= limit, "{} > {limit}", elements + buckets);
}

/// Page faults of this thread so far (the tenth field of its `stat`).
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("it is ours");
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().nth(7).and_then(|it| it.parse().ok()).expect("a number")
}

#[test]
fn insertions_into_what_is_populated_wait_for_no_memory() {
    const ENTRIES: u32 = 1 << 17;
    for kind in [MapType::Hash, MapType::LruHash, MapType::PercpuHash] {
        let map = create(kind, (16, 64), ENTRIES, 2);
        let (done, all) = map.population().expect("it is allocated at once");
        assert!(done == 0 && all > u64::from(ENTRIES) * 80, "{kind:?}: {done} of {all}");
        while map.populate_step() {}
        assert_eq!(map.population(), Some((all, all)));
        let before = faults();
        for number in 0..u64::from(ENTRIES) {
            let key = [number.to_ne_bytes(), [0; 8]].concat();
            map.update(0, &key, &[1; 64], BPF_ANY).expect("there is room");
        }
        // The table is some 3,000 pages.
        assert!(faults() - before < 200, "{kind:?}: {} page faults", faults() - before);
    }
    let def = def(MapType::Hash, 16, 64, ENTRIES, BPF_F_NO_PREALLOC);
    let map = Map::create(&def, &CreateOptions::new(Domain::new(1))).expect("a valid definition");
    assert_eq!(map.population(), None, "it grows");
}
