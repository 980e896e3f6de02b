//! Holes that the kernel's verifier once had, each with programs that show it: refused here, and by
//! the running kernel. `docs/verifier-history.md` lists them; `TOWPATH_BLESS=1` writes it anew.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_kernel::Kernel;
use towpath_tests::history::{self, Program, Theme};
use towpath_tests::sources::repository;
use towpath_tests::verdict;

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
    let themes = history::read().expect("tables");
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
    let themes = history::read().expect("tables");
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

#[test]
fn the_page_lists_what_the_tables_have() {
    let themes = history::read().expect("tables");
    let path = repository().join("docs/verifier-history.md");
    let page = history::page(&themes);
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        return std::fs::write(&path, page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "TOWPATH_BLESS=1 cargo test -p towpath-tests --test history");
}
