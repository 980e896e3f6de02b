//! Completion scripts, made from the same types as the parser.

use clap_complete::Shell;
use clap_complete::env::Shells;

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
