//! Access rights by kind of map: each command on a map's values, for each kind, on maps that are
//! frozen or restricted for users or programs, beside the running kernel.

use std::fmt::Write as _;

use towpath_bpf::MapDef;
use towpath_bpf::map::{Host, Keys, MapType, Values};

use crate::kernel::Kernel;
use crate::ours::Ours;
use crate::script::Script;

/// `map_flags` and what is done before the commands.
const STATES: &[(&str, u32, bool)] = &[
    ("plain", 0, false),
    ("frozen", 0, true),
    ("BPF_F_RDONLY", 1 << 3, false),
    ("BPF_F_WRONLY", 1 << 4, false),
    ("BPF_F_RDONLY, frozen", 1 << 3, true),
    ("BPF_F_WRONLY, frozen", 1 << 4, true),
    ("BPF_F_RDONLY_PROG", 1 << 7, false),
    ("BPF_F_RDONLY_PROG, frozen", 1 << 7, true),
    ("BPF_F_WRONLY_PROG", 1 << 8, false),
    ("BPF_F_WRONLY_PROG, frozen", 1 << 8, true),
];

#[test]
fn rights() {
    let text = MapType::ALL.iter().filter(|kind| is_asked(**kind)).map(|kind| script_of(*kind));
    let text: String = text.collect();
    let script = Script::parse(&text).expect("it is made here");
    let mut kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return println!("skipped: {why}"),
    };
    // The scripts compare the values that are read; this test compares only whether a read
    // succeeds.
    let answers = |outcomes: Vec<String>| -> Vec<String> {
        let word = |outcome: &String| outcome.split(' ').next().unwrap_or_default().to_owned();
        outcomes.iter().map(word).collect()
    };
    let expected = answers(script.run(&mut kernel));
    let ours = answers(script.run(&mut Ours::new()));
    let mut wrong = String::new();
    let mut map = "";
    for ((line, expected), got) in script.lines.iter().zip(&expected).zip(&ours) {
        if line.command == "map_create" {
            map = &line.text;
        }
        if expected != got {
            let text = &line.text;
            writeln!(wrong, "{map}\n  {text}\n  the kernel {expected}, we {got}").expect("text");
        }
    }
    assert!(wrong.is_empty(), "answers differ:\n{wrong}");
}

/// Kinds that 6.18 has and that need no types.
fn is_asked(kind: MapType) -> bool {
    match kind.values() {
        Values::Host(Host::Storage | Host::StructOps | Host::Insns) => false,
        _ => kind != MapType::Rhash && !kind.is_ours(),
    }
}

/// All commands on a map in each state that the kind can be made in.
fn script_of(kind: MapType) -> String {
    let mut text = String::new();
    for (at, (_state, flags, is_frozen)) in STATES.iter().enumerate() {
        let map = format!("m{}x{at}", kind as u32);
        let (key_size, value_size, max_entries) = sizes(kind);
        let mut def = MapDef::new("m", kind, key_size, value_size, max_entries);
        def.flags = flags | needed_flags(kind);
        def.inner = Some(Box::new(MapDef::new("i", MapType::Array, 4, 4, 1)));
        if def.check().is_err() {
            continue;
        }
        if kind.values() == Values::Map {
            text += "map_create map_type=array key_size=4 value_size=4 max_entries=1 -> inner\n";
        }
        text += &create(&def, &map);
        if *is_frozen {
            text += &format!("map_freeze map_fd={map}\n");
        }
        for command in commands(kind) {
            text += &command.replace("$M", &map);
        }
        text += &format!("map_freeze map_fd={map}\nclose {map}\n");
        if kind.values() == Values::Map {
            text += "close inner\n";
        }
    }
    text
}

fn create(def: &MapDef, map: &str) -> String {
    let MapDef { kind, key_size, value_size, max_entries, flags, .. } = def;
    let inner = if kind.values() == Values::Map { " inner_map_fd=inner" } else { "" };
    format!(
        "map_create map_type={} key_size={key_size} value_size={value_size} \
         max_entries={max_entries} map_flags={flags}{inner} -> {map}\n",
        *kind as u32,
    )
}

/// `BPF_F_MMAPABLE`, `BPF_F_NO_PREALLOC`
fn needed_flags(kind: MapType) -> u32 {
    match kind.keys() {
        _ if kind.values() == Values::Pages => 1 << 10,
        Keys::Prefix => 1,
        _ => 0,
    }
}

fn sizes(kind: MapType) -> (u32, u32, u32) {
    match (kind.keys(), kind.values()) {
        (_, Values::Records) => (0, 0, 4096),
        (_, Values::Pages) => (0, 0, 1),
        (_, Values::Host(Host::CgroupStorage | Host::PercpuCgroupStorage)) => (16, 4, 0),
        (_, Values::Host(Host::Stack)) => (4, 8, 4),
        (Keys::None, _) => (0, 4, 4),
        (Keys::Prefix, _) => (8, 4, 4),
        _ => (4, 4, 4),
    }
}

fn commands(kind: MapType) -> Vec<String> {
    let (key_size, ..) = sizes(kind);
    let key = match key_size {
        0 => String::new(),
        size => format!(" key=@{}", "00".repeat(size as usize)),
    };
    // The first device, an empty queue, or a descriptor that isn't open.
    let value = match kind.values() {
        Values::Device | Values::Cpu => "01000000".to_owned(),
        Values::Program
        | Values::Map
        | Values::Socket
        | Values::Events
        | Values::Host(Host::Cgroup | Host::Socket) => "ffffff7f".to_owned(),
        _ => "01000000".repeat(64),
    };
    let keys = if key.is_empty() { String::new() } else { key.replace(" key=", " keys=") };
    let update = format!("map_update_elem map_fd=$M{key} value=@{value}\n");
    let lookup = format!("map_lookup_elem map_fd=$M{key} value=?1024\n");
    vec![
        lookup.clone(),
        update.clone(),
        lookup.clone(),
        lookup.replace("?1024", "?1024 flags=1"),
        lookup.replace("?1024", "?1024 flags=4"),
        update.replace('\n', " flags=1\n"),
        update.replace('\n', " flags=2\n"),
        update.replace('\n', " flags=3\n"),
        update.replace('\n', " flags=4\n"),
        format!("map_lookup_and_delete_elem map_fd=$M{key} value=?1024\n"),
        format!("map_lookup_and_delete_elem map_fd=$M{key} value=?1024 flags=4\n"),
        "map_get_next_key map_fd=$M next_key=?64\n".to_owned(),
        format!("map_get_next_key map_fd=$M{key} next_key=?64\n"),
        update,
        format!("map_lookup_batch map_fd=$M out_batch=?64 keys=?64 values=?1024 count=2\n"),
        format!("map_update_batch map_fd=$M{keys} values=@{value} count=1\n"),
        format!("map_delete_batch map_fd=$M{keys} count=1\n"),
        format!(
            "map_lookup_and_delete_batch map_fd=$M out_batch=?64 keys=?64 values=?1024 count=2\n"
        ),
        format!("map_delete_elem map_fd=$M{key}\n"),
        format!("map_delete_elem map_fd=$M{key}\n"),
        lookup,
    ]
}
