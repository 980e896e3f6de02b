//! Memory that others write is copied in and out: what would take a slice of it does not compile.
//!
//! Each file in `compile` is one consumer of frames that may lie in an application's memory, with
//! the mistake in a line that ends in `//~` and how the compiler's message begins; `right.rs` does
//! the same things in the ways that there are. They are compiled against the library that this test
//! is linked with. `trybuild` would build that, and all it depends on, a second time.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn no_consumer_takes_a_slice_of_lent_memory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the consumers are there")
        .map(|entry| entry.expect("they can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        assert_eq!(errors(&file), expected(&file), "{}", file.display());
    }
}

/// A line, and how the message about it begins.
type Message = (usize, String);

fn expected(file: &Path) -> Vec<Message> {
    let text = std::fs::read_to_string(file).expect("it can be read");
    let marked = (1..).zip(text.lines()).filter_map(|(line, text)| {
        let (_, message) = text.split_once("//~ ")?;
        Some((line, message.to_owned()))
    });
    marked.collect()
}

/// What the compiler says of a file; of each message the words that [`expected`] has.
fn errors(file: &Path) -> Vec<Message> {
    let dependencies = dependencies();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--error-format=short"])
        .arg("--extern")
        .arg(format!("towpath_xdp={}", library(&dependencies).display()))
        .arg("-L")
        .arg(format!("dependency={}", dependencies.display()))
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg(file)
        .output()
        .expect("there is a compiler");
    let text = String::from_utf8(output.stderr).expect("messages are text");
    let wanted = expected(file);
    let messages = text.lines().filter_map(|line| {
        let (place, message) = line.split_once(": error")?;
        let number = place.rsplit(':').nth(1)?.parse().ok()?;
        let known = wanted.iter().find(|(at, known)| *at == number && message.starts_with(known));
        Some(known.cloned().unwrap_or_else(|| (number, message.to_owned())))
    });
    let messages: Vec<Message> = messages.collect();
    assert_eq!(output.status.success(), messages.is_empty(), "{text}");
    messages
}

/// Where this test and all that it is linked with lie.
fn dependencies() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("it is in a folder").to_owned()
}

/// The library, as it was built last.
fn library(dependencies: &Path) -> PathBuf {
    let files = std::fs::read_dir(dependencies).expect("the folder is there");
    let built = files.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libtowpath_xdp-") && name.ends_with(".rlib")
    });
    let time = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    built.max_by_key(time).expect("the library was built")
}
