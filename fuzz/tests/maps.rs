//! No definition, sequence of operations, type or JSON makes a map panic, and every address a map
//! gives to a program is one the program may use.

use std::sync::Arc;

use bolero::TypeGenerator;
use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::program::MapType;
use towpath_maps::{CreateOptions, Domain, Map, Value, typed};

const WORKERS: usize = 2;

/// One call, with what it needs cut from `bytes`.
#[derive(Debug, TypeGenerator)]
struct Step {
    call: u8,
    worker: bool,
    flags: u8,
    bytes: [u8; 16],
}

#[test]
fn any_operations_on_any_map() {
    bolero::check!().with_type::<(u8, [u8; 4], u8, Vec<Step>)>().for_each(
        |(kind, [key, value, entries, flags], extra, steps)| {
            let Some(kind) = MapType::from_number(u32::from(kind % 36)) else { return };
            let mut def = def(kind, u32::from(key % 17), u32::from(value % 17));
            def.max_entries = u32::from(*entries);
            def.flags = u32::from(*flags);
            def.map_extra = u64::from(*extra);
            let Ok(map) = Map::create(&def, &CreateOptions::new(Domain::new(WORKERS))) else {
                return;
            };
            steps.iter().for_each(|step| run(&map, step));
        },
    );
}

fn run(map: &Map, step: &Step) {
    let worker = usize::from(step.worker);
    let key = &step.bytes[..map.key_size() as usize];
    let value = &step.bytes[..map.value_size() as usize];
    let flags = u64::from(step.flags);
    match step.call % 10 {
        0 | 1 => _ = map.update(worker, key, value, flags),
        2 => {
            if let Some(address) = map.lookup(worker, key)
                && !matches!(map.kind(), MapType::ArrayOfMaps | MapType::HashOfMaps)
            {
                let owned = map.owns(address.as_ptr() as u64, map.value_size() as usize);
                assert!(owned.is_some(), "{:?} gives an address it doesn't own", map.kind());
            }
        }
        3 => _ = map.delete(worker, key),
        4 => _ = map.push(value, flags),
        5 => _ = map.pop(&mut value.to_vec()),
        6 => _ = map.user().update(key, &Value::from(value), flags),
        7 => _ = map.user().lookup_and_delete(key, flags),
        8 => _ = map.user().next_key(Some(key)),
        _ => map.domain().quiesce(worker),
    }
}

/// One type: what kind, what it refers to, sizes and offsets.
#[derive(Debug, TypeGenerator)]
struct AnyType {
    kind: u8,
    to: [u8; 2],
    offsets: [u16; 2],
    size: u8,
}

#[test]
fn what_is_shown_can_be_read_back_whatever_the_types() {
    bolero::check!().with_type::<(Vec<AnyType>, Vec<u8>)>().for_each(|(types, bytes)| {
        let Ok(btf) = Btf::parse(&blob(types)) else { return };
        let btf = Arc::new(btf);
        for id in 1..=types.len().min(64) as u32 {
            let Some(size) = btf.size_of(id).filter(|&size| size <= 256) else { continue };
            let mut def = def(MapType::Hash, 4, size as u32);
            (def.value_type, def.btf) = (id, Some(btf.clone()));
            let mut value = bytes.clone();
            value.resize(size as usize, 0x5a);
            let json = typed::value_to_json(&def, &value);
            // Members that lie outside their struct can be shown, but not read.
            if let Ok(back) = typed::value_from_json(&def, &json) {
                assert_eq!(back.len(), value.len());
            }
        }
    });
}

#[test]
fn any_json_for_a_value() {
    bolero::check!().with_type::<(Vec<AnyType>, String)>().for_each(|(types, text)| {
        let Ok(btf) = Btf::parse(&blob(types)) else { return };
        let json = serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into());
        let btf = Arc::new(btf);
        for id in 1..=types.len().min(64) as u32 {
            let Some(size) = btf.size_of(id).filter(|&size| size <= 256) else { continue };
            let mut def = def(MapType::Hash, 4, size as u32);
            (def.value_type, def.btf) = (id, Some(btf.clone()));
            let _ = typed::value_from_json(&def, &json);
        }
    });
}

/// A BTF blob of these types, as far as they make sense.
fn blob(types: &[AnyType]) -> Vec<u8> {
    let mut words: Vec<u32> = Vec::new();
    for AnyType { kind, to, offsets, size } in types.iter().take(64) {
        let to = to.map(|to| u32::from(to) % (types.len() as u32 + 1));
        let (size, name) = (u32::from(*size), 1);
        match kind % 7 {
            0 => {
                let bits = u32::from(offsets[0] % 65);
                words.extend([name, 1 << 24, [1, 2, 4, 8, 16][size as usize % 5], bits]);
            }
            1 => words.extend([0, 2 << 24, to[0]]),
            2 => words.extend([0, 3 << 24, 0, to[0], to[1], size % 9]),
            is @ (3 | 4) => {
                let members = [1, 3].into_iter().zip(to).zip(*offsets);
                words.extend([0, 1 << 31 | (is as u32 + 1) << 24 | 2, size]);
                let width = |offset: u16| u32::from(offset >> 12) << 24;
                for ((name, to), offset) in members {
                    words.extend([name % 3, to, u32::from(offset % 512) | width(offset)]);
                }
            }
            5 => words.extend([name, 6 << 24 | 1, [1, 2, 4, 8][size as usize % 4], 3, size]),
            _ => words.extend([name, 8 << 24, to[0]]),
        }
    }
    let strings = b"\0a\0b\0char\0";
    let (types, strings_len) = (words.len() as u32 * 4, strings.len() as u32);
    let mut blob = vec![0x9f, 0xeb, 1, 0];
    let header = [24, 0, types, types, strings_len];
    blob.extend(header.iter().chain(&words).flat_map(|word| word.to_le_bytes()));
    blob.extend(strings);
    blob
}

fn def(kind: MapType, key_size: u32, value_size: u32) -> MapDef {
    MapDef::new("m", kind, key_size, value_size, 4)
}
