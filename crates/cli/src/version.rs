//! `towpath --version`: the build of this binary, and the features that it found on this machine.
//!
//! The text is made on demand, and not before the command line is read: opening LLVM takes as long
//! as everything else in a short command.

use std::io::Write as _;
use std::process::ExitCode;

/// Commit that this was built from; `None` in development builds and outside of a repository.
const COMMIT: Option<&str> = option_env!("TOWPATH_COMMIT");

/// Prints version, commit and tiers.
pub(crate) fn tell() -> ExitCode {
    // A reader that closes the pipe after the first line is satisfied.
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
