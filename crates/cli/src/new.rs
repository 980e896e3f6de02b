//! `towpath new`: a folder with a program, its compiled object, and tests that pass.
//!
//! The files are those of `template/`. The object is among them, so that the first test passes
//! without a compiler; a test compiles the source again and compares.

use std::fs;
use std::io;
use std::path::Path;

use crate::args::NewArgs;
use crate::error::CliError;
use crate::output::Output;

/// Makes the folder.
pub(crate) fn new(args: &NewArgs, output: &mut Output) -> Result<(), CliError> {
    let name = name_of(&args.path)?;
    // Not `create_dir_all`: an existing folder belongs to the user.
    fs::create_dir(&args.path).map_err(|source| refusal(&args.path, source))?;
    if let Err(error) = fill(&args.path, name) {
        // Towpath made the folder and all of its files, and half of them are of no use.
        let _left = fs::remove_dir_all(&args.path);
        return Err(error);
    }
    tell(&args.path, output)
}

/// Name of the folder, which goes into the page and may go into commands.
fn name_of(path: &Path) -> Result<&str, CliError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) && is_plain && name.len() <= NAME_MAX {
        return Ok(name);
    }
    Err(CliError::Usage(format!(
        "{}: a name begins with a letter and has letters, digits, - and _, {NAME_MAX} at most",
        path.display()
    )))
}

fn refusal(path: &Path, source: io::Error) -> CliError {
    if source.kind() == io::ErrorKind::AlreadyExists {
        let message = "exists already: choose another name".to_owned();
        return CliError::Text { path: path.to_owned(), message };
    }
    CliError::File { path: path.to_owned(), source }
}

fn fill(folder: &Path, name: &str) -> Result<(), CliError> {
    for (file, contents) in FILES {
        let path = folder.join(file);
        write(&path, contents, name).map_err(|source| CliError::File { path, source })?;
    }
    Ok(())
}

fn write(path: &Path, contents: &[u8], name: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match std::str::from_utf8(contents) {
        Ok(text) => fs::write(path, text.replace("{{name}}", name)),
        Err(_binary) => fs::write(path, contents),
    }
}

fn tell(path: &Path, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        let files: Vec<&str> = FILES.iter().map(|(file, _)| *file).collect();
        return output.json(&serde_json::json!({ "created": path, "files": files }));
    }
    let path = shell_word(path);
    output.line(&format!(
        "{path}: a program (filter.c), and cases and a pytest file in tests/\n\n  \
         cd {path}\n  \
         towpath test      # three cases, in the interpreter and as machine code\n  \
         make test         # after a change of filter.c; needs clang and libbpf's headers\n\n\
         README.md in it explains the files"
    ))
}

/// A path, quoted for a shell if necessary.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Files of the folder. The object is last: it must not be older than its sources, as `make` sees
/// it.
const FILES: [(&str, &[u8]); 9] = [
    ("filter.h", include_bytes!("../template/filter.h")),
    ("filter.c", include_bytes!("../template/filter.c")),
    ("Makefile", include_bytes!("../template/Makefile")),
    ("README.md", include_bytes!("../template/README.md")),
    (".gitignore", include_bytes!("../template/gitignore")),
    (".github/workflows/test.yml", include_bytes!("../template/workflow.yml")),
    ("tests/filter.toml", include_bytes!("../template/filter.toml")),
    ("tests/test_filter.py", include_bytes!("../template/test_filter.py")),
    ("filter.o", include_bytes!("../template/filter.o")),
];

/// Longest name, in bytes.
const NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_shells_and_pages_take_are_taken() {
        for good in ["edge", "a", "my-edge_2", "/tmp/x y/edge", "edge/"] {
            assert!(name_of(Path::new(good)).is_ok(), "{good}");
        }
        let long = "a".repeat(NAME_MAX + 1);
        for bad in ["", ".", "..", "/", "2edge", "-x", "a b", "a.b", "é", "a\nb", &long] {
            assert!(name_of(Path::new(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        assert_eq!(shell_word(Path::new("/tmp/edge")), "/tmp/edge");
        assert_eq!(shell_word(Path::new("it's a/edge")), r"'it'\''s a/edge'");
    }
}
