//! Fuzz targets, one file each in `tests/`: short under `cargo test`, longer under `make fuzz`.

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

/// The inputs of a kind in `corpus/`, in the order of their names.
///
/// # Errors
///
/// The folder or one of its files can't be read.
pub fn corpus(kind: &str, extensions: &[&str]) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
    let paths = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| {
        path.extension().is_some_and(|it| extensions.iter().any(|wanted| it == *wanted))
    });
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}
