use std::collections::BTreeMap;

use fastrand::Rng;
use towpath_bpf::program::MapType;

use super::*;
use crate::flags::{BPF_ANY, BPF_F_NO_PREALLOC};
use crate::map::{CreateOptions, Map};
use crate::testing::def;

fn create(data: u32, entries: u32) -> Arc<Map> {
    let def = def(MapType::LpmTrie, 4 + data, 4, entries, BPF_F_NO_PREALLOC);
    Map::create(&def, &CreateOptions::new(Domain::new(1))).unwrap()
}

fn key(length: u32, data: &[u8]) -> Vec<u8> {
    [&length.to_ne_bytes(), data].concat()
}

#[test]
fn the_longest_prefix_wins() {
    let map = create(4, 10);
    for (length, data, value) in
        [(16, [192, 168, 0, 0], 1u32), (24, [192, 168, 1, 0], 2), (0, [0; 4], 3)]
    {
        map.update(0, &key(length, &data), &value.to_ne_bytes(), BPF_ANY).unwrap();
    }
    let find = |length, data: [u8; 4]| {
        let value = map.user().lookup(&key(length, &data), 0).ok()?;
        Some(u32::from_ne_bytes(*value.bytes().first_chunk().unwrap()))
    };
    assert_eq!(find(32, [192, 168, 1, 7]), Some(2));
    assert_eq!(find(32, [192, 168, 2, 7]), Some(1));
    assert_eq!(find(20, [192, 168, 1, 7]), Some(1), "a shorter key matches shorter prefixes");
    assert_eq!(find(32, [10, 0, 0, 1]), Some(3));
    assert_eq!(find(33, [10, 0, 0, 1]), None, "longer than its data");
}

#[test]
fn errors_are_the_kernels() {
    let map = create(4, 1);
    let one = key(8, &[10, 0, 0, 0]);
    assert_eq!(map.update(0, &key(33, &[0; 4]), &[0; 4], BPF_ANY), Err(Errno::EINVAL));
    assert_eq!(map.update(0, &one, &[0; 4], 3), Err(Errno::EINVAL));
    assert_eq!(map.update(0, &one, &[0; 4], BPF_EXIST), Err(Errno::ENOENT));
    assert_eq!(map.update(0, &one, &[0; 4], BPF_NOEXIST), Ok(()));
    assert_eq!(map.update(0, &one, &[0; 4], BPF_NOEXIST), Err(Errno::EEXIST));
    assert_eq!(map.update(0, &key(9, &[10, 0, 0, 0]), &[0; 4], BPF_ANY), Err(Errno::ENOSPC));
    assert_eq!(map.delete(0, &key(9, &[10, 0, 0, 0])), Err(Errno::ENOENT));
    assert_eq!(map.delete(0, &key(33, &[0; 4])), Err(Errno::EINVAL));
    assert_eq!(map.delete(0, &one), Ok(()));
    assert_eq!(map.user().next_key(None), Err(Errno::ENOENT));
}

#[test]
fn keys_come_most_specific_first() {
    // The example of the kernel's `trie_get_next_key`.
    let map = create(4, 8);
    let order = [
        key(24, &[192, 168, 0, 0]),
        key(24, &[192, 168, 1, 0]),
        key(24, &[192, 168, 128, 0]),
        key(16, &[192, 168, 0, 0]),
    ];
    for prefix in order.iter().rev() {
        map.update(0, prefix, &[0; 4], BPF_ANY).unwrap();
    }
    let found: Vec<_> = map.user().entries().map(|(key, _)| key).collect();
    assert_eq!(found, order);
}

/// A lookup by the words of a key.
fn by_words(map: &Map, key: &[u8]) -> Option<NonNull<u8>> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let part = key.chunks(8).nth(at).unwrap_or_default();
        bytes[..part.len()].copy_from_slice(part);
        u64::from_ne_bytes(bytes)
    };
    match key.len().div_ceil(8) {
        1 => map.longest_prefix([word(0)]),
        2 => map.longest_prefix([word(0), word(1)]),
        3 => map.longest_prefix([0, 1, 2].map(word)),
        4 => map.longest_prefix([0, 1, 2, 3].map(word)),
        5 => map.longest_prefix([0, 1, 2, 3, 4].map(word)),
        _ => map.longest_prefix([0; 6]),
    }
}

#[test]
fn lookups_by_words_find_what_lookups_by_bytes_find() {
    for data in [1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29, 32, 33, 36] {
        let map = create(data, 300);
        let mut random = Rng::with_seed(data.into());
        let mut next = || {
            let mut bytes: Vec<u8> = (0..data).map(|_| random.u64(..256) as u8).collect();
            bytes[0] = random.u64(..4) as u8;
            key(random.u64(..u64::from(data) * 8 + 2) as u32, &bytes)
        };
        let mut found = 0;
        for _ in 0..300 {
            // Too long ones are refused by both.
            let _ = map.update(0, &next(), &[1; 4], BPF_ANY);
            let key = next();
            assert_eq!(by_words(&map, &key), map.lookup(0, &key), "{key:?}");
            // Users' look-ups compare at each node.
            assert_eq!(by_words(&map, &key).is_some(), map.user().lookup(&key, 0).is_ok());
            found += u32::from(map.lookup(0, &key).is_some());
        }
        assert!(found > 100, "{found} of 300 found, {data} bytes of data");
    }
    assert_eq!(by_words(&create(37, 4), &key(0, &[0; 37])), None, "too long for words");
    assert_eq!(create(4, 4).longest_prefix([0, 0]), None, "another number of words");
}

/// Bits of a prefix that count.
fn masked(length: u32, data: u16) -> u16 {
    if length == 0 { 0 } else { data & (u16::MAX << (16 - length)) }
}

#[test]
fn random_operations_agree_with_a_scan() {
    let map = create(2, 60);
    let mut model: BTreeMap<(u32, u16), u32> = BTreeMap::new();
    let mut random = Rng::with_seed(11);
    for step in 0u32..20_000 {
        let length = random.u64(..17) as u32;
        // Few distinct values, so that prefixes nest and repeat.
        let data = (random.u64(..8) << 13 | random.u64(..4) << 6 | random.u64(..4)) as u16;
        let bytes = key(length, &data.to_be_bytes());
        let place = (length, masked(length, data));
        match random.u64(..3) {
            0 => {
                let removed = model.remove(&place).map(|_| ()).ok_or(Errno::ENOENT);
                assert_eq!(map.delete(0, &bytes), removed);
            }
            1 => {
                let full = model.len() == 60 && !model.contains_key(&place);
                let expected = if full { Err(Errno::ENOSPC) } else { Ok(()) };
                assert_eq!(map.update(0, &bytes, &step.to_ne_bytes(), BPF_ANY), expected);
                if !full {
                    model.insert(place, step);
                }
            }
            _ => {
                let expected = (0..=length).rev().find_map(|l| model.get(&(l, masked(l, data))));
                let found = map.user().lookup(&bytes, 0).ok();
                let found = found.map(|v| u32::from_ne_bytes(*v.bytes().first_chunk().unwrap()));
                assert_eq!(found.as_ref(), expected, "step {step}");
            }
        }
        if step % 16 == 0 {
            map.domain().quiesce(0);
        }
        if step % 500 == 0 {
            assert_eq!(map.user().entries().count(), model.len());
        }
    }
}

/// A table of ways is what walks from the top find, whatever is added, replaced and removed.
#[test]
fn ways_lead_where_walks_from_the_top_lead() {
    for (data_size, entries) in [(2, 64), (2, 600), (4, 600), (16, 5000)] {
        let def = def(MapType::LpmTrie, 4 + data_size, 4, entries, BPF_F_NO_PREALLOC);
        let domain = Domain::new(1);
        let map = LpmTrie::new(&def, &domain).unwrap();
        let mut random = Rng::with_seed(u64::from(data_size * entries));
        let mut next = || {
            // Few distinct bytes, so that prefixes nest.
            let mut data = vec![0; data_size as usize];
            data.fill_with(|| {
                [0x00, 0x81, 0xff, random.u64(..256) as u8][random.u64(..4) as usize]
            });
            let bits = u64::from(data_size) * 8 + 1;
            let length = [random.u64(..bits), random.u64(..bits.min(20))];
            (length[random.u64(..2) as usize] as u32, data, random.u64(..3))
        };
        for step in 0..6000 {
            let (length, data, what) = next();
            let bytes = key(length, &data);
            // Most removed prefixes aren't there, and the map is full now and then.
            _ = match what {
                0 => map.delete(0, &bytes),
                _ => map.update(0, &bytes, &[1; 4], BPF_ANY),
            };
            let (length, data, _) = next();
            let asked = Prefix { length, data: &data };
            assert_eq!(map.trie.longest(asked), map.trie.longest_link(asked).node(), "{asked:?}");
            if step % 100 == 0 {
                domain.quiesce(0);
                map.trie.check_ways();
            }
        }
    }
}

/// Look-ups of programs go down by bits alone, those of users compare at each node.
#[test]
fn programs_find_the_prefix_that_users_find() {
    let map = create(20, 400);
    let mut random = Rng::with_seed(3);
    let mut next = || {
        // Few distinct bytes, so that prefixes nest, and long ones end in the third word.
        let bytes: Vec<u8> = (0..20).map(|_| (random.u64(..2) * 0x81) as u8).collect();
        let length = [random.u64(..20), random.u64(..161)][random.u64(..2) as usize];
        key(length as u32, &bytes)
    };
    let mut places = BTreeMap::new();
    for number in 0..400u32 {
        let key = next();
        map.update(0, &key, &number.to_ne_bytes(), BPF_ANY).unwrap();
        // With its whole length a prefix finds itself.
        places.insert(number, map.lookup(0, &key).unwrap());
        let asked = next();
        let found = map.user().lookup(&asked, 0).ok();
        let found = found.map(|v| u32::from_ne_bytes(*v.bytes().first_chunk().unwrap()));
        let place = found.map(|number| places[&number]);
        assert_eq!(map.lookup(0, &asked), place, "{asked:?}");
    }
}

#[test]
fn readers_beside_a_writer_always_find_what_stays() {
    let map = create(4, 64);
    let stays = key(8, &[10, 0, 0, 0]);
    map.update(0, &stays, &[7; 4], BPF_ANY).unwrap();
    std::thread::scope(|scope| {
        let map = &map;
        let writer = scope.spawn(move || {
            let mut random = Rng::with_seed(5);
            for _ in 0..60_000 {
                let data = [10, random.u64(..4) as u8, random.u64(..4) as u8, 0];
                let prefix = key(9 + random.u64(..16) as u32, &data);
                match random.u64(..2) {
                    0 => _ = map.update(0, &prefix, &[7; 4], BPF_ANY),
                    _ => _ = map.delete(0, &prefix),
                }
            }
            // Never quiescent: nodes are reused under the reader, who has to notice.
        });
        let mut random = Rng::with_seed(6);
        while !writer.is_finished() {
            let data = [10, random.u64(..4) as u8, random.u64(..4) as u8, 1];
            let asked = key(32, &data);
            assert_eq!(map.user().lookup(&asked, 0).unwrap().bytes(), [7; 4]);
            assert!(map.lookup(0, &asked).is_some(), "programs begin at other nodes");
        }
    });
}
