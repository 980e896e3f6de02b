use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use towpath_bpf::program::MapType;

use super::*;
use crate::flags::BPF_F_NO_PREALLOC;
use crate::map::CreateOptions;
use crate::qsbr::Domain;
use crate::testing::def;
use crate::typed;

const ENTRIES: u32 = 64;

fn create(kind: MapType, entries: u32) -> Arc<Map> {
    let (key, flags) = match kind {
        MapType::LpmTrie => (8, BPF_F_NO_PREALLOC),
        MapType::Queue | MapType::Stack | MapType::BloomFilter => (0, 0),
        _ => (4, 0),
    };
    Map::create(&def(kind, key, 8, entries, flags), &CreateOptions::new(Domain::new(2))).unwrap()
}

fn rows(map: &Map, format: Format, text: &str) -> Result<Rows, RowsError> {
    read(map, format, &mut text.as_bytes())
}

fn load(map: &Map, text: &str, is_replace: bool) -> Result<Loaded, LoadError> {
    let rows = rows(map, Format::Json, text).unwrap();
    Plan::new(map, &rows, is_replace)?.apply()
}

fn contents(map: &Map) -> BTreeMap<Vec<u8>, Value> {
    map.user().entries().collect()
}

/// A row as JSON: key and value as numbers.
fn row(key: u64, value: u64) -> String {
    format!("{{\"key\": {key}, \"value\": {value}}}\n")
}

fn number_of(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

#[test]
fn one_wrong_row_is_named_by_its_line() {
    let map = create(MapType::Hash, ENTRIES);
    let wrong = |format, text: &str| rows(&map, format, text).unwrap_err().to_string();
    let good = row(1, 2);
    for (text, said) in [
        (format!("{good}{good}{{\"key\": 1}}"), "line 3: no \"value\""),
        (format!("{good}\n{{\"key\": 1, \"valeu\": 2}}"), "line 3: unknown \"valeu\""),
        (format!("{good}{{\"key\": \"x\", \"value\": 2}}"), "line 2: key: \"x\"; expected"),
        (format!("{good}{{\"key\": 1, \"value\": 2"), "line 2: the text ends within this row"),
        (format!("[{good}, {good}"), "line 3: the text ends within its list"),
        (format!("[{good}] {good}"), "line 2: the list has ended"),
        (format!("{good},{good}"), "line 2: ',', expected a row"),
        ("{\"key\": 1,, \"value\": 2}".to_owned(), "line 1: key must be a string"),
        ("{\"key\": 1, \"values\": [2]}".to_owned(), "line 1: values: only per-CPU maps"),
    ] {
        let found = wrong(Format::Json, &text);
        assert!(found.starts_with(said), "{text}: {found}");
    }
    for (text, said) in [
        ("key\n1", "line 1: no column \"value\""),
        ("key,valeu\n1,2", "line 1: column \"valeu\": expected"),
        ("key,value\n1,2\n\n1", "line 4: 1 cells, and the first line names 2 columns"),
        ("key,value\n1,2\n\"1\"x,2", "line 3: text behind the end of quotes"),
        ("key,value\n1,\"2", "line 2: the text ends within quotes"),
        ("key,cpu0\n1,2", "line 1: columns of CPUs: only per-CPU maps"),
        ("key,value\n1,70000000000000000000000", "line 2: value: "),
    ] {
        let found = wrong(Format::Csv, text);
        assert!(found.starts_with(said), "{text}: {found}");
    }
    let found = wrong(Format::Packed, "123456789012abc");
    assert_eq!(found, "row 2: it has 3 bytes, and a row of this map has 12");
    let trie = create(MapType::LpmTrie, ENTRIES);
    let found = rows(&trie, Format::Json, "{\"key\": \"hex:210000000a000000\", \"value\": 1}");
    assert_eq!(
        found.unwrap_err().to_string(),
        "line 1: key: a prefix of 33 bits, and its data has 32"
    );
    let array = create(MapType::Array, ENTRIES);
    let found = rows(&array, Format::Json, &row(64, 0)).unwrap_err().to_string();
    assert_eq!(found, "line 1: key: 64, and the map has 64 entries");
    assert!(contents(&map).is_empty());
}

#[test]
fn kinds_whose_values_stand_for_something_say_so() {
    for (kind, why) in [
        (MapType::ProgArray, "its values stand for programs"),
        (MapType::Devmap, "its values stand for programs"),
        (MapType::Ringbuf, "it holds records"),
    ] {
        let (key, value, entries) = if kind == MapType::Ringbuf { (0, 0, 4096) } else { (4, 4, 8) };
        let map =
            Map::create(&def(kind, key, value, entries, 0), &CreateOptions::new(Domain::new(1)));
        let refused = rows(&map.unwrap(), Format::Packed, "").unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn the_three_formats_say_the_same() {
    let map = create(MapType::Hash, ENTRIES);
    let texts = [
        (Format::Json, row(1, 2) + &row(3, 4)),
        (
            Format::Json,
            "[{\"key\": 1,\n\"value\": 2}, {\"key\": [\"0x03\", \"0x00\", \"0x00\", \
          \"0x00\"], \"value\": \"hex:0400000000000000\", \"formatted\": 7}]"
                .to_owned(),
        ),
        (Format::Csv, "value,key\r\n2,1\r\n\"4\",\"3\"\r\n".to_owned()),
        (Format::Packed, "\x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0".to_owned()),
    ];
    for (format, text) in texts {
        let rows = rows(&map, format, &text).unwrap();
        let found: Vec<_> =
            rows.iter().map(|(key, value)| (number_of(key), number_of(value))).collect();
        assert_eq!(found, [(1, 2), (3, 4)], "{format:?}");
    }
}

#[test]
fn cells_lead_to_members_and_cpus() {
    let map = create(MapType::PercpuHash, ENTRIES);
    let text = "key,cpu1,cpu0\n5,7,\"6\"\n";
    let rows = rows(&map, Format::Csv, text).unwrap();
    Plan::new(&map, &rows, false).unwrap().apply().unwrap();
    let value = |number: u64| number.to_le_bytes().to_vec();
    let found = map.user().lookup(&5_u32.to_le_bytes(), 0).unwrap();
    assert_eq!(found, Value::PerCpu(vec![value(6), value(7)]));
    load(&map, "{\"key\": 5, \"values\": [{\"cpu\": 1, \"value\": 8}]}", false).unwrap();
    let found = map.user().lookup(&5_u32.to_le_bytes(), 0).unwrap();
    assert_eq!(found, Value::PerCpu(vec![value(0), value(8)]), "others are zero");
    load(&map, &row(5, 9), false).unwrap();
    let found = map.user().lookup(&5_u32.to_le_bytes(), 0).unwrap();
    assert_eq!(found, Value::PerCpu(vec![value(9), value(9)]), "one for all");
}

/// Each kind, over random contents, by each format: what was written is read back.
#[test]
fn what_is_in_a_map_comes_back() {
    let mut rng = Rng::with_seed(7);
    for kind in [
        MapType::Hash,
        MapType::PercpuHash,
        MapType::LruHash,
        MapType::LruPercpuHash,
        MapType::Rhash,
        MapType::Array,
        MapType::PercpuArray,
        MapType::LpmTrie,
    ] {
        let (one, other) = (create(kind, ENTRIES), create(kind, ENTRIES));
        for _ in 0..40 {
            let mut key = rng.u32(..ENTRIES).to_le_bytes().to_vec();
            if kind == MapType::LpmTrie {
                key = [rng.u32(..=32).to_le_bytes(), rng.u32(..).to_le_bytes()].concat();
                shorten(&mut key).unwrap();
            }
            let cpus = if one.is_percpu() { 2 } else { 1 };
            let mut values: Vec<_> =
                (0..cpus).map(|_| rng.u64(..).to_le_bytes().to_vec()).collect();
            let value = match one.is_percpu() {
                true => Value::PerCpu(values),
                false => Value::One(values.remove(0)),
            };
            one.user().update(&key, &value, 0).unwrap();
        }
        let texts = [Format::Json, Format::Csv, Format::Packed].map(|it| (it, written(&one, it)));
        for (format, bytes) in texts {
            // Something else is there before.
            load(&other, &contents_of_others(kind), false).unwrap();
            let rows = read(&other, format, &mut bytes.as_slice()).unwrap();
            Plan::new(&other, &rows, true).unwrap().apply().unwrap();
            assert_eq!(contents(&other), contents(&one), "{kind:?} {format:?}");
            let again = Plan::new(&other, &rows, true).unwrap().apply().unwrap();
            let rows = rows.len();
            assert_eq!(again, Loaded { rows, unchanged: rows, ..Loaded::default() });
        }
    }
}

fn contents_of_others(kind: MapType) -> String {
    match kind {
        MapType::LpmTrie => "{\"key\": \"10.9.0.0/16\", \"value\": 1}".to_owned(),
        _ => row(63, 5) + &row(62, 6),
    }
}

/// A map's elements as `map dump` writes them.
fn written(map: &Map, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    if format == Format::Csv {
        bytes.extend_from_slice(if map.is_percpu() { b"key,cpu0,cpu1\n" } else { b"key,value\n" });
    }
    for (key, value) in map.user().entries() {
        let name = typed::key_to_json(map.def(), &key);
        let values: Vec<_> =
            value.cpus().iter().map(|it| typed::value_to_json(map.def(), it)).collect();
        match format {
            Format::Packed => {
                let parts = [&[key.as_slice()], &value.cpus()[..]].concat();
                bytes.extend_from_slice(&parts.concat());
            }
            Format::Json if map.is_percpu() => {
                bytes
                    .extend(serde_json::json!({"key": name, "values": values}).to_string().bytes());
            }
            Format::Json => {
                let row = serde_json::json!({"key": name, "value": values[0]});
                bytes.extend(row.to_string().bytes());
            }
            Format::Csv => {
                let text = |json: &serde_json::Value| {
                    json.as_str().map_or(json.to_string(), str::to_owned)
                };
                let cells: Vec<String> = std::iter::once(&name).chain(&values).map(text).collect();
                bytes.extend((cells.join(",") + "\n").bytes());
            }
        }
    }
    bytes
}

#[test]
fn queues_give_what_the_first_row_says_first() {
    for kind in [MapType::Queue, MapType::Stack] {
        let map = create(kind, 3);
        let value = |number: u64| format!("{{\"value\": {number}}}\n");
        let pop = || map.user().lookup_and_delete(&[], 0).map(|it| number_of(it.bytes()));
        load(&map, &(value(1) + &value(2)), false).unwrap();
        let refused = load(&map, &(value(1) + &value(1)), false).unwrap_err();
        assert_eq!(refused, LoadError::NoRoom { places: 3, wanted: 4 });
        let loaded = load(&map, &(value(3) + &value(4) + &value(3)), true).unwrap();
        assert_eq!((loaded.written, loaded.deleted), (3, 2));
        assert_eq!([pop(), pop(), pop()], [Ok(3), Ok(4), Ok(3)], "{kind:?}");
    }
    let bloom = create(MapType::BloomFilter, 8);
    load(&bloom, "{\"value\": 5}", false).unwrap();
    assert_eq!(bloom.user().contains(&5_u64.to_le_bytes()), Ok(true));
    assert!(matches!(load(&bloom, "", true), Err(LoadError::Refused(..))));
}

#[test]
fn a_map_that_is_too_small_is_left_as_it_is() {
    let all = |count: u64| (0..count).map(|key| row(key, key)).collect::<String>();
    for kind in [MapType::Hash, MapType::LpmTrie] {
        let map = create(kind, 4);
        let text = |count: u64| match kind {
            MapType::LpmTrie => (0..count)
                .map(|key| format!("{{\"key\": \"10.0.{key}.0/24\", \"value\": 1}}"))
                .collect(),
            _ => all(count),
        };
        load(&map, &text(3), false).unwrap();
        let before = contents(&map);
        let refused = LoadError::NoRoom { places: 4, wanted: 5 };
        assert_eq!(load(&map, &text(5), false).unwrap_err(), refused);
        assert_eq!(load(&map, &text(5), true).unwrap_err(), refused);
        assert_eq!(contents(&map), before, "{kind:?}");
        // Keys that are there need no room.
        load(&map, &text(4), false).unwrap();
        load(&map, &text(4), false).unwrap();
    }
    let map = create(MapType::LruHash, 8);
    load(&map, &all(12), true).unwrap();
    assert!(contents(&map).len() <= 8, "the kernel evicts");
    assert!(map.user().lookup(&11_u32.to_le_bytes(), 0).is_ok(), "the last ones stay");
    let map = create(MapType::Hash, 4);
    let many = all(1).repeat(SPARE + 9);
    let refused = rows(&map, Format::Json, &many).unwrap_err().to_string();
    assert!(refused.starts_with("line 1033: 1032 rows came before it"), "{refused}");
}

#[test]
fn the_last_of_equal_keys_counts() {
    let map = create(MapType::LpmTrie, 4);
    let text = "key,value\n10.1.2.3/8,1\n10.0.0.0/8,2\n0.0.0.0/0,3\n";
    let rows = rows(&map, Format::Csv, text).unwrap();
    assert_eq!((rows.len(), rows.duplicates()), (2, 1));
    let loaded = Plan::new(&map, &rows, true).unwrap().apply().unwrap();
    assert_eq!(loaded, Loaded { rows: 2, written: 2, ..Loaded::default() });
    let prefix = typed::key_from_json(map.def(), &"10.0.0.0/8".into()).unwrap();
    assert_eq!(number_of(map.user().lookup(&prefix, 0).unwrap().bytes()), 2);
}

#[test]
fn a_replacement_writes_what_differs_and_nothing_else() {
    let mut rng = Rng::with_seed(1);
    for kind in [MapType::Hash, MapType::LpmTrie, MapType::LruHash, MapType::PercpuHash] {
        let map = create(kind, ENTRIES);
        let mut before = BTreeMap::new();
        for _ in 0..50 {
            let after: BTreeMap<u64, u64> = (0..rng.usize(..=ENTRIES as usize))
                .map(|_| (rng.u64(..90), rng.u64(..3)))
                .collect();
            let text: String = after
                .iter()
                .map(|(key, value)| match kind {
                    MapType::LpmTrie => {
                        format!("{{\"key\": \"10.0.{key}.0/24\", \"value\": {value}}}\n")
                    }
                    _ => row(*key, *value),
                })
                .collect();
            let same = after.iter().filter(|(key, it)| before.get(*key) == Some(*it)).count();
            let deleted = before.keys().filter(|key| !after.contains_key(key)).count();
            let loaded = load(&map, &text, true).unwrap();
            let (rows, written) = (after.len(), after.len() - same);
            assert_eq!(loaded, Loaded { rows, written, unchanged: same, deleted }, "{kind:?}");
            assert_eq!(contents(&map).len(), after.len(), "{kind:?}");
            let again = load(&map, &text, true).unwrap();
            assert_eq!((again.unchanged, again.written, again.deleted), (rows, 0, 0));
            before = after;
        }
    }
}

#[test]
fn arrays_are_zero_where_no_row_is() {
    for kind in [MapType::Array, MapType::PercpuArray] {
        let map = create(kind, 4);
        load(&map, &(row(0, 1) + &row(1, 2)), false).unwrap();
        let loaded = load(&map, &(row(1, 2) + &row(2, 3)), true).unwrap();
        assert_eq!(loaded, Loaded { rows: 2, written: 1, unchanged: 1, deleted: 1 });
        let found: Vec<u64> = contents(&map).values().map(|it| number_of(it.bytes())).collect();
        assert_eq!(found, [0, 2, 3, 0], "{kind:?}");
    }
}

#[test]
fn frozen_maps_refuse() {
    let map = create(MapType::Hash, 4);
    map.freeze().unwrap();
    let refused = load(&map, &row(1, 1), false).unwrap_err();
    assert_eq!(refused, LoadError::Refused("it is frozen", towpath_bpf::Errno::EPERM));
}

/// A program looks keys up that are there before and after, in a map that is full each time.
#[test]
fn a_reader_misses_no_key_that_stays() {
    for kind in [MapType::Hash, MapType::LruHash, MapType::LpmTrie] {
        let map = create(kind, ENTRIES);
        let key = |key: u64| match kind {
            MapType::LpmTrie => {
                typed::key_from_json(map.def(), &format!("10.0.{key}.0/24").into()).unwrap()
            }
            _ => (key as u32).to_le_bytes().to_vec(),
        };
        let text = |first: u64, value: u64| -> String {
            let keys = (0..32).chain(first..first + 32);
            keys.map(|it| match kind {
                MapType::LpmTrie => format!("{{\"key\": \"10.0.{it}.0/24\", \"value\": {value}}}"),
                _ => row(it, value),
            })
            .collect()
        };
        let (ends, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        load(&map, &text(100, 0), true).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while !ends.load(Ordering::Relaxed) {
                    for it in 0..32 {
                        let found = map.user().lookup(&key(it), 0).expect("it stays");
                        let value = number_of(found.bytes());
                        // Beside it, the next file may have been begun.
                        assert!(value + 1 >= last, "{value} {last}");
                        last = last.max(value);
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut rounds = 1..;
            while let Some(round) = rounds.next()
                && (round < 60 || looks.load(Ordering::Relaxed) < 60)
                && !reader.is_finished()
            {
                load(&map, &text(if round % 2 == 0 { 100 } else { 150 }, round), true).unwrap();
            }
            ends.store(true, Ordering::Relaxed);
            reader.join().expect("it misses none");
        });
    }
}
