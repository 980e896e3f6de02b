//! `towpath bond`: the hash and the state of bonds.

mod hash;
mod hex;
mod show;

use crate::args::BondCommand;
use crate::error::CliError;
use crate::output::Output;

/// Runs one of the commands.
pub(crate) fn bond(command: &BondCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        BondCommand::Hash(args) => hash::hash(args, output),
        BondCommand::Show(args) => show::show(args, output),
    }
}
