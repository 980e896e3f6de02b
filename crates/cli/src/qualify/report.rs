//! Results as text, JSON and JUnit XML.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;
use towpath_qualify::{Feature, Report, Row, Verdict, page};

use crate::args::QualifyArgs;
use crate::error::CliError;
use crate::files;
use crate::output::{Align, Output, Style, Table};

/// Prints the results, and writes them to the files that the arguments name.
pub(super) fn print(
    reports: &[Report],
    args: &QualifyArgs,
    output: &mut Output,
) -> Result<(), CliError> {
    if let Some(path) = &args.junit {
        files::write(path, junit(reports).as_bytes())?;
    }
    if output.json {
        return output.json(&as_json(reports));
    }
    if args.markdown {
        return page(reports).lines().try_for_each(|line| output.line(line));
    }
    text(reports, output)
}

/// A row for each feature, a column for each port.
fn text(reports: &[Report], output: &mut Output) -> Result<(), CliError> {
    let style = output.style;
    let ports = reports.iter().map(|report| (report.port.as_str(), Align::Left));
    let columns: Vec<(&str, Align)> = [("feature", Align::Left)].into_iter().chain(ports).collect();
    let mut table = Table::new(&columns);
    for (index, feature) in Feature::ALL.iter().enumerate() {
        let cells = reports.iter().map(|report| cell(&report.rows[index], style));
        table.row([feature.name().to_owned()].into_iter().chain(cells).collect());
    }
    output.table(&table)?;
    for (report, row) in failures(reports) {
        let line = format!("{}: {}: {}", report.port, row.feature.name(), row.note());
        output.line(&style.bad(&line))?;
    }
    for (report, row) in rows(reports) {
        let Some(text) = second_try(row) else { continue };
        output.line(&format!("{}: {}: {text}", report.port, row.feature.name()))?;
    }
    let count = failures(reports).count();
    output.line(&match count {
        0 => "everything that is advertised works".to_owned(),
        1 => "1 feature is advertised and does not work".to_owned(),
        count => format!("{count} features are advertised and do not work"),
    })
}

fn rows(reports: &[Report]) -> impl Iterator<Item = (&Report, &Row)> {
    reports.iter().flat_map(|report| report.rows.iter().map(move |row| (report, row)))
}

/// The note on a feature that passed only at the second try.
fn second_try(row: &Row) -> Option<String> {
    let why = row.first_failure.as_ref()?;
    Some(format!("passed at the second try; at the first: {why}"))
}

fn failures(reports: &[Report]) -> impl Iterator<Item = (&Report, &Row)> {
    rows(reports).filter(|(_, row)| row.verdict() == Verdict::Fails)
}

fn cell(row: &Row, style: Style) -> String {
    match row.verdict() {
        Verdict::Works => style.good(row.word()),
        Verdict::Fails => style.bad(row.word()),
        Verdict::Unadvertised => row.word().to_owned(),
        Verdict::No | Verdict::Untried => style.dim(row.word()),
    }
}

fn as_json(reports: &[Report]) -> serde_json::Value {
    let row = |row: &Row| {
        json!({
            "feature": row.feature.name(), "advertised": row.is_advertised,
            "verdict": row.verdict(), "note": row.note(), "first_failure": row.first_failure,
        })
    };
    let port = |report: &Report| {
        let rows: Vec<_> = report.rows.iter().map(row).collect();
        json!({ "port": report.port, "passed": report.is_good(), "features": rows })
    };
    let is_good = reports.iter().all(Report::is_good);
    json!({ "passed": is_good, "ports": reports.iter().map(port).collect::<Vec<_>>() })
}

fn junit(reports: &[Report]) -> String {
    let mut document = quick_junit::Report::new("towpath qualify");
    for report in reports {
        let mut suite = TestSuite::new(report.port.as_str());
        for row in &report.rows {
            let mut status = match row.verdict() {
                Verdict::Works | Verdict::Unadvertised => TestCaseStatus::success(),
                Verdict::Fails => TestCaseStatus::non_success(NonSuccessKind::Failure),
                Verdict::No | Verdict::Untried => TestCaseStatus::skipped(),
            };
            if let Some(text) = second_try(row) {
                status.set_message(text);
            } else if !row.note().is_empty() {
                status.set_message(row.note());
            }
            let mut case = TestCase::new(row.feature.name(), status);
            case.set_classname(report.port.as_str());
            suite.add_test_case(case);
        }
        document.add_test_suite(suite);
    }
    // Writing to memory does not fail.
    document.to_string().unwrap_or_default()
}
