//! Reading and writing files with limits; `-` is standard input or output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::CliError;

/// Reads a file that may have at most `limit` bytes; `what` is the expected kind of file.
pub(crate) fn read(path: &Path, what: &'static str, limit: u64) -> Result<Vec<u8>, CliError> {
    let failed = |source| CliError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // One byte beyond the limit shows that there is more, also for pipes, which have no size.
    if path == Path::new("-") {
        io::stdin().lock().take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path)
            .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
            .map_err(failed)?;
    }
    if bytes.len() as u64 > limit {
        let size = std::fs::metadata(path).map_or(bytes.len() as u64, |metadata| metadata.len());
        return Err(CliError::FileTooLarge { path: path.to_owned(), what, size, limit });
    }
    Ok(bytes)
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    if path == Path::new("-") {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(CliError::Stdout);
    }
    std::fs::write(path, bytes).map_err(|source| CliError::File { path: path.to_owned(), source })
}
