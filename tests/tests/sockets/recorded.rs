//! The recorded texts, and the comparison with them.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::world::{World, kernel_refuses};

/// Does the same in both worlds and compares what was seen with each other and with the record.
#[track_caller]
pub(crate) fn same_in_both(name: &str, action: impl Fn(&World, &mut String) + Send + Sync) {
    let ours = seen(World::towpath, &action);
    match kernel_refuses() {
        Some(why) => eprintln!("skipped: the kernel's sockets: {why}"),
        None => {
            let theirs = seen(World::kernel, &action);
            if std::env::var_os("TOWPATH_BLESS").is_some() {
                record(name, &theirs);
            }
            assert_eq!(ours, theirs, "Towpath on the left, the kernel on the right");
        }
    }
    assert_eq!(ours, read(name), "Towpath on the left, the record on the right");
}

/// On a thread of its own, which may leave its namespace.
fn seen(start: fn() -> World, action: &(impl Fn(&World, &mut String) + Send + Sync)) -> String {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut out = String::new();
            action(&start(), &mut out);
            out
        });
        match thread.join() {
            Ok(out) => out,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets/recorded-6.18.txt")
}

/// Name and text of each section.
fn sections() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    let sections = text.split("== ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

#[track_caller]
fn read(name: &str) -> String {
    let found = sections().into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("{name} was never recorded: TOWPATH_BLESS=1 does")).1
}

fn record(name: &str, text: &str) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let mut sections = sections();
    sections.retain(|(known, _)| known != name);
    sections.push((name.to_owned(), text.to_owned()));
    sections.sort();
    let text: Vec<_> = sections.iter().map(|(name, text)| format!("== {name}\n{text}")).collect();
    std::fs::write(path(), text.concat()).unwrap();
}
