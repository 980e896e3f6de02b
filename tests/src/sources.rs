//! Where programs to compare come from on this machine, and building what must be built.
//!
//! Kernel source is never part of this repository: Debian's `linux-source-*` package (or the tree
//! that `TOWPATH_KERNEL_SOURCE` names) is unpacked and compiled in a scratch folder.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a source of programs is not there; fit for "skipped: ...".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No kernel source on this machine.
    #[error(
        "no kernel source: install Debian's linux-source-6.1, or set TOWPATH_KERNEL_SOURCE to an \
         unpacked tree"
    )]
    NoKernelSource,
    /// A command failed.
    #[error("`{command}` failed: {detail}")]
    Command {
        /// What was run.
        command: String,
        /// Its complaint.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// The scratch folder: `TOWPATH_PARITY_DIR`, or `target/parity`.
pub fn scratch() -> PathBuf {
    match std::env::var_os("TOWPATH_PARITY_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => repository().join("target/parity"),
    }
}

/// The repository's root.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The verifier tables as JSON lines, dumped when they are not there yet.
pub fn verifier_tables() -> Result<PathBuf, SourceError> {
    let out = scratch().join("tables.jsonl");
    if !out.exists() {
        run_script(&own_script("verifier-tables.sh"), &[&kernel_source()?, &out])?;
    }
    Ok(out)
}

/// The folder of compiled samples and selftests.
pub fn kernel_objects() -> Result<PathBuf, SourceError> {
    let out = scratch().join("objects");
    if !out.join("count.txt").exists() {
        run_script(&own_script("kernel-objects.sh"), &[&kernel_source()?, &out])?;
    }
    Ok(out)
}

/// This repository's programs, compiled by both compilers.
pub fn own_objects() -> Result<PathBuf, SourceError> {
    let out = scratch().join("programs");
    let script = repository().join("scripts/build-programs.sh");
    for clang in ["clang-14", "clang-19"] {
        let folder = out.join(clang);
        let args = [Path::new("--clang"), Path::new(clang), Path::new("--out"), &folder];
        run_script(&script, &args)?;
    }
    Ok(out)
}

/// Every object file below a folder, by name.
pub fn object_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "o") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Objects of Debian's xdp-tools and libxdp packages.
pub fn packaged_objects() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        found.extend(object_files(&entry.path().join("bpf")));
    }
    found.sort();
    found
}

/// An unpacked kernel tree.
fn kernel_source() -> Result<PathBuf, SourceError> {
    if let Some(dir) = std::env::var_os("TOWPATH_KERNEL_SOURCE") {
        return Ok(PathBuf::from(dir));
    }
    let out = scratch().join("linux");
    if !out.exists() {
        let archive = archive().ok_or(SourceError::NoKernelSource)?;
        run_script(&own_script("kernel-source.sh"), &[&archive, &out])?;
    }
    Ok(out)
}

fn archive() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/src").ok()?;
    entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("linux-source-") && name.ends_with(".tar.xz")
    })
}

fn own_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)
}

fn run_script(script: &Path, args: &[&Path]) -> Result<(), SourceError> {
    let scratch = scratch();
    std::fs::create_dir_all(&scratch)
        .map_err(|source| SourceError::File { path: scratch, source })?;
    let failed =
        |detail: String| SourceError::Command { command: script.display().to_string(), detail };
    let output = Command::new("bash")
        .arg(script)
        .args(args)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
