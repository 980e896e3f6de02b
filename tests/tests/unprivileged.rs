//! Programs that guests may load: the kernel's rules for loaders without `CAP_PERFMON`.
//!
//! `tests/data/unprivileged` has programs with the verdict of Linux 6.18 for such a loader.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::verifier::{self, Options};
use towpath_kernel::{Kernel, LoadOptions};
use towpath_tests::history::{self, Program, Theme};

const TABLES: &str = "tests/data/unprivileged";

#[test]
fn what_guests_may_not_load_is_refused() {
    let themes = history::read(TABLES).expect("tables");
    let btf = Arc::new(Btf::default());
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for (place, program) in programs(&themes) {
        let linked = program.linked(&btf).unwrap_or_else(|error| panic!("{place}: {error}"));
        let verdict = verifier::verify(linked, &Options::unprivileged());
        if verdict.is_ok() != program.accept {
            let why = verdict.err().map(|rejection| rejection.message);
            wrong.push(format!("{place}: {why:?}"));
        }
        judged += 1;
    }
    assert!(judged >= 60, "only {judged} programs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_running_kernel_says_the_same_without_cap_perfmon() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let themes = history::read(TABLES).expect("tables");
    let mut options = LoadOptions::default();
    options.without_perfmon = true;
    let mut wrong = Vec::new();
    for (place, program) in programs(&themes) {
        let linked = program.linked(kernel.btf()).unwrap_or_else(|e| panic!("{place}: {e}"));
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let verdict = kernel.load_with(&linked, &maps, &options);
        if verdict.is_ok() != program.kernel_accepts {
            let why = verdict.err().map(|error| error.log().to_owned());
            wrong.push(format!("{place}: kernel: {why:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

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
