//! `towpath inspect`: contents of an object file, without verification or a run.

use serde::Serialize;
use towpath_bpf::Object;
use towpath_bpf::program::{AttachType, MapDef, SlotInit};

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped, in_bytes};
use crate::program::open_object;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Contents<'a> {
    object: &'a str,
    license: &'a str,
    btf: bool,
    programs: Vec<ProgramLine<'a>>,
    maps: Vec<MapLine<'a>>,
    globals: Vec<GlobalLine<'a>>,
}

#[derive(Debug, Serialize)]
struct ProgramLine<'a> {
    name: &'a str,
    section: &'a str,
    kind: &'static str,
    attach: &'static str,
    frags: bool,
    insns: usize,
}

#[derive(Debug, Serialize)]
struct MapLine<'a> {
    name: &'a str,
    kind: String,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    key_type: Option<String>,
    value_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner: Option<Box<MapLine<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slots: Vec<SlotLine<'a>>,
}

#[derive(Debug, Serialize)]
struct SlotLine<'a> {
    slot: u32,
    holds: &'a str,
}

#[derive(Debug, Serialize)]
struct GlobalLine<'a> {
    name: &'a str,
    section: &'static str,
    size: u32,
    declaration: &'a str,
}

/// Shows an object file.
pub(crate) fn inspect(args: &InspectArgs, output: &mut Output) -> Result<(), CliError> {
    let object = open_object(&args.object)?;
    let contents = contents_of(&object);
    if output.json { output.json(&contents) } else { print(&contents, output) }
}

fn contents_of(object: &Object) -> Contents<'_> {
    let programs = object.programs().iter().map(|program| ProgramLine {
        name: &program.name,
        section: &program.section,
        kind: program.kind.name(),
        attach: attach_name(program.attach),
        frags: program.has_frags,
        insns: program.insn_count,
    });
    let globals = object.globals().iter().map(|global| GlobalLine {
        name: &global.name,
        section: global.section.name(),
        size: global.size,
        declaration: &global.declaration,
    });
    Contents {
        object: object.name(),
        license: object.license(),
        btf: object.btf().is_some(),
        programs: programs.collect(),
        maps: object.maps().iter().map(|map| map_line(map, object.maps())).collect(),
        globals: globals.collect(),
    }
}

fn map_line<'a>(map: &'a MapDef, all: &'a [MapDef]) -> MapLine<'a> {
    let type_name = |id| match &map.btf {
        Some(btf) if id != 0 => Some(btf.c_name(id)),
        _ => None,
    };
    let slots = map.slots.iter().map(|(slot, init)| SlotLine {
        slot: *slot,
        holds: match init {
            SlotInit::Map(index) => all.get(*index).map_or("", |map| map.name.as_str()),
            SlotInit::Program(name) => name,
        },
    });
    MapLine {
        name: &map.name,
        kind: map.kind.name().to_owned(),
        key_size: map.key_size,
        value_size: map.value_size,
        max_entries: map.max_entries,
        flags: map.flags,
        key_type: type_name(map.key_type),
        value_type: type_name(map.value_type),
        inner: map.inner.as_deref().map(|inner| Box::new(map_line(inner, all))),
        slots: slots.collect(),
    }
}

fn attach_name(attach: AttachType) -> &'static str {
    match attach {
        AttachType::Xdp => "xdp",
        AttachType::Devmap => "devmap",
        AttachType::Cpumap => "cpumap",
        AttachType::Dequeue => "dequeue",
        AttachType::Syscall => "syscall",
    }
}

fn print(contents: &Contents<'_>, output: &mut Output) -> Result<(), CliError> {
    let Contents { object, license, btf, programs, maps, globals } = contents;
    let style = output.style;
    let license = if license.is_empty() { "none" } else { license };
    let btf = if *btf { "with types (BTF)" } else { "without types (no BTF)" };
    output.line(&format!("{}: licence {license}, {btf}", style.bold(object)))?;

    output.line(&format!("\n{}", style.bold(&count(programs.len(), "program"))))?;
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("section", Align::Left),
        ("kind", Align::Left),
        ("attach", Align::Left),
        ("frags", Align::Left),
        ("insns", Align::Right),
    ]);
    for ProgramLine { name, section, kind, attach, frags, insns } in programs {
        table.row(vec![
            (*name).to_owned(),
            (*section).to_owned(),
            (*kind).to_owned(),
            (*attach).to_owned(),
            if *frags { "yes" } else { "no" }.to_owned(),
            grouped(*insns as u64),
        ]);
    }
    output.section(&table)?;
    print_maps(maps, output)?;
    print_globals(globals, output)
}

fn print_maps(maps: &[MapLine<'_>], output: &mut Output) -> Result<(), CliError> {
    output.line(&format!("\n{}", output.style.bold(&count(maps.len(), "map"))))?;
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("kind", Align::Left),
        ("entries", Align::Right),
        ("key", Align::Left),
        ("value", Align::Left),
        ("at most", Align::Right),
    ]);
    for map in maps {
        let MapLine { name, kind, key_size, value_size, max_entries, inner, slots, .. } = map;
        let mut kind = kind.clone();
        if let Some(inner) = inner {
            kind = format!("{kind} of {}", inner.kind);
        }
        if !slots.is_empty() {
            kind = format!("{kind}, {} filled", slots.len());
        }
        let (entries, bytes) = match map.kind.as_str() {
            "ringbuf" | "user_ringbuf" => ("-".to_owned(), u64::from(*max_entries)),
            "arena" => ("-".to_owned(), u64::from(*max_entries) * PAGE_BYTES),
            _ => {
                let entry = u64::from(*key_size) + u64::from(*value_size);
                (grouped((*max_entries).into()), entry * u64::from(*max_entries))
            }
        };
        table.row(vec![
            (*name).to_owned(),
            kind,
            entries,
            with_type(*key_size, map.key_type.as_deref()),
            with_type(*value_size, map.value_type.as_deref()),
            in_bytes(bytes),
        ]);
    }
    output.section(&table)
}

fn print_globals(globals: &[GlobalLine<'_>], output: &mut Output) -> Result<(), CliError> {
    output.line(&format!("\n{}", output.style.bold(&count(globals.len(), "global"))))?;
    let mut table = Table::new(&[
        ("declaration", Align::Left),
        ("section", Align::Left),
        ("bytes", Align::Right),
    ]);
    for GlobalLine { name: _, section, size, declaration } in globals {
        let cells = [(*declaration).to_owned(), (*section).to_owned(), grouped((*size).into())];
        table.row(cells.to_vec());
    }
    output.section(&table)
}

/// Size of a page: arenas are measured in pages.
const PAGE_BYTES: u64 = 4096;

fn with_type(size: u32, name: Option<&str>) -> String {
    match (size, name) {
        (0, _) => "-".to_owned(),
        (size, Some(name)) => format!("{name} ({size} B)"),
        (size, None) => format!("{size} B"),
    }
}

fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{} {what}s", grouped(number as u64)),
    }
}
