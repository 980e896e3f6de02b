//! `qualify`: tests of the features that a port claims.

mod report;

use towpath_qualify::{Choice, Report, Subject, kinds::Lab, qualify as try_all};

use crate::args::QualifyArgs;
use crate::error::{CliError, Status};
use crate::output::Output;

/// `qualify`: tries every feature of ports.
pub(crate) fn qualify(args: &QualifyArgs, output: &mut Output) -> Result<Status, CliError> {
    let is_root = rustix::process::geteuid().is_root();
    let choices = chosen(&args.ports, is_root)?;
    if let Some(choice) = choices.iter().find(|choice| choice.needs_root() && !is_root) {
        return Err(CliError::Qualify(format!("{}: interfaces need root", choice.name())));
    }
    let makes_interfaces = choices.iter().any(Choice::makes_interface);
    let lab = Lab::new(makes_interfaces).map_err(|error| {
        CliError::Qualify(format!("creating a network namespace for the tests: {error}"))
    })?;
    let mut reports = Vec::new();
    for choice in choices {
        let subject = choice.subject(&lab);
        if output.verbose > 0 {
            output.note(&format!("trying {}", subject.name()));
        }
        reports.push(tried(&*subject)?);
    }
    report::print(&reports, args, output)?;
    let is_good = reports.iter().all(Report::is_good);
    Ok(if is_good { Status::Ok } else { Status::Refused })
}

/// The ports of a command line; if it names none, all ports that can be tried.
fn chosen(names: &[String], is_root: bool) -> Result<Vec<Choice>, CliError> {
    if names.is_empty() {
        let all = Choice::all().into_iter();
        return Ok(all.filter(|choice| is_root || !choice.needs_root()).collect());
    }
    let parse = |name: &String| {
        Choice::parse(name).map_err(|error| CliError::Qualify(format!("{name}: {error}")))
    };
    names.iter().map(parse).collect()
}

fn tried(subject: &dyn Subject) -> Result<Report, CliError> {
    try_all(subject).map_err(|error| CliError::Qualify(format!("{}: {error}", subject.name())))
}
