//! Keeps the house style: sizes, columns, leftovers, module docs and the places of unsafe code.
//!
//! This is a test and not a linter's configuration, because it also checks C, Python and shell, and
//! because its messages name the rule, the place and the limit. Rules that clippy and rustfmt
//! enforce are left to them.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn files_are_short_and_narrow() {
    let mut complaints = Vec::new();
    for source in sources(&["rs", "c", "h", "py", "sh"]) {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            complaints
                .push(source.complaint(1, &format!("{lines} lines, at most {FILE_LINES_MAX}")));
        }
        for (number, line) in source.numbered_lines() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !is_unbreakable(line) {
                complaints.push(
                    source.complaint(number, &format!("{columns} columns, at most {COLUMNS_MAX}")),
                );
            }
        }
    }
    assert_none(&complaints);
}

/// Addresses, and strings alone on their line: breaking a message would hide it from a search.
fn is_unbreakable(line: &str) -> bool {
    let code = line.trim_start();
    line.contains("http") || code.starts_with('"') || code.starts_with("echo ")
}

#[test]
fn functions_are_short() {
    let mut complaints = Vec::new();
    for source in sources(&["rs", "c", "h"]) {
        for function in functions(&source) {
            if function.lines > FUNCTION_LINES_MAX {
                let message = format!(
                    "{} has {} lines, at most {FUNCTION_LINES_MAX}",
                    function.name, function.lines
                );
                complaints.push(source.complaint(function.line, &message));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn nothing_is_left_over() {
    let leftovers = [concat!("FIX", "ME"), concat!("XX", "X:"), concat!("todo", "!("), "dbg!("];
    let mut complaints = Vec::new();
    for source in sources(&["rs", "c", "h", "py", "sh", "md", "toml"]) {
        for (number, line) in source.numbered_lines() {
            for leftover in leftovers {
                if line.contains(leftover) && !source.is(file!()) {
                    complaints.push(source.complaint(number, &format!("{leftover} is left over")));
                }
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn objects_do_not_say_where_they_were_compiled() {
    let is_of_a_machine = |text: &&str| {
        text.starts_with('/')
            && text.matches('/').count() > 1
            && text.len() >= PATH_BYTES_MIN
            && !text.starts_with("/usr/include")
    };
    let mut complaints = Vec::new();
    for source in sources(&["o"]) {
        let texts = source.text.split(|it: char| !it.is_ascii_graphic());
        for path in texts.filter(is_of_a_machine) {
            let message = format!("{path} is in it, see -fdebug-compilation-dir");
            complaints.push(source.complaint(1, &message));
        }
    }
    assert_none(&complaints);
}

#[test]
fn modules_say_what_they_are() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]) {
        if source.name() != "tests.rs" && !source.text.starts_with("//! ") {
            complaints.push(source.complaint(1, "the first line is not a module doc (//! ...)"));
        }
    }
    for source in sources(&["c", "h"]).iter().filter(|source| source.is_under("programs")) {
        if !source.text.starts_with("// SPDX-License-Identifier: ") {
            complaints.push(source.complaint(1, "the first line is not an SPDX licence header"));
        }
    }
    assert_none(&complaints);
}

#[test]
fn unsafe_code_is_where_its_name_says() {
    let mut complaints = Vec::new();
    for source in sources(&["rs"]) {
        if source.name().ends_with("_unsafe.rs") || source.is(file!()) {
            continue;
        }
        for (number, line) in source.numbered_lines() {
            let code = line.split("//").next().unwrap_or(line);
            if UNSAFE_FORMS.iter().any(|form| code.contains(form)) {
                complaints.push(source.complaint(number, "unsafe code belongs in a *_unsafe.rs"));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn crates_without_unsafe_files_forbid_it() {
    let all = sources(&["rs"]);
    let mut complaints = Vec::new();
    for root in all.iter().filter(|source| source.name() == "lib.rs" || source.name() == "main.rs")
    {
        let folder = root.path.parent().expect("a file has a folder");
        let owns_unsafe = all
            .iter()
            .any(|source| source.path.starts_with(folder) && source.name().ends_with("_unsafe.rs"));
        if !owns_unsafe && !root.text.contains("#![forbid(unsafe_code)]") {
            complaints.push(root.complaint(1, "#![forbid(unsafe_code)] is missing"));
        }
    }
    assert_none(&complaints);
}

/// A file of the repository, by its path from the top.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn is(&self, path: &str) -> bool {
        Path::new(path).ends_with(self.name()) && path.ends_with("tidy.rs")
    }

    fn is_under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn complaint(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path.display())
    }
}

/// All files with one of the extensions, in a fixed order.
fn sources(extensions: &[&str]) -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace");
    let mut found = Vec::new();
    collect(top, top, extensions, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no files below {}", top.display());
    found
}

fn collect(top: &Path, folder: &Path, extensions: &[&str], found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository is readable");
    for entry in entries {
        let path = entry.expect("its entries are readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !SKIPPED_FOLDERS.contains(&name) {
                collect(top, &path, extensions, found);
            }
        } else if extensions.contains(&path.extension().and_then(|e| e.to_str()).unwrap_or("")) {
            let bytes = fs::read(&path).expect("a file of the repository is readable");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let path = path.strip_prefix(top).expect("below the top").to_owned();
            found.push(Source { path, text });
        }
    }
}

/// A function's first line, and how many lines it has from there to its closing brace.
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Found by layout, which rustfmt and the C style guarantee: the closing brace stands in the column
/// where the function's first line begins.
fn functions(source: &Source) -> Vec<Function> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((name, first)) = function_at(source, &lines, index) else { continue };
        let indent = line.len() - line.trim_start().len();
        let end = lines[index..].iter().position(|line| {
            line.len() - line.trim_start().len() == indent && line.trim_start().starts_with('}')
        });
        // A head over several lines may be all there is: a trait's function without a body.
        let is_head_alone = lines[index..].iter().find(|line| line.ends_with(['{', ';']));
        if let Some(end) = end.filter(|_| is_head_alone.is_none_or(|line| !line.ends_with(';'))) {
            found.push(Function { name, line: first + 1, lines: index + end + 1 - first });
        }
    }
    found
}

/// The name and first line of the function whose head or brace is at `index`.
fn function_at(source: &Source, lines: &[&str], index: usize) -> Option<(String, usize)> {
    let line = lines[index];
    if source.path.extension().is_some_and(|extension| extension == "rs") {
        let (before, after) = line.split_once("fn ")?;
        let is_head = before.split_whitespace().all(|word| {
            word.starts_with("pub")
                || ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
        });
        let name = after.split(['(', '<']).next()?;
        return (is_head && !line.trim_end().ends_with(';')).then(|| (name.to_owned(), index));
    }
    if line != "{" {
        return None;
    }
    let head =
        (0..index).rev().find(|&at| !lines[at].starts_with(' ') && lines[at].contains('('))?;
    let name = lines[head].split('(').next()?.split([' ', '*']).next_back()?;
    Some((name.to_owned(), head))
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;
/// Shorter texts may be code.
const PATH_BYTES_MIN: usize = 8;

/// Not ours to tidy: what is built, what fuzzers found, and recordings kept as they were made.
const SKIPPED_FOLDERS: [&str; 7] =
    [".git", "target", "build", "corpus", "crashes", "__fuzz__", "kernel-oracle"];

const UNSAFE_FORMS: [&str; 4] = ["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe extern "];
