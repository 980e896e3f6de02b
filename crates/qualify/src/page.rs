//! What came out, as a page.

use crate::{Feature, Report};

/// `docs/features.md`: what came out, as a page of Markdown.
pub fn page(reports: &[Report]) -> String {
    let mut page = INTRODUCTION.to_owned();
    let names = reports.iter().map(|report| format!(" `{}` |", report.port));
    page.push_str(&format!("| |{}\n", names.collect::<String>()));
    page.push_str(&format!("| --- |{}\n", " --- |".repeat(reports.len())));
    for (index, feature) in Feature::ALL.iter().enumerate() {
        let cells = reports.iter().map(|report| format!(" {} |", report.rows[index].word()));
        page.push_str(&format!("| {} |{}\n", feature.name(), cells.collect::<String>()));
    }
    page.push_str("\n## Features\n\n| | |\n| --- | --- |\n");
    for feature in Feature::ALL {
        page.push_str(&format!("| {} | {} |\n", feature.name(), feature.text()));
    }
    page.push_str("\n## What is missing, and why\n\n| port | feature | |\n| --- | --- | --- |\n");
    for report in reports {
        let missing = report.rows.iter().filter(|row| !row.note().is_empty());
        for row in missing {
            let (port, feature, note) = (&report.port, row.feature.name(), row.note());
            page.push_str(&format!("| `{port}` | {feature} | {note} |\n"));
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Features of port kinds

Made by `towpath qualify --markdown`, which sends, receives and checks: *works* is advertised and
does, **FAILS** is advertised and does not, *works, not said* is not advertised, *no* is neither,
and `-` could not be tried. Interfaces are veths; `kernel veth` is what Linux 6.18 makes of one
with XDP of its own. `+software` are hints in software (`rx_hash`, `rx_vlan`, `timestamp`),
`+driver` is `rx_hints = \"driver\"`.

";
