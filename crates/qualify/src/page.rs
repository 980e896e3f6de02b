//! Results as a page.

use crate::{Feature, Report};

/// `docs/features.md`: the results, as a page of Markdown.
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
    page.push_str("\n## Missing features\n\n| port | feature | |\n| --- | --- | --- |\n");
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

Output of `towpath qualify --markdown`, which sends, receives and checks. *works*: advertised and
working; **FAILS**: advertised, but broken; *works, not said*: working, but not advertised; *no*:
neither; `-`: impossible to test. Interfaces are veths; `kernel veth` is Linux 6.18's own XDP on
one. `+software` has hints in software (`rx_hash`, `rx_vlan`, `timestamp`), `+driver` has
`rx_hints = \"driver\"`.

";
