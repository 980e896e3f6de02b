//! Memory of an entry, beside the kernel's: a table of docs/maps.md.

use std::path::Path;

use towpath_bpf::program::MapType;
use towpath_maps::{CreateOptions, Domain, Map};

use super::{def, kernel};

/// A number that no other map has.
const ENTRIES: u32 = 65_521;
const KEY_BYTES: u32 = 16;
const VALUE_BYTES: u32 = 64;
/// Workers, and CPUs of the machine that the table is of.
const CPUS: usize = 2;
const KINDS: [(MapType, u32); 5] = [
    (MapType::Hash, KEY_BYTES),
    (MapType::LruHash, KEY_BYTES),
    (MapType::PercpuHash, KEY_BYTES),
    (MapType::Array, 4),
    (MapType::PercpuArray, 4),
];

/// Bytes of memory that the kernel charges for the map with `ENTRIES` entries.
fn charged() -> Option<u64> {
    let entries = format!("max_entries:\t{ENTRIES}\n");
    let open = std::fs::read_dir("/proc/self/fdinfo").ok()?.flatten();
    let mut texts = open.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let text = texts.find(|text| text.contains(&entries))?;
    text.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

/// Bytes an entry, rounded.
fn each(bytes: u64) -> u64 {
    (bytes + u64::from(ENTRIES) / 2) / u64::from(ENTRIES)
}

fn here(kind: MapType, key: u32, cpus: usize) -> u64 {
    let options = CreateOptions::new(Domain::new(cpus));
    let map = Map::create(&def(kind, key, VALUE_BYTES, ENTRIES, 0), &options).expect("memory");
    map.population().expect("it is allocated at once").1
}

#[test]
fn memory_of_an_entry_is_as_the_page_says() {
    let Some(kernel) = kernel() else { return };
    let mut rows = Vec::new();
    let mut cpus = 0;
    for (kind, key) in KINDS {
        let maps = kernel.load_maps(&[def(kind, key, VALUE_BYTES, ENTRIES, 0)]).expect("memory");
        let there = charged().expect("the kernel says so since 6.4");
        if kind.is_percpu() {
            cpus = maps.maps()[0].value_bytes() / VALUE_BYTES as usize;
        }
        rows.push((kind, key, there));
    }
    let row = |&(kind, key, there): &(MapType, u32, u64)| {
        let (name, here) = (kind.name().to_uppercase(), here(kind, key, CPUS));
        format!("| `{name}` | {} | {} |", each(here), each(there))
    };
    for &(kind, key, there) in &rows {
        let here = here(kind, key, cpus);
        assert!(here <= there * 11 / 10, "{kind:?}: {here} bytes here, {there} in the kernel");
    }
    let table: Vec<String> = rows.iter().map(row).collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if cpus == CPUS && release.starts_with("6.18.") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/maps.md");
        let page = std::fs::read_to_string(page).expect("it is in the repository");
        let table = table.join("\n");
        assert!(page.contains(&table), "docs/maps.md has another table than:\n{table}");
    }
}
