//! The `towpath` binary: reads the command line, runs one command, turns errors into exit codes.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod bond;
mod btf;
mod cases;
mod complete;
mod daemon;
mod demo;
mod error;
mod events;
mod files;
mod findings;
mod generate;
mod inspect;
mod interrupt;
mod kernel_session;
mod leftover;
mod manual;
mod mapfile;
mod new;
mod output;
mod prog;
mod program;
mod qualify;
mod run;
mod session;
mod top;
mod verify;
mod version;
mod wrap;
mod xsk;

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap_complete::CompleteEnv;

use args::{Cli, Command, ExecCommand, ProgCommand};
use error::{CliError, Status};
use output::Output;

fn main() -> ExitCode {
    // Answers completion requests of the shell while the user is typing.
    CompleteEnv::with_factory(args::command).complete();
    let Cli { output, command } = match said() {
        Ok(cli) => cli,
        Err(stop) if stop.kind() == ErrorKind::DisplayVersion => return version::tell(),
        Err(stop) => return refuse(&stop),
    };
    let mut output = Output::new(output);
    let result = execute(command, &mut output).and_then(|status| {
        output.flush()?;
        Ok(status)
    });
    // A compilation may still run in the background, and the end of the process unloads LLVM's
    // library.
    let _too_slow = towpath_jit::stop_compiling();
    match result {
        Ok(status) => status.into(),
        Err(error) => {
            let told = report_error(&error, &mut output).and_then(|()| output.flush());
            // If even the message can't be written, the exit status still reports the failure.
            told.err().map_or(error.status(), |_| error.status()).into()
        }
    }
}

/// Parses the command line.
fn said() -> Result<Cli, clap::Error> {
    let mut matches = args::command().try_get_matches()?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut args::command()))
}

/// Prints an error in the arguments, or the help: as JSON if that was asked for.
fn refuse(stop: &clap::Error) -> ExitCode {
    let is_help = !stop.use_stderr();
    let wants_json = std::env::args_os().any(|word| {
        let text = word.to_string_lossy();
        text == "--json" || (text.starts_with('-') && !text.starts_with("--") && text.contains('j'))
    });
    let instead = instead_of(stop);
    if is_help || !wants_json {
        let _told = stop.print();
        if let Some(instead) = instead {
            let _told = writeln!(std::io::stderr(), "\n  tip: {instead}");
        }
        return ExitCode::from(u8::try_from(stop.exit_code()).unwrap_or(2));
    }
    let mut text = stop.render().to_string();
    if let Some(instead) = instead {
        text = format!("{}; {instead}", text.lines().next().unwrap_or_default());
    }
    // The sentence and the expected form; the hint at further help is not for programs.
    let told = text.split("\n\nFor more information").next().unwrap_or_default();
    let told = told.strip_prefix("error: ").unwrap_or(told).trim_end();
    let args = args::OutputArgs { json: true, pretty: false, verbose: 0 };
    let mut output = Output::new(args);
    let told = output.json(&serde_json::json!({ "error": told })).and_then(|()| output.flush());
    told.map_or(Status::Unreadable, |()| Status::Unreadable).into()
}

/// The command to type instead of a verb that other tools have, with the words of the command line.
fn instead_of(stop: &clap::Error) -> Option<String> {
    let word = match (stop.kind(), stop.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => word,
        _ => return None,
    };
    let mut words = std::env::args().skip(1).filter(|it| !it.starts_with('-'));
    // Below `prog`, `map`, ... the words have other meanings.
    if words.next().as_ref() != Some(word) {
        return None;
    }
    let rest: Vec<String> = words.collect();
    let typed = |usual: &str| if rest.is_empty() { usual.to_owned() } else { rest.join(" ") };
    match word.as_str() {
        "attach" | "add" => {
            Some(format!("`towpath load {}` attaches a program to a port", typed("PORT OBJ")))
        }
        "detach" | "remove" => {
            Some(format!("`towpath unload {}` takes a program off a port", typed("PORT")))
        }
        "list" | "ls" | "show" => Some(
            "`towpath status` shows ports and what runs on them; `towpath prog show`, `map show` \
             and `link show` list objects"
                .to_owned(),
        ),
        "start" | "daemon" => Some("`towpath up -c FILE` runs the daemon".to_owned()),
        _ => None,
    }
}

fn execute(command: Command, output: &mut Output) -> Result<Status, CliError> {
    match command {
        Command::Verify(args) => return verify::verify(&args, output),
        Command::Prog { command: ProgCommand::Dump(args) } => prog::dump(&args, output)?,
        Command::New(args) => new::new(&args, output)?,
        Command::Inspect(args) => inspect::inspect(&args, output)?,
        Command::Completions { shell } => generate::completions(shell, output)?,
        Command::Man { dir } => manual::manual(dir.as_deref(), output)?,
        Command::Bond { command } => bond::bond(&command, output)?,
        Command::Bench(args) => return bench::bench(&args, output),
        Command::Run(args) => return run::run(&args, output),
        Command::Test(args) => return cases::test(&args, output),
        Command::Qualify(args) => return qualify::qualify(&args, output),
        Command::Prog { command: ProgCommand::Run(args) } => return prog::run(&args, output),
        Command::Prog { command: ProgCommand::Load(args) } => daemon::load_pinned(&args, output)?,
        Command::Btf { command } => btf::btf(&command, output)?,
        Command::Net { command } => daemon::net(&command, output)?,
        Command::Prog { command: ProgCommand::Pin(args) } => daemon::pin_program(&args, output)?,
        Command::Prog { command: ProgCommand::Unpin(args) } => daemon::unpin(&args, output)?,
        Command::Prog { command: ProgCommand::Tracelog(args) } => daemon::tracelog(&args, output)?,
        Command::Prog { command: ProgCommand::Show(args) } => {
            daemon::show_programs(&args, output)?;
        }
        Command::Up(args) | Command::Exec { command: ExecCommand::Up(args) } => {
            daemon::up(&args, output)?;
        }
        Command::Demo { command } => demo::demo(&command, output)?,
        Command::Check(args) => daemon::check(&args, output)?,
        Command::Reload(args) => daemon::reload(&args, output)?,
        Command::Load(args) => daemon::load(&args, output)?,
        Command::Unload(args) => daemon::unload(&args, output)?,
        Command::Status(args) => daemon::status(&args, output)?,
        Command::Port { command } => daemon::port(&command, output)?,
        Command::Map { command } => daemon::map(&command, output)?,
        Command::Link { command } => daemon::link(&command, output)?,
        Command::Guest { command } => daemon::guest(&command, output)?,
        Command::Bridge { command } => daemon::bridge(&command, output)?,
        Command::Sa { command } => daemon::sa(&command, output)?,
        Command::Policy { command } => daemon::policy(&command, output)?,
        Command::Features(args) => daemon::features(&args, output)?,
        Command::Stats(args) => daemon::stats(&args, output)?,
        Command::Top(args) => top::top(&args, output)?,
        Command::Xsk { command } => xsk::xsk(&command, output)?,
        Command::Wrap(args) => wrap::wrap(&args, output)?,
        Command::Dump(args) => daemon::dump(&args, output)?,
        Command::Events(args) => daemon::events(&args, output)?,
    }
    Ok(Status::Ok)
}

/// Prints an error: a sentence on standard error, or `{"error": ...}` on standard output.
fn report_error(error: &CliError, output: &mut Output) -> Result<(), CliError> {
    if error.status() == Status::Ok || matches!(error, CliError::Reported) {
        return Ok(());
    }
    if output.json {
        return output.json(&serde_json::json!({ "error": error.to_string() }));
    }
    // Results that came before the error are shown before it, if they can be shown at all.
    if !matches!(error, CliError::Stdout(_)) {
        output.flush()?;
    }
    // If the message can't be written, the exit status still reports the failure.
    let _told = writeln!(std::io::stderr(), "error: {error}");
    Ok(())
}
