//! Completion scripts and manual pages, made from the same types as the parser.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::args::Cli;
use crate::error::CliError;
use crate::output::Output;

/// Prints a completion script: it asks `towpath` itself, which asks the daemon for names.
pub(crate) fn completions(shell: Shell, output: &mut Output) -> Result<(), CliError> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let name = shell.to_string();
    match shells.completer(&name) {
        Some(shell) => shell
            .write_registration("COMPLETE", "towpath", "towpath", "towpath", &mut script)
            .map_err(CliError::Stdout)?,
        None => return Err(CliError::Usage(format!("{name}: no completion for this shell"))),
    }
    output.bytes(&script)
}

/// Prints the manual page of `towpath`, or writes those of all commands into `dir`.
pub(crate) fn manual(dir: Option<&Path>, output: &mut Output) -> Result<(), CliError> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(CliError::Stdout)?;
        return output.bytes(&page);
    };
    let failed = |source| CliError::File { path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)
}
