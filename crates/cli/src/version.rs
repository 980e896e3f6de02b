//! `towpath --version`: what this binary is, and what it found on this machine.
//!
//! Not a text made before the command line is read: opening LLVM takes as long as all else that a
//! short command does.

use std::io::Write as _;
use std::process::ExitCode;

/// The commit this was built of; none in development builds and outside of a repository.
const COMMIT: Option<&str> = option_env!("TOWPATH_COMMIT");

/// Prints version, commit and tiers.
pub(crate) fn tell() -> ExitCode {
    // Who reads the first line only has read enough.
    let _closed = writeln!(std::io::stdout(), "{}", text());
    ExitCode::SUCCESS
}

fn text() -> String {
    let commit = COMMIT.map_or_else(String::new, |commit| format!(" (commit {commit})"));
    let tier2 = match towpath_jit::llvm_library() {
        Ok(library) => format!("LLVM {}, {}", library.version, library.path),
        Err(why) => format!("none: {why}"),
    };
    let version = env!("CARGO_PKG_VERSION");
    format!("towpath {version}{commit}\ntier 1: Cranelift\ntier 2: {tier2}")
}
