//! Where programs to compare come from on this machine, and building what must be built.
//!
//! Kernel source is never part of this repository: Debian's `linux-source-*` package (or the tree
//! that `TOWPATH_KERNEL_SOURCE` names) is unpacked and compiled in a scratch folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a source of programs is not there; fit for "skipped: ...".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No kernel source on this machine.
    #[error(
        "no kernel source: install Debian's linux-source package, or set TOWPATH_KERNEL_SOURCE to \
         an unpacked tree"
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
        // Newer trees have made programs of most tables.
        run_script(&own_script("verifier-tables.sh"), &[&kernel_source(Age::Oldest)?, &out])?;
    }
    Ok(out)
}

/// The folder of compiled samples and selftests.
pub fn kernel_objects() -> Result<PathBuf, SourceError> {
    let out = scratch().join("objects");
    if !out.join("count.txt").exists() {
        run_script(&own_script("kernel-objects.sh"), &[&kernel_source(Age::Newest)?, &out])?;
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

/// The programs of `tests/data/calls`, compiled against the running kernel's types.
pub fn call_objects() -> Result<PathBuf, SourceError> {
    let out = scratch().join("calls");
    run_script(&own_script("call-objects.sh"), &[&out])?;
    Ok(out)
}

/// A generated source, compiled with the headers of `tests/data/calls`.
pub fn generated_object(name: &str, text: &str) -> Result<PathBuf, SourceError> {
    let types = call_objects()?;
    let source = scratch().join(format!("{name}.c"));
    let out = scratch().join(format!("{name}.o"));
    std::fs::write(&source, text)
        .map_err(|error| SourceError::File { path: source.clone(), source: error })?;
    run_script(&own_script("generated-object.sh"), &[&source, &out, &types])?;
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

/// What libbpf says about one program.
#[derive(Debug, Clone, Copy)]
pub struct LibbpfVerdict {
    /// 0, or why it could not be loaded.
    pub errno: i32,
    /// The kernel's hash of the instructions, when it was loaded.
    pub tag: Option<[u8; 8]>,
}

/// Loads every XDP program of some objects through libbpf; by object and program name.
pub fn libbpf_verdicts(
    objects: &[PathBuf],
) -> Result<HashMap<(PathBuf, String), LibbpfVerdict>, SourceError> {
    let binary = scratch().join("libbpf-load");
    let source = own_script("libbpf-load.c");
    let arguments = ["-O1", "-o"].map(Path::new);
    let compiled: Vec<&Path> =
        arguments.into_iter().chain([&*binary, &*source, Path::new("-lbpf")]).collect();
    run(Path::new("gcc"), &compiled)?;
    let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    let output = run(&binary, &objects)?;
    let mut verdicts = HashMap::new();
    for line in output.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let &[object, program, errno, ref rest @ ..] = words.as_slice() {
            let tag = rest.first().and_then(|tag| u64::from_str_radix(tag, 16).ok());
            let errno = errno.parse().unwrap_or(-1);
            let verdict = LibbpfVerdict { errno, tag: tag.map(u64::to_be_bytes) };
            verdicts.insert((PathBuf::from(object), program.to_owned()), verdict);
        }
    }
    Ok(verdicts)
}

/// Which of several kernel trees.
#[derive(Clone, Copy)]
enum Age {
    Oldest,
    Newest,
}

/// An unpacked kernel tree.
fn kernel_source(age: Age) -> Result<PathBuf, SourceError> {
    if let Some(dir) = std::env::var_os("TOWPATH_KERNEL_SOURCE") {
        return Ok(PathBuf::from(dir));
    }
    let ((major, minor), archive) = archive(age).ok_or(SourceError::NoKernelSource)?;
    let out = scratch().join(format!("linux-{major}.{minor}"));
    if !out.exists() {
        run_script(&own_script("kernel-source.sh"), &[&archive, &out])?;
    }
    Ok(out)
}

/// One of Debian's archives, and its version.
fn archive(age: Age) -> Option<((u32, u32), PathBuf)> {
    let entries = std::fs::read_dir("/usr/src").ok()?;
    let versioned = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((archive_version(&name)?, entry.path()))
    });
    match age {
        Age::Oldest => versioned.min(),
        Age::Newest => versioned.max(),
    }
}

/// 6.12 of `linux-source-6.12.tar.xz`.
fn archive_version(name: &str) -> Option<(u32, u32)> {
    let version = name.strip_prefix("linux-source-")?.strip_suffix(".tar.xz")?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn own_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name)
}

/// Runs a script that builds into the scratch folder. One at a time, in this process and in others:
/// a test that lists the folder never sees half of what another is building.
fn run_script(script: &Path, args: &[&Path]) -> Result<(), SourceError> {
    let path = scratch_there()?.join("lock");
    let lock = std::fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    let _held = lock.map_err(|source| SourceError::File { path, source })?;
    let args: Vec<&Path> = std::iter::once(script).chain(args.iter().copied()).collect();
    run(Path::new("bash"), &args).map(drop)
}

/// The scratch folder, made where it is missing.
fn scratch_there() -> Result<PathBuf, SourceError> {
    let path = scratch();
    match std::fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(SourceError::File { path, source }),
    }
}

/// Runs a command with the scratch folder there; returns what it printed.
fn run(program: &Path, args: &[&Path]) -> Result<String, SourceError> {
    scratch_there()?;
    let named = args.first().unwrap_or(&program).display().to_string();
    let failed = |detail: String| SourceError::Command { command: named.clone(), detail };
    let output =
        Command::new(program).args(args).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_archive_is_the_one_with_the_highest_number() {
        let names = ["linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-6.15.tar.xz"];
        let versions: Vec<_> = names.into_iter().filter_map(archive_version).collect();
        assert_eq!(versions, [(6, 1), (6, 12)]);
        assert_eq!(versions.into_iter().max(), Some((6, 12)));
    }
}
