//! Results of cases: for people, as TAP, JSON and JUnit XML.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;
use towpath_testing::{Coverage, Row};
use towpath_xdp::{Finding, Sanitize};

use super::file::Suite;
use crate::args::{TestArgs, TestExec};
use crate::error::CliError;
use crate::files;
use crate::findings;
use crate::output::{Align, Output, Table};

/// Result of one case on one engine.
pub(super) struct CaseResult {
    pub(super) name: String,
    pub(super) object: PathBuf,
    pub(super) exec: TestExec,
    /// Mode of the sanitizer.
    pub(super) sanitize: Sanitize,
    /// Differences from the expected results; none if all is as expected.
    pub(super) differences: Vec<String>,
    /// Findings of the sanitizer.
    pub(super) findings: Vec<Finding>,
    /// Reason why the case did not run.
    pub(super) skipped: Option<String>,
    pub(super) took: Duration,
}

impl CaseResult {
    /// Whether something is not as expected, or the sanitizer found a mistake.
    pub(super) fn is_bad(&self) -> bool {
        !self.differences.is_empty() || self.findings.iter().any(Finding::is_error)
    }

    /// Everything that makes the result bad.
    fn told(&self) -> Vec<String> {
        let errors = self.findings.iter().filter(|finding| finding.is_error());
        let errors = errors.map(|finding| format!("sanitizer: {}", findings::from_here(finding)));
        self.differences.iter().cloned().chain(errors).chain(self.again()).collect()
    }

    /// Advice on how to repeat the run with the same initial stack bytes.
    fn again(&self) -> Option<String> {
        let is_poisoned = matches!(self.sanitize, Sanitize::Poison(_));
        (is_poisoned && !self.differences.is_empty()).then(|| {
            let choice = self.sanitize;
            format!("the stack began with random bytes: --sanitize={choice} repeats them")
        })
    }

    /// Findings that may be intended.
    fn notes(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.is_error())
    }
}

/// All results, by file.
#[derive(Default)]
pub(super) struct Report {
    files: Vec<(PathBuf, Vec<CaseResult>)>,
    /// Notes of the sanitizer on all cases of a file together.
    pub(super) notes: Vec<Finding>,
}

impl Report {
    pub(super) fn add(&mut self, suite: &Suite, result: CaseResult) {
        match self.files.last_mut().filter(|(path, _)| *path == suite.path) {
            Some((_, results)) => results.push(result),
            None => self.files.push((suite.path.clone(), vec![result])),
        }
    }

    pub(super) fn failed(&self) -> usize {
        self.results().filter(|result| result.is_bad()).count()
    }

    fn skipped(&self) -> usize {
        self.results().filter(|result| result.skipped.is_some()).count()
    }

    fn results(&self) -> impl Iterator<Item = &CaseResult> {
        self.files.iter().flat_map(|(_, results)| results)
    }
}

/// Prints the results, and writes them to the files that the arguments name.
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
            let is_bad = of_case.iter().any(|it| it.is_bad());
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
    notes(report, output)?;
    let (all, failed, skipped) = (report.results().count(), report.failed(), report.skipped());
    let passed = all - failed - skipped;
    output.line(&format!("{passed} passed, {failed} failed, {skipped} skipped"))
}

/// Prints the sanitizer's notes, each once even if several cases caused it.
fn notes(report: &Report, output: &mut Output) -> Result<(), CliError> {
    let notes = report.results().flat_map(CaseResult::notes).chain(&report.notes);
    let told: BTreeSet<String> = notes.map(ToString::to_string).collect();
    if output.verbose > 0 {
        return told.iter().flat_map(|note| note.lines()).try_for_each(|line| output.line(line));
    }
    match told.len() {
        0 => Ok(()),
        1 => output.line("a note of the sanitizer (-v shows it)"),
        count => output.line(&format!("{count} notes of the sanitizer (-v shows them)")),
    }
}

/// A table by C file, and the lines that no case reached.
pub(super) fn coverage(coverage: &Coverage, output: &mut Output) -> Result<(), CliError> {
    if coverage.is_empty() {
        return output.line("coverage: no line information: compile with -g");
    }
    let columns = [("file", Align::Left), ("lines", Align::Right), ("branches", Align::Right)];
    let mut table = Table::new(&columns);
    for Row { file, lines, branches } in coverage.rows() {
        table.row(vec![file, lines, branches]);
    }
    output.line("")?;
    output.table(&table)?;
    coverage.unreached().try_for_each(|line| output.line(&format!("  not reached  {line}")))
}

fn details(result: &CaseResult, output: &mut Output) -> Result<(), CliError> {
    let exec = result.exec.name();
    if let Some(why) = &result.skipped {
        return output.line(&format!("        {exec}: skipped: {why}"));
    }
    for difference in result.told() {
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
        let word = if result.is_bad() { "not ok" } else { "ok" };
        let name = result.name.replace('#', "\\#");
        let skip = result.skipped.as_ref().map(|why| format!(" # SKIP {why}"));
        let (exec, skip) = (result.exec.name(), skip.unwrap_or_default());
        output.line(&format!("{word} {} - {name} ({exec}){skip}", index + 1))?;
        for line in result.told().iter().flat_map(|told| told.lines()) {
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
                "passed": !it.is_bad() && it.skipped.is_none(),
                "skipped": it.skipped, "differences": it.differences,
                "findings": it.findings.iter().map(findings::json).collect::<Vec<_>>(),
                "sanitize": it.sanitize.to_string(),
                "seconds": it.took.as_secs_f64(),
            })
        })
        .collect();
    let (failed, skipped) = (report.failed(), report.skipped());
    let passed = cases.len() - failed - skipped;
    output.json(&json!({
        "passed": passed, "failed": failed, "skipped": skipped, "cases": cases,
        "notes": report.notes.iter().map(findings::json).collect::<Vec<_>>(),
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
            } else if result.is_bad() {
                let told = result.told();
                status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                status.set_message(told[0].as_str());
                status.set_description(told.join("\n"));
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
