//! Files that can't be read.

use std::io;
use std::path::Path;

use towpath_bpf::suggest;

/// The reason why a file can't be read, with its name, and a suggestion if another file has a
/// similar name.
pub fn unreadable(path: &Path, error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => neighbour(path),
        _ => None,
    };
    format!("{}: {text}{}", path.display(), hint.unwrap_or_default())
}

fn neighbour(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = folder.read_dir() else {
        return Some(format!(": there is no folder {}", folder.display()));
    };
    let names: Vec<String> = entries
        .take(NAMES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let near = suggest::near(path.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(format!("; did you mean \"{near}\"?"))
}

/// Most names that are compared.
const NAMES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let told = |name: &str| {
            let path = here.join(name);
            unreadable(&path, &std::fs::read(&path).expect_err("it is not there"))
        };
        assert!(
            told("Crago.toml").ends_with("No such file or directory; did you mean \"Cargo.toml\"?")
        );
        assert!(told("zzzzzz").ends_with("zzzzzz: No such file or directory"));
        assert!(
            told("no/Cargo.toml").ends_with(&format!("there is no folder {}/no", here.display()))
        );
    }
}
