//! `docs/verifier-history.md`: the tables, and what each program is refused for.

use std::fmt::Write as _;
use std::sync::Arc;

use towpath_bpf::btf::Btf;

use super::{Program, Theme};
use crate::verdict;

/// The page that lists all tables.
pub fn page(themes: &[Theme], typed: &[(String, Vec<String>)]) -> String {
    let btf = Arc::new(Btf::default());
    let mut text = HEAD.to_owned();
    for theme in themes {
        let _ = write!(text, "\n## {}\n\n", theme.title);
        for entry in &theme.entries {
            let _ = writeln!(text, "- {}", entry.subject);
            for program in &entry.programs {
                let _ = writeln!(text, "  - {}: {}", program.name, answer(program, &btf));
            }
        }
    }
    text.push_str("\n## Types, locks, objects, exceptions\n\n");
    text.push_str("In C, in `tests/data/calls/history.c`.\n\n");
    for (subject, programs) in typed {
        let _ = writeln!(text, "- {subject}");
        for program in programs {
            let answer = if program.starts_with("ok_") { "accepted" } else { "refused" };
            let _ = writeln!(text, "  - `{program}`: {answer}");
        }
    }
    text
}

fn answer(program: &Program, btf: &Arc<Btf>) -> String {
    let reason = match program.linked(btf) {
        Ok(linked) => verdict::ours(&linked).reason().to_owned(),
        Err(error) => error,
    };
    match (program.accept, program.kernel_accepts) {
        (true, true) => "accepted".to_owned(),
        (true, false) => "accepted here, refused by 6.18".to_owned(),
        (false, true) => format!("`{reason}`; accepted by 6.18"),
        (false, false) => format!("`{reason}`"),
    }
}

const HEAD: &str = "\
# Holes that verifiers had

The kernel's verifier was wrong now and then: it accepted programs that are not safe. Each commit
that closed such a hole is here with small programs for it, and with what they are refused for;
beside them programs that are alike and safe. They are in `tests/data/history`, and
`cargo test -p towpath-tests --test history` asks both verifiers, ours and that of the running
kernel. This page is made of them (`TOWPATH_BLESS=1`).
";
