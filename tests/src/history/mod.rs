//! Programs that the kernel's verifier once accepted and no longer does: tables of small programs,
//! each below the subject of the commit that closed the hole.
//!
//! `tests/data/history/*.txt` has the programs as text (see [`mod@assemble`]). A table is a theme;
//! an entry starts with `== SUBJECT`, and has programs that are `refused` or `accepted`, each with
//! a few words that say what it does. `refused-here WORDS` is one that the running kernel still
//! accepts, on purpose refused here; `unlike-kernel WORDS` one that is accepted here alone.
//! Programs that need types are in C, in `tests/data/calls/history.c`.

pub mod assemble;
mod page;
mod types;

pub use page::{answers, page};

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::program::{AttachType, KfuncRef, MapType, SlotInit};
use towpath_bpf::{Linked, MapDef};
use towpath_workload::plain_map;

use crate::sources::repository;
use crate::tables::functions;
use assemble::assemble;

/// Programs of one table.
#[derive(Debug)]
pub struct Theme {
    /// The file's name without its end.
    pub name: String,
    /// What it says of itself, in its first line.
    pub title: String,
    /// One for each commit.
    pub entries: Vec<Entry>,
}

/// What one commit closed.
#[derive(Debug)]
pub struct Entry {
    /// The commit's subject.
    pub subject: String,
    /// Programs that show it.
    pub programs: Vec<Program>,
}

/// One program, and what is to be said of it.
#[derive(Debug)]
pub struct Program {
    /// What it does.
    pub name: String,
    /// Our verdict.
    pub accept: bool,
    /// The running kernel's.
    pub kernel_accepts: bool,
    /// The program.
    pub text: String,
}

/// The commits whose programs are in C, since they need types: subjects and names of programs,
/// which start with `ok_` or `no_`.
pub fn typed() -> Result<Vec<(String, Vec<String>)>, String> {
    let path = repository().join("tests/data/calls/history.c");
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let subject = line.strip_prefix("/* bpf: ").and_then(|line| line.strip_suffix(" */"));
        let program = line.strip_prefix("PROGRAM(").and_then(|line| line.split(')').next());
        if let Some(subject) = subject {
            entries.push((format!("bpf: {subject}"), Vec::new()));
        } else if let (Some(program), Some((_, programs))) = (program, entries.last_mut()) {
            programs.push(program.to_owned());
        }
    }
    Ok(entries)
}

/// Reads all tables of a folder of the repository.
pub fn read(folder: &str) -> Result<Vec<Theme>, String> {
    let folder = repository().join(folder);
    let files = std::fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    let mut themes = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|ext| ext == "txt")) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        themes.push(theme(&name, &text).map_err(|line| format!("{name}: `{line}`"))?);
    }
    Ok(themes)
}

/// One table; the error is the line that can't be.
fn theme(name: &str, text: &str) -> Result<Theme, String> {
    let mut theme = Theme { name: name.to_owned(), title: String::new(), entries: Vec::new() };
    for line in text.lines() {
        let wrong = || line.to_owned();
        if let Some(comment) = line.strip_prefix('#') {
            if theme.title.is_empty() {
                theme.title = comment.trim().to_owned();
            }
        } else if let Some(subject) = line.strip_prefix("== ") {
            theme.entries.push(Entry { subject: subject.to_owned(), programs: Vec::new() });
        } else if line.starts_with(' ') {
            let program = theme.entries.last_mut().and_then(|entry| entry.programs.last_mut());
            let program = program.ok_or_else(wrong)?;
            program.text.push_str(line);
            program.text.push('\n');
        } else if let Some((kind, name)) = line.split_once(' ') {
            let (accept, kernel_accepts) = match kind {
                "refused" => (false, false),
                "accepted" => (true, true),
                "refused-here" => (false, true),
                "unlike-kernel" => (true, false),
                _ => return Err(wrong()),
            };
            let name = name.to_owned();
            let program = Program { name, accept, kernel_accepts, text: String::new() };
            theme.entries.last_mut().ok_or_else(wrong)?.programs.push(program);
        } else if !line.is_empty() {
            return Err(wrong());
        }
    }
    Ok(theme)
}

impl Program {
    /// As a program of several buffers under the GPL.
    pub fn linked(&self, kernel_btf: &Arc<Btf>) -> Result<Linked, String> {
        let assembled = assemble(&self.text)?;
        let maps: Option<Vec<MapDef>> = assembled.maps.iter().map(|name| map(name)).collect();
        let mut functions = functions(&assembled.insns, &[]);
        let btf = types::of_functions(&mut functions);
        let kfunc = |name: &String| KfuncRef { name: name.clone(), type_id: None, weak: false };
        Ok(Linked {
            name: NAME.to_owned(),
            section: "xdp.frags".to_owned(),
            attach: AttachType::Xdp,
            has_frags: true,
            license: "GPL".to_owned(),
            functions,
            insns: assembled.insns,
            lines: Vec::new(),
            maps: maps.ok_or("a map that is in no list")?.into(),
            unresolved: Vec::new(),
            kfuncs: assembled.kfuncs.iter().map(kfunc).collect(),
            btf: Some(Arc::new(btf)),
            kernel_btf: Arc::clone(kernel_btf),
        })
    }
}

const NAME: &str = "history";

/// The maps that the programs name: keys of 4 bytes.
fn map(name: &str) -> Option<MapDef> {
    use MapType as T;
    const INNER_MAP: u32 = 1 << 12;
    const MMAPABLE: u32 = 1 << 10;
    const RDONLY_PROG: u32 = 1 << 7;
    const WRONLY_PROG: u32 = 1 << 8;
    let with_flags = |kind, flags| {
        let mut map = plain_map(name, kind, (4, 48, 1));
        map.flags = flags;
        map
    };
    let of_maps = |inner: MapDef| {
        let mut map = plain_map(name, T::ArrayOfMaps, (4, 4, 4));
        map.inner = Some(Box::new(inner));
        map
    };
    let array = || plain_map("inner", T::Array, (4, 16, 4));
    Some(match name {
        "array" => plain_map(name, T::Array, (4, 48, 4)),
        "one" => plain_map(name, T::Array, (4, 48, 1)),
        "hash" => plain_map(name, T::Hash, (4, 48, 4)),
        "percpu" => plain_map(name, T::PercpuArray, (4, 48, 4)),
        "readonly" => with_flags(T::Array, RDONLY_PROG),
        "writeonly" => with_flags(T::Array, WRONLY_PROG),
        "outer" => of_maps(array()),
        "outer_percpu" => of_maps(plain_map("inner", T::PercpuArray, (4, 16, 4))),
        "outer_any_size" => of_maps(MapDef { flags: INNER_MAP, ..array() }),
        "programs" | "others" => {
            let mut map = plain_map(name, T::ProgArray, (4, 4, 4));
            map.slots.push((1, SlotInit::Program(NAME.to_owned())));
            map
        }
        "arena" => {
            MapDef { flags: MMAPABLE, map_extra: 1 << 32, ..plain_map(name, T::Arena, (0, 0, 4)) }
        }
        "ringbuf" => plain_map(name, T::Ringbuf, (0, 0, 4096)),
        "devmap" => plain_map(name, T::Devmap, (4, 4, 4)),
        "devmap_hash" => plain_map(name, T::DevmapHash, (4, 4, 4)),
        "cpumap" => plain_map(name, T::Cpumap, (4, 4, 4)),
        "xskmap" => plain_map(name, T::Xskmap, (4, 4, 4)),
        "queue" => plain_map(name, T::Queue, (0, 8, 4)),
        "packets" => MapDef { map_extra: 8, ..plain_map(name, T::PifoXdp, (4, 4, 16)) },
        "ranks" => MapDef { map_extra: 8, ..plain_map(name, T::PifoGeneric, (4, 4, 16)) },
        _ => return None,
    })
}
