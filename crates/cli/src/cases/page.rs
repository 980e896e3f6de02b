//! Coverage as a page: each C file with its lines, where the source is still there.

use std::fmt::Write as _;

use super::coverage::{Coverage, SourceFile, SourceLine, share};
use crate::output::escaped;

/// A page without scripts and without anything from elsewhere.
pub(super) fn page(coverage: &Coverage) -> String {
    let mut html = HEAD.to_owned();
    for (path, file) in &coverage.files {
        let (lines, branches) = (share(file.lines_reached()), share(file.branches_reached()));
        let path = escaped(path);
        let _written =
            write!(html, "<h2>{path}</h2><p>lines {lines}, branches {branches}</p><table>");
        rows(&mut html, &path, file);
        html.push_str("</table>");
    }
    html.push_str("</body></html>\n");
    html
}

fn rows(html: &mut String, path: &str, file: &SourceFile) {
    let source = std::fs::read_to_string(path).unwrap_or_default();
    let source: Vec<&str> = source.lines().collect();
    let first = file.lines.keys().next().copied().unwrap_or(1);
    let last = file.lines.keys().last().copied().unwrap_or(0).max(source.len() as u32);
    for number in if source.is_empty() { first } else { 1 }..=last {
        let line = file.lines.get(&number);
        let text = source.get(number as usize - 1).copied();
        let Some(text) = text.or(line.map(|line| &*line.text)) else { continue };
        let class = line.map_or("", class);
        let hits = line.map_or(String::new(), |line| line.hits.to_string());
        let text = escaped(text);
        let _written = write!(
            html,
            "<tr class=\"{class}\"><td>{number}</td><td>{hits}</td><td>{text}</td></tr>"
        );
    }
}

fn class(line: &SourceLine) -> &'static str {
    let is_partial = line.branches.values().flatten().any(|&count| count == 0);
    match (line.hits, is_partial) {
        (0, _) => "no",
        (_, true) => "half",
        _ => "yes",
    }
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<title>towpath: coverage</title><style>\
body{font:14px sans-serif;margin:2em;color:#222;background:#fff}\
table{border-collapse:collapse;font:13px monospace}\
td{padding:0 .8em;white-space:pre}td:nth-child(-n+2){text-align:right;color:#777}\
.yes td:nth-child(2){background:#cfe8cf}.half td:nth-child(2){background:#f5e6b3}\
.no td:nth-child(n+2){background:#f3cfcf}\
</style></head><body><h1>Coverage</h1>\
<p>The second column counts how often a line was reached; yellow: not both ways out of it.</p>";
