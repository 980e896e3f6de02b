//! `towpath test`: cases in files, each a packet or several with their expected results, run on
//! every engine.

mod compare;
mod fields;
mod file;
mod headers;
mod hex;
mod kernel;
mod ours;
mod packet;
mod record;
mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use towpath_testing::Coverage;
use towpath_xdp::{Sanitize, Tally};

use crate::args::{TestArgs, TestExec};
use crate::error::{CliError, Status};
use crate::output::Output;
use crate::program::kernel_types;
use file::Case;
use ours::{Ready, Watched};
use report::{CaseResult, Report};

/// Runs, or records, cases.
pub(crate) fn test(args: &TestArgs, output: &mut Output) -> Result<Status, CliError> {
    if let Some(capture) = &args.record {
        return record::record(args, capture, output);
    }
    if !args.watch {
        return run_all(args, output);
    }
    loop {
        let before = newest(&args.paths);
        // An error in a file, which may be half edited, does not end the watching.
        if let Err(error) = run_all(args, output) {
            output.problem(&error);
        }
        output.flush()?;
        while newest(&args.paths) == before {
            std::thread::sleep(WATCH_PERIOD);
        }
        output.line("")?;
    }
}

fn run_all(args: &TestArgs, output: &mut Output) -> Result<Status, CliError> {
    let mut suites = Vec::new();
    for path in &args.paths {
        for file in case_files(path)? {
            suites.push(file::read(&file, args.object.as_deref())?);
        }
    }
    let (mut report, mut coverage) = (Report::default(), Coverage::default());
    let env = kernel_types(None)?;
    for suite in &suites {
        if let Some(source) = newer_source(&suite.subject.path) {
            let (object, source) = (suite.subject.path.display(), source.display());
            output.note(&format!("{object} is older than {source}: compile it (make)"));
        }
        let ready = Ready::new(&suite.subject, &env)?;
        let mut tally = Tally::default();
        let is_wanted = |case: &&Case| case.name.contains(&args.filter);
        for case in suite.cases.iter().filter(is_wanted) {
            for exec in ways(args) {
                report.add(suite, run(&ready, case, exec, (args.sanitize, &mut tally))?);
            }
            if args.wants_coverage() {
                // The case was run before, and its errors were reported then.
                let _told = ours::observe(&ready, case, &mut coverage);
            }
        }
        report.notes.extend(ready.notes(&mut tally));
    }
    report::print(&report, args, output)?;
    if args.coverage && !output.json {
        report::coverage(&coverage, output)?;
    }
    if let Some(path) = &args.lcov {
        crate::files::write(path, coverage.tracefile().as_bytes())?;
    }
    if let Some(path) = &args.html {
        crate::files::write(path, coverage.page().as_bytes())?;
    }
    Ok(if report.failed() == 0 { Status::Ok } else { Status::Refused })
}

/// Engines that execute the cases: with compiled code and a tracking sanitizer also the
/// interpreter.
fn ways(args: &TestArgs) -> Vec<TestExec> {
    let mut ways = args.exec.clone();
    let compiles = ways.iter().any(|way| matches!(way, TestExec::Jit | TestExec::Llvm));
    if args.sanitize == Sanitize::Track && compiles && !ways.contains(&TestExec::Interp) {
        ways.push(TestExec::Interp);
    }
    ways
}

/// Runs one case with one engine.
fn run(
    ready: &Ready,
    case: &Case,
    exec: TestExec,
    (sanitize, tally): (Sanitize, &mut Tally),
) -> Result<CaseResult, CliError> {
    let start = std::time::Instant::now();
    let mut watched = Watched { sanitize, findings: Vec::new(), tally };
    let outcome = match exec {
        TestExec::Kernel => kernel::run(ready, case, sanitize),
        exec => ours::run(ready, case, exec, &mut watched),
    };
    let (differences, skipped) = match outcome {
        Ok(Ran::Done(differences)) => (differences, None),
        Ok(Ran::Skipped(why)) => (Vec::new(), Some(why)),
        // The error is the case's own or the program's: the other cases still run.
        Err(error @ (CliError::Text { .. } | CliError::Load { .. } | CliError::Fault { .. })) => {
            (vec![error.to_string()], None)
        }
        Err(error) => return Err(error),
    };
    let (name, object) = (case.name.clone(), ready.opened.path.clone());
    let (took, findings) = (start.elapsed(), watched.findings);
    Ok(CaseResult { name, object, exec, sanitize, differences, findings, skipped, took })
}

/// Outcome of a case.
enum Ran {
    /// The case ran: its differences from the expected results, none if all is well.
    Done(Vec<String>),
    /// The case can't run on this engine, with the reason.
    Skipped(String),
}

/// The file itself, or the files of cases in a directory and below, ordered by name.
fn case_files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::File { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        if path.is_dir() {
            found.extend(case_files(&path)?);
        } else if file::EXTENSIONS.contains(&extension) {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(CliError::Text {
            path: path.to_owned(),
            message: format!("no files of cases in it ({})", file::EXTENSIONS.join(", ")),
        }),
        false => Ok(found),
    }
}

/// The C source beside the tested object, if it is newer than the object.
fn newer_source(object: &Path) -> Option<PathBuf> {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    let source = object.with_extension("c");
    (changed(&source)? > changed(object)?).then_some(source)
}

/// Time of the latest change of any file of cases and of the objects that they name.
fn newest(paths: &[PathBuf]) -> Option<SystemTime> {
    let files = paths.iter().flat_map(|path| case_files(path).unwrap_or_default());
    let with_objects = files.flat_map(|path| {
        let object = file::read(&path, None).ok().map(|suite| suite.subject.path);
        std::iter::once(path).chain(object)
    });
    let changed = |path: PathBuf| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    with_objects.filter_map(changed).max()
}

const WATCH_PERIOD: Duration = Duration::from_millis(300);
