//! No file makes the loading of a map panic or hang: it is refused, or the map is as it says, and
//! what is in the map then is loaded again without a change.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_maps::rows::{Format, Plan, read};
use towpath_maps::{CreateOptions, Domain, Map};

const FORMATS: [Format; 3] = [Format::Json, Format::Csv, Format::Packed];
const KINDS: [(MapType, u32); 6] = [
    (MapType::Hash, 4),
    (MapType::PercpuArray, 4),
    (MapType::LpmTrie, 8),
    (MapType::LruHash, 4),
    (MapType::Queue, 0),
    (MapType::BloomFilter, 0),
];

fn create((kind, key): (MapType, u32)) -> Arc<Map> {
    let flags = u32::from(kind == MapType::LpmTrie);
    let def = MapDef { flags, ..MapDef::new("m", kind, key, 2, 8) };
    Map::create(&def, &CreateOptions::new(Domain::new(2))).expect("memory")
}

fn load(map: &Map, format: Format, bytes: &[u8]) {
    let Ok(rows) = read(map, format, &mut &bytes[..]) else { return };
    let has_keys = map.key_size() > 0;
    for is_replace in [false, true] {
        let Ok(loaded) = Plan::new(map, &rows, is_replace).and_then(Plan::apply) else { continue };
        assert_eq!(loaded.rows, rows.len());
        if !has_keys || !is_replace {
            continue;
        }
        let packed: Vec<u8> = map
            .user()
            .entries()
            .flat_map(|(key, value)| [&[key.as_slice()], &value.cpus()[..]].concat().concat())
            .collect();
        let again = read(map, Format::Packed, &mut packed.as_slice()).expect("it was in it");
        let again = Plan::new(map, &again, true).and_then(Plan::apply).expect("it has room");
        assert_eq!((again.written, again.deleted), (0, 0));
    }
}

#[test]
fn any_bytes_as_rows() {
    bolero::check!().with_type::<(u8, u8, Vec<u8>)>().for_each(|(kind, format, bytes)| {
        let map = create(KINDS[usize::from(*kind) % KINDS.len()]);
        load(&map, FORMATS[usize::from(*format) % FORMATS.len()], bytes);
    });
}

#[test]
fn real_rows_with_bytes_changed() {
    let json = "[{\"key\": 1, \"value\": 2}, {\"key\": \"hex:02000000\", \"values\": [{\"cpu\": 1, \
                \"value\": 3}]},\n{\"key\": \"10.0.0.0/8\", \"value\": [\"0x01\", \"0x02\"]}]";
    let csv = "key,value,cpu1\r\n1,2,3\r\n\"10.0.0.0/8\",\"hex:0102\",4\n\n0x2,7,9\n";
    let packed = "\x01\0\0\0\x02\0\x02\0\0\0\x02\0\x08\0\0\0\x0a\x01\x02\x03\x04\0";
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>)>().for_each(|(kind, changes)| {
        for (format, text) in FORMATS.into_iter().zip([json, csv, packed]) {
            let mut bytes = text.as_bytes().to_vec();
            let len = bytes.len();
            for (at, value) in changes {
                bytes[usize::from(*at) % len] = *value;
            }
            load(&create(KINDS[usize::from(*kind) % KINDS.len()]), format, &bytes);
        }
    });
}
