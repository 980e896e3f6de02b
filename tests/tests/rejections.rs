//! Refusals of programs, word for word: message, instruction, known registers, hint.
//!
//! `tests/data/rejections/*.golden` have the texts: of the mistakes of every day in
//! `everyday.txt` beside them, of dequeue programs and of programs that users call in the folders
//! below, and of the refused programs of `tests/data/history`.
//! `TOWPATH_BLESS=1 cargo test -p towpath-tests --test rejections` rewrites them; read the
//! difference.

use std::fmt::Write as _;
use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::program::{AttachType, Linked};
use towpath_bpf::verifier::{self, Options};
use towpath_kernel::Kernel;
use towpath_tests::history::{self, Theme};
use towpath_tests::sources::repository;
use towpath_tests::verdict;

#[test]
fn rejections_read_as_before() {
    let mut themes = history::read("tests/data/rejections").expect("tables");
    themes.extend(history::read("tests/data/history").expect("tables"));
    let (mut count, mut stale) = (0, Vec::new());
    // Dequeue programs, which no kernel has.
    let dequeue = history::read("tests/data/rejections/dequeue").expect("tables");
    let called = history::read("tests/data/rejections/syscalls").expect("tables");
    let of = |attach: AttachType| move |theme: Theme| (theme, attach);
    let others = dequeue.into_iter().map(of(AttachType::Dequeue));
    let others = others.chain(called.into_iter().map(of(AttachType::Syscall)));
    for (theme, attach) in themes.into_iter().map(of(AttachType::Xdp)).chain(others) {
        let (text, rejections) = page(&theme, attach);
        count += rejections;
        let path = repository().join(format!("tests/data/rejections/{}.golden", theme.name));
        if std::env::var_os("TOWPATH_BLESS").is_some() {
            std::fs::write(&path, text).expect("the file can be written");
        } else if std::fs::read_to_string(&path).unwrap_or_default() != text {
            stale.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(count >= 60, "only {count} rejections");
    assert!(stale.is_empty(), "other texts now (TOWPATH_BLESS=1):\n{}", stale.join("\n"));
}

/// The texts of a table, and how many they are.
fn page(theme: &Theme, attach: AttachType) -> (String, usize) {
    let btf = Arc::new(Btf::default());
    let (mut text, mut count) = (format!("# {}\n", theme.title), 0);
    for entry in &theme.entries {
        let refused = entry.programs.iter().filter(|program| !program.accept);
        for (index, program) in refused.enumerate() {
            if index == 0 {
                writeln!(text, "\n== {}", entry.subject).expect("a string takes all");
            }
            let linked = program.linked(&btf).unwrap_or_else(|error| panic!("{error}"));
            let linked = Linked { attach, ..linked };
            let Err(rejection) = verifier::verify(linked, &Options::default()) else {
                panic!("accepted: {}: {}", entry.subject, program.name);
            };
            writeln!(text, "\nrefused {}\n{rejection}", program.name).expect("a string takes all");
            count += 1;
        }
    }
    (text, count)
}

/// The most frequent mistakes, and words of the hint that name them.
const CAUSES: [(&str, &str); 18] = [
    ("nothing was compared with data_end", "compare (pointer + bytes) with data_end before"),
    ("less was compared than is read", "only 14 bytes from data on were compared"),
    ("an offset from the packet without a limit", "the offset may be up to 65535"),
    ("a length from the packet behind a header", "beyond 65,535"),
    ("a bounded offset, and another pointer compared", "is a pointer of its own"),
    ("a loop over the packet without a limit", "in a loop bound the sum"),
    ("options of TCP by their lengths", "in a loop bound the sum"),
    ("in front of the packet", "in front of the pointer"),
    ("a pointer from before the head was moved", "bpf_xdp_adjust_head() at instruction"),
    ("data_end is no place to read", "read through a pointer that begins at data"),
    ("arithmetic on data_end", "add to the other side"),
    ("two pointers are added", "a pointer is moved by a number"),
    ("a key that is half above the stack", "the variable is smaller than the map's key"),
    ("large variables of two functions", "+ "),
    ("below the stack", "keep the object smaller"),
    ("a value that may not be there", "compare it with NULL first"),
    ("behind a value", "the value has 48 bytes"),
    ("an index that may be negative", "bound the number on both sides"),
];

#[test]
fn hints_name_the_cause_and_messages_are_the_kernels() {
    let kernel = Kernel::open();
    if let Err(why) = &kernel {
        eprintln!("messages not compared: {why}");
    }
    let themes = history::read("tests/data/rejections").expect("tables");
    let programs: Vec<_> =
        themes.iter().flat_map(|it| &it.entries).flat_map(|it| &it.programs).collect();
    let mut wrong = Vec::new();
    for (name, words) in CAUSES {
        let program = programs.iter().find(|program| program.name == name).expect(name);
        let linked = program.linked(&Arc::default()).expect("a program");
        let rejection = verifier::verify(linked, &Options::default()).expect_err(name);
        if !rejection.hint.contains(words) {
            wrong.push(format!("{name}: `{}` without `{words}`", rejection.hint));
        }
        let Ok(kernel) = &kernel else { continue };
        let linked = program.linked(kernel.btf()).expect("a program");
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let theirs = kernel.load(&linked, &maps).expect_err(name);
        let message = rejection.message.as_str();
        if !theirs.log().lines().any(|line| line.starts_with(message)) {
            wrong.push(format!("{name}: `{}`, 6.18:\n{}", rejection.message, theirs.log()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_running_kernel_refuses_them_too() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let themes = history::read("tests/data/rejections").expect("tables");
    let called = history::read("tests/data/rejections/syscalls").expect("tables");
    let all = themes.iter().map(|theme| (theme, AttachType::Xdp));
    let all = all.chain(called.iter().map(|theme| (theme, AttachType::Syscall)));
    let programs = all.flat_map(|(theme, attach)| {
        let programs = theme.entries.iter().flat_map(|it| &it.programs);
        programs.map(move |program| (program, attach))
    });
    let mut accepted = Vec::new();
    for (program, attach) in programs {
        let linked = Linked { attach, ..program.linked(kernel.btf()).expect("a program") };
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        if verdict::kernel(&kernel, &linked, &maps, true).is_accepted() {
            accepted.push(&program.name);
        }
    }
    assert!(accepted.is_empty(), "{accepted:?}");
}
