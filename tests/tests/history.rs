//! Holes that the kernel's verifier once had, each with programs that show it: refused here, and by
//! the running kernel. `docs/verifier-history.md` lists them, `tests/data/history/answers.out` has
//! the reasons; `TOWPATH_BLESS=1` writes both.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::object::{Env, Object};
use towpath_kernel::Kernel;
use towpath_tests::execution::{Pair, fill_slots};
use towpath_tests::history::{self, Program, Theme};
use towpath_tests::packets::packets;
use towpath_tests::sources::{call_objects, repository};
use towpath_tests::verdict;
use towpath_tests::ways::Way;
use towpath_xdp::Exec;

const TABLES: &str = "tests/data/history";

/// Every program of every table.
fn programs(themes: &[Theme]) -> impl Iterator<Item = (String, &Program)> {
    themes.iter().flat_map(|theme| {
        theme.entries.iter().flat_map(move |entry| {
            let place = move |program: &Program| {
                format!("{}: {}: {}", theme.name, entry.subject, program.name)
            };
            entry.programs.iter().map(move |program| (place(program), program))
        })
    })
}

#[test]
fn holes_of_the_past_are_closed_here() {
    let themes = history::read(TABLES).expect("tables");
    let btf = Arc::new(Btf::default());
    let mut wrong = Vec::new();
    for (place, program) in programs(&themes) {
        let linked = program.linked(&btf).unwrap_or_else(|error| panic!("{place}: {error}"));
        let verdict = verdict::ours(&linked);
        if verdict.is_accepted() != program.accept {
            wrong.push(format!("{place}: accepted {}: {}", !program.accept, verdict.reason()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_running_kernel_says_the_same() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let themes = history::read(TABLES).expect("tables");
    let mut wrong = Vec::new();
    for (place, program) in programs(&themes) {
        let linked = program.linked(kernel.btf()).expect("a program");
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let verdict = verdict::kernel(&kernel, &linked, &maps, true);
        if verdict.is_accepted() != program.kernel_accepts {
            let accepted = verdict.is_accepted();
            wrong.push(format!("{place}: kernel accepted {accepted}: {}", verdict.reason()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs in C, which `calls.rs` has judged here.
#[test]
fn the_running_kernel_says_the_same_of_those_with_types() {
    let (kernel, folder) = match (Kernel::open(), call_objects()) {
        (Ok(kernel), Ok(folder)) => (kernel, folder),
        (Err(why), _) => return eprintln!("skipped: {why}"),
        (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let bytes = std::fs::read(folder.join("history.o")).expect("an object just compiled");
    let object = Object::open(&bytes, "history.o").expect("an object of clang");
    let env = Env::new(kernel.btf().clone());
    let mut wrong = Vec::new();
    for (index, program) in object.programs().iter().enumerate() {
        let linked = object.link(index, &env).expect("all that it names exists");
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let verdict = verdict::kernel(&kernel, &linked, &maps, true);
        if verdict.is_accepted() != program.name.starts_with("ok_") {
            wrong.push(format!("{}: {}", program.name, verdict.reason()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: usize =
        history::typed().expect("programs in C").iter().map(|(_, programs)| programs.len()).sum();
    assert_eq!(listed, object.programs().len(), "each has a commit above it");
}

/// Programs that both accept run alike on both, with every executor; their tail calls lead to the
/// program itself.
#[test]
fn what_is_accepted_runs_as_in_the_kernel() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let packets = packets(7, 12, true);
    let themes = history::read(TABLES).expect("tables");
    let mut wrong = Vec::new();
    for (place, program) in programs(&themes).filter(|(_, program)| program.accept) {
        let linked = program.linked(kernel.btf()).expect("a program");
        for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
            // New ones for each: maps keep what a run leaves in them.
            let maps = kernel.load_maps(&linked.maps).expect("maps");
            let loaded = verdict::kernel(&kernel, &linked, &maps, false);
            let Some(loaded) = loaded.program() else { continue };
            maps.set_program(loaded).expect("a slot of the program array");
            let ours = towpath_xdp::Program::from_linked(linked.clone(), &Way::of(exec).options());
            let ours = ours.unwrap_or_else(|error| panic!("{place}: {error}"));
            fill_slots(&ours);
            let mut pair = Pair::of(ours, &linked, loaded, &maps);
            if let Some(mismatch) = pair.compare(&packets) {
                wrong.push(format!("{place}: {exec:?}: {mismatch:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn page_and_answers_are_those_of_the_tables() {
    let themes = history::read(TABLES).expect("tables");
    let page = history::page(&themes, &history::typed().expect("programs in C"));
    for (path, text) in [
        ("docs/verifier-history.md", page),
        ("tests/data/history/answers.out", history::answers(&themes)),
    ] {
        let file = repository().join(path);
        if std::env::var_os("TOWPATH_BLESS").is_some() {
            std::fs::write(&file, &text).expect("the file can be written");
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            found, text,
            "{path}: TOWPATH_BLESS=1 cargo test -p towpath-tests --test history"
        );
    }
}
