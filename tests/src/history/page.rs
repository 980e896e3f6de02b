//! `docs/verifier-history.md`, a table of commits and of their programs, and the answer to each
//! program, `tests/data/history/answers.out`.

use std::fmt::Write as _;
use std::sync::Arc;

use towpath_bpf::btf::Btf;

use super::{Program, Theme};
use crate::verdict;

/// The page: each commit with the number of its programs, and programs judged unlike the kernel.
pub fn page(themes: &[Theme], typed: &[(String, Vec<String>)]) -> String {
    let mut text = HEAD.to_owned();
    for theme in themes {
        let _ = write!(text, "\n## {}\n\n{COLUMNS}", theme.title);
        for entry in &theme.entries {
            row(&mut text, &entry.subject, entry.programs.iter().map(|program| program.accept));
        }
    }
    let _ = write!(text, "\n## Types, locks, objects, exceptions\n\n{COLUMNS}");
    for (subject, programs) in typed {
        row(&mut text, subject, programs.iter().map(|program| program.starts_with("ok_")));
    }
    let _ = write!(text, "\n## Differences from 6.18\n\n{DIFFERENCES}");
    let btf = Arc::new(Btf::default());
    for entry in themes.iter().flat_map(|theme| &theme.entries) {
        for program in entry.programs.iter().filter(|it| it.accept != it.kernel_accepts) {
            let answer = answer(program, &btf);
            let _ = writeln!(text, "| {} | {} | `{answer}` |", entry.subject, program.name);
        }
    }
    text
}

/// The verifier's answer to each program, below the subject of its commit.
pub fn answers(themes: &[Theme]) -> String {
    let btf = Arc::new(Btf::default());
    let mut text = String::new();
    for entry in themes.iter().flat_map(|theme| &theme.entries) {
        let _ = writeln!(text, "== {}", entry.subject);
        for program in &entry.programs {
            let _ = writeln!(text, "{}: {}", program.name, answer(program, &btf));
        }
    }
    text
}

fn row(text: &mut String, subject: &str, accepted: impl Iterator<Item = bool>) {
    let (accepted, refused): (Vec<bool>, Vec<bool>) = accepted.partition(|&it| it);
    let subject = subject.replace('|', "\\|");
    let _ = writeln!(text, "| {subject} | {} | {} |", refused.len(), accepted.len());
}

fn answer(program: &Program, btf: &Arc<Btf>) -> String {
    if program.accept {
        return "accepted".to_owned();
    }
    match program.linked(btf) {
        Ok(linked) => verdict::ours(&linked).reason().to_owned(),
        Err(error) => error,
    }
}

const HEAD: &str = "\
# Holes in verifiers

The kernel's verifier has accepted unsafe programs at times. This page lists the kernel commits
that closed these holes or introduced a rule against one. For each commit, `tests/data/history` has
small programs: unsafe ones, which must be refused, and similar safe ones, which must be accepted;
the tables have their numbers. Programs that need BTF types are in C, in
`tests/data/calls/history.c`.

`cargo test -p towpath-tests --test history` verifies the programs with Towpath and, run as root,
with the running kernel, and runs accepted programs in both. `tests/data/history/answers.out` has
the reason for each refusal.
`TOWPATH_BLESS=1` writes that file and this page. [verifier.md](verifier.md) describes the verifier.
";

const COLUMNS: &str = "| commit | refused | accepted |\n| --- | ---: | ---: |\n";

const DIFFERENCES: &str = "\
Linux 6.18 accepts these programs, and Towpath refuses them:

| commit | program | Towpath's answer |
| --- | --- | --- |
";
