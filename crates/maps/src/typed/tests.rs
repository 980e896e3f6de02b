use std::sync::Arc;

use serde_json::json;
use towpath_bpf::program::MapType;

use super::*;
use crate::testing::def;

/// Writes a BTF blob, type by type.
#[derive(Default)]
struct Blob {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Blob {
    fn name(&mut self, name: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    /// One type: kind and count of details in `info`, size or type, then the details.
    fn add(&mut self, name: &str, info: u32, size: u32, details: &[u32]) -> TypeId {
        let name = self.name(name);
        for word in [name, info, size].iter().chain(details) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn int(&mut self, name: &str, bytes: u32, encoding: u32) -> TypeId {
        self.add(name, 1 << 24, bytes, &[(encoding << 24) | (bytes * 8)])
    }

    fn array(&mut self, elem: TypeId, index: TypeId, count: u32) -> TypeId {
        self.add("", 3 << 24, 0, &[elem, index, count])
    }

    /// Members: name, type, bit offset, and width when it is a bit-field.
    fn composite(
        &mut self,
        name: &str,
        is_union: bool,
        size: u32,
        members: &[(&str, TypeId, u32, u32)],
    ) -> TypeId {
        let details: Vec<u32> = members
            .iter()
            .flat_map(|&(name, ty, offset, width)| [self.name(name), ty, offset | width << 24])
            .collect();
        let kind = if is_union { 5 } else { 4 };
        self.add(name, 1 << 31 | kind << 24 | members.len() as u32, size, &details)
    }

    fn finish(self) -> Arc<Btf> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut blob = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(self.types);
        blob.extend(self.strings);
        Arc::new(Btf::parse(&blob).unwrap())
    }
}

/// A map whose value is
/// `struct { s16 number; u8 low:3, high:5; bool on; enum state; char name[6]; u8 mac[6];
///  union { u32 whole; u16 parts[2]; }; }`, and whose key is a `u32`.
fn map() -> MapDef {
    let mut blob = Blob::default();
    let u8_type = blob.int("unsigned char", 1, 0);
    let u16_type = blob.int("unsigned short", 2, 0);
    let u32_type = blob.int("unsigned int", 4, 0);
    let s16_type = blob.int("short", 2, 1);
    let bool_type = blob.int("_Bool", 1, 4);
    let char_type = blob.int("char", 1, 1);
    let (up, down) = (blob.name("UP"), blob.name("DOWN"));
    let state = blob.add("state", 6 << 24 | 2, 4, &[up, 0, down, 1]);
    let name = blob.array(char_type, u32_type, 6);
    let mac = blob.array(u8_type, u32_type, 6);
    let parts = blob.array(u16_type, u32_type, 2);
    let either = blob.composite("", true, 4, &[("whole", u32_type, 0, 0), ("parts", parts, 0, 0)]);
    let value = blob.composite(
        "value",
        false,
        24,
        &[
            ("number", s16_type, 0, 0),
            ("low", u8_type, 16, 3),
            ("high", u8_type, 19, 5),
            ("on", bool_type, 24, 0),
            ("state", state, 32, 0),
            ("name", name, 64, 0),
            ("mac", mac, 112, 0),
            ("", either, 160, 0),
        ],
    );
    MapDef {
        key_type: u32_type,
        value_type: value,
        btf: Some(blob.finish()),
        ..def(MapType::Hash, 4, 24, 8, 0)
    }
}

#[test]
fn what_is_shown_can_be_read_back() {
    let def = map();
    let json = json!({
        "number": -2, "low": 5, "high": 17, "on": true, "state": "DOWN", "name": "eth0",
        "mac": "02:00:00:00:00:01", "whole": 0x0002_0001, "parts": [1, 2]
    });
    let bytes = value_from_json(&def, &json).unwrap();
    assert_eq!(bytes[..4], [0xfe, 0xff, 17 << 3 | 5, 1]);
    assert_eq!(bytes[4..14], *b"\x01\0\0\0eth0\0\0");
    assert_eq!(value_to_json(&def, &bytes), json);
    assert_eq!(key_to_json(&def, &7u32.to_le_bytes()), json!(7));
}

#[test]
fn shorter_ways_to_write_things() {
    let def = map();
    let bytes = |json: Json| value_from_json(&def, &json).unwrap();
    assert_eq!(bytes(json!({})), [0; 24]);
    assert_eq!(bytes(json!({"mac": "02:00:00:00:00:01"}))[14..20], [2, 0, 0, 0, 0, 1]);
    assert_eq!(bytes(json!({"number": "0x10", "state": 1}))[..5], [16, 0, 0, 0, 1]);
    assert_eq!(bytes(json!({"parts": "hex:01000200"}))[20..], [1, 0, 2, 0]);
    assert_eq!(key_from_json(&def, &json!("10.0.0.1")).unwrap(), [10, 0, 0, 1]);
    assert_eq!(key_from_json(&def, &json!("hex:01020304")).unwrap(), [1, 2, 3, 4]);
}

/// A key `struct { struct in6_addr address; __be32 gateway; __be16 port; const __be64 id; }`.
fn network_map() -> MapDef {
    let mut blob = Blob::default();
    let word = blob.int("unsigned int", 4, 0);
    let short = blob.int("unsigned short", 2, 0);
    let long = blob.int("unsigned long long", 8, 0);
    let [be16, be32, be64] = [("__be16", short), ("__be32", word), ("__be64", long)]
        .map(|(name, ty)| blob.add(name, 8 << 24, ty, &[]));
    let const_be64 = blob.add("", 10 << 24, be64, &[]);
    let words = blob.array(be32, word, 4);
    let in6_addr = blob.composite("in6_addr", false, 16, &[("u6_addr32", words, 0, 0)]);
    let key_type = blob.composite(
        "key",
        false,
        32,
        &[
            ("address", in6_addr, 0, 0),
            ("gateway", be32, 128, 0),
            ("port", be16, 160, 0),
            ("id", const_be64, 192, 0),
        ],
    );
    MapDef { key_type, btf: Some(blob.finish()), ..def(MapType::Hash, 32, 4, 8, 0) }
}

#[test]
fn network_order_is_shown_as_people_write_it() {
    let def = network_map();
    let json = json!({
        "address": "2001:db8::1", "gateway": "10.0.0.1", "port": 80, "id": 0x0102_0304_0506_0708_u64
    });
    let bytes = key_from_json(&def, &json).unwrap();
    assert_eq!(bytes[16..22], [10, 0, 0, 1, 0, 80]);
    assert_eq!(bytes[24..], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(key_to_json(&def, &bytes), json);

    let mapped = key_from_json(&def, &json!({"address": "192.0.2.1", "gateway": 7})).unwrap();
    assert_eq!(mapped[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    assert_eq!(mapped[16..20], [0, 0, 0, 7]);
    assert_eq!(key_to_json(&def, &mapped)["address"], json!("192.0.2.1"));
    let error = key_from_json(&def, &json!({"port": 65536})).unwrap_err().to_string();
    assert!(error.contains("key.port: 65536 does not fit 16"), "{error}");
}

/// A value `struct { __u32 gateway; __u32 servers[2]; __u16 port; struct { __u32 inner; }; }`, all
/// of them tagged, in a map with a key `typedef __u32 address`, which is tagged itself.
fn tagged_map() -> MapDef {
    const DECL_TAG: u32 = 17 << 24;
    let mut blob = Blob::default();
    let word = blob.int("unsigned int", 4, 0);
    let short = blob.int("unsigned short", 2, 0);
    let key_type = blob.add("address", 8 << 24, word, &[]);
    let servers = blob.array(word, word, 2);
    let inner = blob.composite("", false, 4, &[("inner", word, 0, 0)]);
    let members = [
        ("gateway", word, 0, 0),
        ("servers", servers, 32, 0),
        ("port", short, 96, 0),
        ("", inner, 128, 0),
    ];
    let value_type = blob.composite("value", false, 20, &members);
    for (tag, of, component) in [
        ("bpf_fastcall", key_type, u32::MAX),
        ("ipv4", key_type, u32::MAX),
        ("ipv4", inner, 0),
        ("ipv4", value_type, 0),
        ("ipv4", value_type, 1),
        ("be16", value_type, 2),
    ] {
        blob.add(tag, DECL_TAG, of, &[component]);
    }
    let btf = Some(blob.finish());
    MapDef { key_type, value_type, btf, ..def(MapType::Hash, 4, 20, 8, 0) }
}

#[test]
fn tags_say_what_numbers_mean() {
    let def = tagged_map();
    let json = json!({
        "gateway": "10.0.0.1", "servers": ["10.0.0.2", "10.0.0.3"], "port": 80,
        "inner": "10.0.0.4"
    });
    let bytes = value_from_json(&def, &json).unwrap();
    let wanted = [10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 3, 0, 80, 0, 0, 10, 0, 0, 4];
    assert_eq!(bytes, wanted);
    assert_eq!(value_to_json(&def, &bytes), json);
    assert_eq!(key_to_json(&def, &[192, 0, 2, 1]), json!("192.0.2.1"));
    // A number is one in network order, as of a `__be32`.
    let bytes = value_from_json(&def, &json!({"inner": 7, "servers": [0x0a00_0001]})).unwrap();
    assert_eq!(bytes[4..8], [10, 0, 0, 1]);
    assert_eq!(bytes[16..], [0, 0, 0, 7]);
    let error = value_from_json(&def, &json!({"servers": ["10.0.0.256"]})).unwrap_err();
    assert_eq!(error.path, "value.servers[0]");
}

#[test]
fn keys_of_tries_are_prefixes() {
    let def = def(MapType::LpmTrie, 8, 4, 8, 1);
    let key = key_from_json(&def, &json!("10.0.0.0/8")).unwrap();
    assert_eq!(key, [8, 0, 0, 0, 10, 0, 0, 0]);
    assert_eq!(prefix_to_text(&key).as_deref(), Some("10.0.0.0/8"));
    let wrong = ["10.0.0.0/33", "10.0.0.0", "2001:db8::/32", "10.0.0.0/8/8", "/8"];
    assert!(wrong.iter().all(|text| key_from_json(&def, &json!(text)).is_err()));
    assert_eq!(prefix_to_text(&[8, 0, 0, 0, 1]), None, "no address has a byte");
}

#[test]
fn problems_say_where_and_what_was_expected() {
    let def = map();
    let message = |json: Json| value_from_json(&def, &json).unwrap_err().to_string();
    assert_eq!(
        message(json!({"parts": [1, 65536]})),
        "map \"a_hash\", value.parts[1]: 65536 does not fit 16 unsigned bits; \
         expected 0 to 65535"
    );
    assert_eq!(
        message(json!({"low": 8})),
        "map \"a_hash\", value.low: 8 does not fit 3 unsigned bits; expected 0 to 7"
    );
    assert!(message(json!({"nmae": "x"})).contains("known: number, low, high, on"));
    assert!(message(json!({"state": "SIDEWAYS"})).contains("known: UP, DOWN"));
    assert!(message(json!({"name": "far too long"})).contains("expected at most 6"));
    assert!(message(json!({"parts": [1, 2, 3]})).contains("expected at most 2"));
    assert!(message(json!([1])).contains("expected an object"));
    assert!(message(json!("hex:00")).contains("expected 24"));
    assert!(message(json!("hex:0g")).contains("hex digits"));
}

#[test]
fn without_fitting_types_bytes_are_hex() {
    let untyped = def(MapType::Hash, 2, 12, 8, 0);
    let shown = value_to_json(&untyped, &[0xab; 12]);
    assert_eq!(shown, json!("hex:abababababababababababab"));
    assert_eq!(value_from_json(&untyped, &shown).unwrap(), [0xab; 12]);
    assert_eq!(key_from_json(&untyped, &json!(258)).unwrap(), [2, 1]);
    assert!(key_from_json(&untyped, &json!(65536)).is_err());
    assert!(value_from_json(&untyped, &json!(1)).is_err(), "12 bytes aren't a number");
    let wrong = MapDef { value_size: 8, ..map() };
    assert_eq!(value_to_json(&wrong, &[1; 8]), json!("hex:0101010101010101"));
}

#[test]
fn text_that_isnt_text_is_an_array() {
    let def = map();
    let mut bytes = value_from_json(&def, &json!({"name": "abc"})).unwrap();
    bytes[13] = b'x';
    let shown = value_to_json(&def, &bytes);
    assert_eq!(shown["name"], json!([97, 98, 99, 0, 0, 120]));
    assert_eq!(value_from_json(&def, &shown).unwrap(), bytes);
}

#[test]
fn nested_unions_cannot_make_the_text_endless() {
    let mut blob = Blob::default();
    let mut ty = blob.int("unsigned char", 1, 0);
    for _ in 0..24 {
        ty = blob.composite("u", true, 1, &[("a", ty, 0, 0), ("b", ty, 0, 0)]);
    }
    let def = MapDef { value_type: ty, btf: Some(blob.finish()), ..def(MapType::Hash, 4, 1, 8, 0) };
    assert_eq!(value_to_json(&def, &[7]), json!("hex:07"));
}
