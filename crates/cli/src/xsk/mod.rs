//! `xsk`: shows and uses AF_XDP sockets.

mod run;
mod show;

use crate::args::XskCommand;
use crate::error::CliError;
use crate::output::Output;
use run::Job;

/// Runs one of its commands.
pub(crate) fn xsk(command: &XskCommand, output: &mut Output) -> Result<(), CliError> {
    match command {
        XskCommand::Show(args) => show::show(args, output),
        XskCommand::Echo(args) => run::run(args, &Job::Echo, output),
        XskCommand::Drop(args) => run::run(args, &Job::Drop, output),
        XskCommand::Count(args) => run::run(args, &Job::Count, output),
        XskCommand::Send(args) => run::run(&args.run, &Job::Send { size: args.size }, output),
    }
}
