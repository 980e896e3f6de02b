//! The same command scripts for our `bpf(cmd, attr)` and for the running kernel's.
//!
//! A script in `tests/scripts/` is a list of commands, each followed by its outcome (`= ...`):
//!
//! ```text
//! map_create map_type=array key_size=4 value_size=8 max_entries=2 -> m
//! = fd
//! map_update_elem map_fd=m key=@00000000 value=@0102030405060708
//! = ok
//! map_lookup_elem map_fd=m key=@00000000 value=?8
//! = ok value=0102030405060708
//! ```
//!
//! The outcomes are the kernel's: `BLESS=1 cargo test -p towpath-objects --test script` writes them
//! again. Without it both sides must answer as the script says; where `bpf(2)` can't be used, our
//! side alone. `values.rs` describes how values are written; descriptors and ids are named, not
//! compared.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod asm;
mod fields;
mod kernel;
mod netlink;
mod ours;
mod rights;
mod script;
mod show;
mod side;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use script::Script;
use side::Side;

#[test]
fn maps() {
    compare("maps.txt");
}

#[test]
fn map_definitions() {
    compare("map_definitions.txt");
}

#[test]
fn pins() {
    compare("pins.txt");
}

#[test]
fn btf() {
    compare("btf.txt");
}

#[test]
fn programs() {
    compare("programs.txt");
}

#[test]
fn links() {
    let _alone = lock(&LOOPBACK);
    compare("links.txt");
}

#[test]
fn batches() {
    compare("batches.txt");
}

#[test]
fn test_runs() {
    compare("test_runs.txt");
}

#[test]
fn syscalls() {
    compare("syscalls.txt");
}

#[test]
fn live_frames() {
    compare("live_frames.txt");
}

#[test]
fn streams() {
    compare("streams.txt");
    check_ours("printed.txt");
}

#[test]
fn devices() {
    let _alone = lock(&LOOPBACK);
    compare("devices.txt");
}

/// The kernel's loopback device, which has room for one script's programs.
static LOOPBACK: Mutex<()> = Mutex::new(());

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock()
}

/// Runs one script on both sides.
fn compare(name: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/scripts", name].iter().collect();
    let text = fs::read_to_string(&path).expect("the script is part of the repository");
    let script = Script::parse(&text).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    match kernel::Kernel::open() {
        Ok(mut kernel) if std::env::var_os("BLESS").is_some() => {
            let outcomes = script.run(&mut kernel);
            fs::write(&path, script.with_outcomes(&outcomes)).expect("the script can be written");
        }
        Ok(mut kernel) => check(&path, &script, &mut kernel, "the kernel"),
        Err(why) => println!("skipped: the kernel's side of {name}: {why}"),
    }
    check_ours(name);
}

/// Runs one script on our side.
fn check_ours(name: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/scripts", name].iter().collect();
    let text = fs::read_to_string(&path).expect("the script is part of the repository");
    let script = Script::parse(&text).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    check(&path, &script, &mut ours::Ours::new(), "our core");
}

fn check(path: &Path, script: &Script, side: &mut dyn Side, who: &str) {
    let outcomes = script.run(side);
    let mut wrong = String::new();
    for (line, outcome) in script.lines.iter().zip(outcomes) {
        if line.expected != outcome {
            wrong += &format!(
                "{}:{}: {}\n  expected {}\n  got      {outcome}\n",
                path.display(),
                line.number,
                line.text,
                line.expected,
            );
        }
    }
    assert!(wrong.is_empty(), "{who} answers differently:\n{wrong}");
}
