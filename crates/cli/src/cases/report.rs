//! Results of cases: for people, as TAP, JSON and JUnit XML.

use std::path::PathBuf;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;

use super::file::Suite;
use crate::args::{TestArgs, TestExec};
use crate::error::CliError;
use crate::files;
use crate::output::Output;

/// What became of one case on one of the things that execute programs.
pub(super) struct CaseResult {
    pub(super) name: String,
    pub(super) object: PathBuf,
    pub(super) exec: TestExec,
    /// None if all is as expected.
    pub(super) differences: Vec<String>,
    /// Why it did not run.
    pub(super) skipped: Option<String>,
    pub(super) took: Duration,
}

/// All results, by file.
#[derive(Default)]
pub(super) struct Report {
    files: Vec<(PathBuf, Vec<CaseResult>)>,
}

impl Report {
    pub(super) fn add(&mut self, suite: &Suite, result: CaseResult) {
        match self.files.last_mut().filter(|(path, _)| *path == suite.path) {
            Some((_, results)) => results.push(result),
            None => self.files.push((suite.path.clone(), vec![result])),
        }
    }

    pub(super) fn failed(&self) -> usize {
        self.results().filter(|result| !result.differences.is_empty()).count()
    }

    fn skipped(&self) -> usize {
        self.results().filter(|result| result.skipped.is_some()).count()
    }

    fn results(&self) -> impl Iterator<Item = &CaseResult> {
        self.files.iter().flat_map(|(_, results)| results)
    }
}

/// Prints the results, and writes them where they are wanted.
pub(super) fn print(report: &Report, args: &TestArgs, output: &mut Output) -> Result<(), CliError> {
    if let Some(path) = &args.junit {
        files::write(path, junit(report).as_bytes())?;
    }
    if output.json {
        return json(report, output);
    }
    if args.tap { tap(report, output) } else { text(report, output) }
}

fn text(report: &Report, output: &mut Output) -> Result<(), CliError> {
    let style = output.style;
    for (path, results) in &report.files {
        output.line(&style.bold(&path.display().to_string()))?;
        for of_case in results.chunk_by(|a, b| a.name == b.name) {
            let is_bad = of_case.iter().any(|it| !it.differences.is_empty());
            let is_skipped = of_case.iter().all(|it| it.skipped.is_some());
            let word = match (is_bad, is_skipped) {
                (true, _) => style.bad("FAIL"),
                (_, true) => style.dim("skip"),
                _ => style.good("ok  "),
            };
            output.line(&format!("  {word}  {}", of_case[0].name))?;
            of_case.iter().try_for_each(|result| details(result, output))?;
        }
    }
    let (all, failed, skipped) = (report.results().count(), report.failed(), report.skipped());
    let passed = all - failed - skipped;
    output.line(&format!("{passed} passed, {failed} failed, {skipped} skipped"))
}

fn details(result: &CaseResult, output: &mut Output) -> Result<(), CliError> {
    let exec = result.exec.name();
    if let Some(why) = &result.skipped {
        return output.line(&format!("        {exec}: skipped: {why}"));
    }
    for difference in &result.differences {
        for line in difference.lines() {
            output.line(&format!("        {exec}: {line}"))?;
        }
    }
    Ok(())
}

/// <https://testanything.org/tap-version-14-specification.html>
fn tap(report: &Report, output: &mut Output) -> Result<(), CliError> {
    output.line("TAP version 14")?;
    output.line(&format!("1..{}", report.results().count()))?;
    for (index, result) in report.results().enumerate() {
        let word = if result.differences.is_empty() { "ok" } else { "not ok" };
        let name = result.name.replace('#', "\\#");
        let skip = result.skipped.as_ref().map(|why| format!(" # SKIP {why}"));
        let (exec, skip) = (result.exec.name(), skip.unwrap_or_default());
        output.line(&format!("{word} {} - {name} ({exec}){skip}", index + 1))?;
        for line in result.differences.iter().flat_map(|difference| difference.lines()) {
            output.line(&format!("# {line}"))?;
        }
    }
    Ok(())
}

fn json(report: &Report, output: &mut Output) -> Result<(), CliError> {
    let cases: Vec<_> = report
        .files
        .iter()
        .flat_map(|(path, results)| results.iter().map(move |result| (path, result)))
        .map(|(path, it)| {
            json!({
                "file": path, "name": it.name, "object": it.object, "exec": it.exec.name(),
                "passed": it.differences.is_empty() && it.skipped.is_none(),
                "skipped": it.skipped, "differences": it.differences,
                "seconds": it.took.as_secs_f64(),
            })
        })
        .collect();
    let (failed, skipped) = (report.failed(), report.skipped());
    let passed = cases.len() - failed - skipped;
    output.json(&json!({
        "passed": passed, "failed": failed, "skipped": skipped, "cases": cases,
    }))
}

fn junit(report: &Report) -> String {
    let mut document = quick_junit::Report::new("towpath test");
    for (path, results) in &report.files {
        let mut suite = TestSuite::new(path.display().to_string());
        for result in results {
            let mut status = TestCaseStatus::success();
            if let Some(why) = &result.skipped {
                status = TestCaseStatus::skipped();
                status.set_message(why.as_str());
            } else if !result.differences.is_empty() {
                status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(result.differences[0].as_str());
                status.set_description(result.differences.join("\n"));
            }
            let mut case = TestCase::new(result.name.as_str(), status);
            case.set_classname(result.exec.name()).set_time(result.took);
            suite.add_test_case(case);
        }
        document.add_test_suite(suite);
    }
    // Writing to memory does not fail.
    document.to_string().unwrap_or_default()
}
