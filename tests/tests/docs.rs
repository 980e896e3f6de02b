//! Everything that the documentation names exists: files, folders, links, and items of the code.
//!
//! The tests check words in backticks outside of code blocks, in `docs/`, `README.md` and
//! `CONTRIBUTING.md`. A path that begins with a folder of the repository must exist, a file's name
//! with its ending must be that of some file, and of `Type::item` both must be defined somewhere.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

#[test]
fn what_the_docs_name_is_there() {
    let repository = Repository::read();
    let mut complaints = Vec::new();
    let mut looked_at = 0;
    for page in repository.pages() {
        let text = fs::read_to_string(top().join(page)).expect("pages are UTF-8");
        for (line, words) in text_lines(&text) {
            let mut complain = |what: &str| {
                complaints.push(format!("{}:{line}: no {what}", page.display()));
            };
            for named in between(words, '`') {
                looked_at += 1;
                repository.missing(named).iter().for_each(|what| complain(what));
            }
            for target in links(words) {
                looked_at += 1;
                if !repository.has(&beside(page, target)) {
                    complain(target);
                }
            }
        }
    }
    assert!(looked_at > 1000, "only {looked_at} names and links were found");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn rules_are_in_the_files_that_the_table_names() {
    let page = fs::read_to_string(top().join("docs/architecture.md")).expect("it is UTF-8");
    let mut looked_at = 0;
    for (line, row) in text_lines(section(&page, "To change a rule, see")) {
        let mut file = String::new();
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        for named in between(last, '`') {
            if named.contains('/') {
                file = fs::read_to_string(top().join(named)).expect("a file with rules");
                continue;
            }
            let name = named.rsplit("::").next().unwrap_or(named);
            let is_there = file.lines().any(|code| defined_by_keyword(code).any(|it| it == name));
            assert!(is_there, "line {line} of the table: the file doesn't define {named}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 100, "only {looked_at} names were found");
}

#[test]
fn the_page_of_figures_is_what_the_result_files_say() {
    let script = top().join("scripts/performance.py");
    let checked = Command::new("python3").arg(script).arg("--check").output();
    let checked = checked.expect("python3 is there");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn what_is_missing_is_found() {
    let repository = Repository::read();
    for good in [
        "crates/xdp/src/frame/mod.rs",
        "crates/xdp/",
        "frame/mod.rs",
        "Frame::new",
        "towpath load p0",
        "std::fs::no_such_thing",
        "and/or",
        "crates/ports/src/KIND/rx.rs",
    ] {
        assert_eq!(repository.missing(good), [""; 0], "{good}");
    }
    for bad in ["crates/xdp/src/frame/lost.rs", "no_such_file.rs", "Frame::no_such_thing"] {
        assert_eq!(repository.missing(bad).len(), 1, "{bad}");
    }
    assert_eq!(links("see [a](b.md#c), [d](https://e) and [f](g/h)"), ["b.md", "g/h"]);
    assert_eq!(beside(Path::new("docs/adr/x.md"), "../y.md"), Path::new("docs/y.md"));
}

/// Files of the repository, and what is defined in its sources.
struct Repository {
    files: Vec<PathBuf>,
    folders: HashSet<PathBuf>,
    names: HashSet<String>,
}

impl Repository {
    fn read() -> Repository {
        let mut repository =
            Repository { files: Vec::new(), folders: HashSet::new(), names: HashSet::new() };
        repository.collect(&top());
        repository
    }

    fn collect(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).expect("a folder of the repository is readable") {
            let path = entry.expect("its entries are readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if SKIPPED_FOLDERS.contains(&name) {
                continue;
            }
            let below = path.strip_prefix(top()).expect("below the top").to_owned();
            if path.is_dir() {
                self.folders.insert(below);
                self.collect(&path);
                continue;
            }
            if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                self.names.extend(text.lines().flat_map(defined).map(str::to_owned));
            }
            self.files.push(below);
        }
    }

    fn pages(&self) -> impl Iterator<Item = &PathBuf> {
        let is_page = |file: &&PathBuf| {
            let alone = ["README.md", "CONTRIBUTING.md"].map(Path::new);
            let is_markdown = file.extension().is_some_and(|extension| extension == "md");
            is_markdown && (file.starts_with("docs") || alone.contains(&file.as_path()))
        };
        self.files.iter().filter(is_page)
    }

    fn has(&self, path: &Path) -> bool {
        self.folders.contains(path) || self.files.iter().any(|file| file == path)
    }

    /// The missing things that a text in backticks names.
    fn missing<'a>(&self, named: &'a str) -> Vec<&'a str> {
        let first = named.split_whitespace().next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if !first.is_empty() && first.chars().all(is_plain) {
            return if self.names_a_file(first) { Vec::new() } else { vec![first] };
        }
        let path = named.split(['(', '<', '!']).next().unwrap_or_default();
        let parts: Vec<&str> = path.trim_start_matches('&').split("::").collect();
        let is_name = |part: &&str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if parts.len() < 2 || !parts.iter().all(is_name) || FOREIGN.contains(&parts[0]) {
            return Vec::new();
        }
        let is_known = |part: &&str| part.starts_with("towpath_") || self.names.contains(*part);
        parts.into_iter().filter(|part| !is_known(part)).collect()
    }

    /// Whether a word is no path, or the path of something.
    fn names_a_file(&self, word: &str) -> bool {
        let is_open = |part: &&str| PLACEHOLDERS.iter().any(|name| part.starts_with(name));
        let parts: Vec<&str> = word.trim_end_matches('/').split('/').collect();
        let known = parts.iter().position(is_open).unwrap_or(parts.len());
        let path = &*parts[..known].iter().collect::<PathBuf>();
        let start = path.components().next();
        let is_below = start.is_some_and(|start| {
            word.contains('/') && self.folders.contains(Path::new(start.as_os_str()))
        });
        if is_below {
            return self.has(path);
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        !extension.is_some_and(|extension| ["rs", "md", "py", "sh"].contains(&extension))
            || self.files.iter().any(|file| file.ends_with(path))
    }
}

/// Lines outside of code blocks, numbered from 1.
fn text_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The texts between pairs of a character.
fn between(line: &str, mark: char) -> impl Iterator<Item = &str> {
    let count = line.matches(mark).count() / 2;
    line.split(mark).skip(1).step_by(2).take(count)
}

/// Files that a line links to.
fn links(line: &str) -> Vec<&str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .collect()
}

/// The path that a link on a page leads to.
fn beside(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

/// Names that a line of code may define: what follows a keyword, fields, variants, entries of
/// tables.
fn defined(line: &str) -> Vec<&str> {
    let first = words(line).find(|word| !word.is_empty() && !VISIBILITIES.contains(word));
    let first = first.filter(|_| !line.trim_start().starts_with("//"));
    defined_by_keyword(line).chain(first).collect()
}

/// Names that follow a keyword in a line of code.
fn defined_by_keyword(line: &str) -> impl Iterator<Item = &str> {
    let pairs = words(line).zip(words(line).skip(1));
    pairs.filter(|(keyword, _)| KEYWORDS.contains(keyword)).map(|(_, name)| name)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The text between a heading of a page and the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).expect("a heading");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

fn top() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ lies in the workspace").to_owned()
}

const KEYWORDS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "union"];
const VISIBILITIES: [&str; 4] = ["pub", "crate", "super", "in"];
/// Words that stand for any name.
const PLACEHOLDERS: [&str; 2] = ["KIND", "NAME"];
/// Crates whose items are not ours.
const FOREIGN: [&str; 4] = ["std", "core", "libc", "rustix"];
const SKIPPED_FOLDERS: [&str; 4] = [".git", "target", "build", "node_modules"];
