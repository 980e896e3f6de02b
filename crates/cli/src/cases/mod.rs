//! `towpath test`: cases in files, each a packet or several and what is expected of them, run on
//! everything that can execute a program.

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
        // A file that is being edited is no reason to end.
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
                // What goes wrong was told when the case was run.
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

/// What executes the cases: beside compiled code also the interpreter, if the sanitizer is to look.
fn ways(args: &TestArgs) -> Vec<TestExec> {
    let mut ways = args.exec.clone();
    let compiles = ways.iter().any(|way| matches!(way, TestExec::Jit | TestExec::Llvm));
    if args.sanitize == Sanitize::Track && compiles && !ways.contains(&TestExec::Interp) {
        ways.push(TestExec::Interp);
    }
    ways
}

/// Runs one case with one of the things that execute programs.
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
        // The case's own mistake, or the program's: the others go on.
        Err(error @ (CliError::Text { .. } | CliError::Load { .. } | CliError::Fault { .. })) => {
            (vec![error.to_string()], None)
        }
        Err(error) => return Err(error),
    };
    let (name, object) = (case.name.clone(), ready.opened.path.clone());
    let (took, findings) = (start.elapsed(), watched.findings);
    Ok(CaseResult { name, object, exec, sanitize, differences, findings, skipped, took })
}

/// What became of a case.
enum Ran {
    /// With what differs from what is expected: nothing, if all is well.
    Done(Vec<String>),
    /// It can't run there.
    Skipped(String),
}

/// A file, or those of cases in a directory and below, by name.
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

/// A source that is newer than the object that is tested, if there is one beside it.
fn newer_source(object: &Path) -> Option<PathBuf> {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
    let source = object.with_extension("c");
    (changed(&source)? > changed(object)?).then_some(source)
}

/// When the latest change was, of any file of cases and of the objects that they name.
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
