//! Coverage as a page: a summary of all files, and the lines of each C file whose source still
//! exists. The style is in `page.css`.

use std::fmt::Write as _;

use crate::coverage::{Coverage, SourceFile, SourceLine, file_name};
use crate::html::escaped;

/// A page without scripts and without references to other files.
pub(crate) fn page(coverage: &Coverage) -> String {
    let mut html = format!("{HEAD}<style>{STYLE}</style></head><body><h1>Coverage</h1>");
    let _written = write!(
        html,
        "<p>The number beside a line says how often it was reached, the next how many of the ways \
         out of its conditional jumps were taken.</p><table class=\"files\">\
         <tr><th>file</th><th colspan=\"2\">lines</th><th colspan=\"2\">branches</th></tr>"
    );
    for (index, (path, file)) in coverage.files.iter().enumerate() {
        let name = escaped(file_name(path));
        let _written = write!(html, "<tr><td><a href=\"#file{index}\">{name}</a></td>");
        for share in [file.lines_reached(), file.branches_reached()] {
            bar(&mut html, share);
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    for (index, (path, file)) in coverage.files.iter().enumerate() {
        let (name, whole) = (escaped(file_name(path)), escaped(path));
        let _written = write!(
            html,
            "<details open id=\"file{index}\"><summary>{name} <small>{whole}</small></summary>\
             <table class=\"code\">"
        );
        rows(&mut html, path, file);
        html.push_str("</table></details>");
    }
    html.push_str("</body></html>\n");
    html
}

/// Two cells: a bar as long as the share, and the numbers.
fn bar(html: &mut String, (some, all): (usize, usize)) {
    let Some(percent) = (some * 100).checked_div(all) else {
        html.push_str("<td></td><td class=\"share\">none</td>");
        return;
    };
    let class = match percent {
        90.. => "yes",
        70..90 => "half",
        _ => "no",
    };
    let _written = write!(
        html,
        "<td><div class=\"bar\"><div class=\"{class}\" style=\"width:{percent}%\"></div></div></td>\
         <td class=\"share\">{percent} % <small>{some} of {all}</small></td>"
    );
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
        let (ways, text) = (line.map_or(String::new(), ways), escaped(text));
        let _written = write!(
            html,
            "<tr class=\"{class}\"><td>{number}</td><td>{hits}</td><td>{ways}</td><td>{text}</td>\
             </tr>"
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

/// `3/4`: outcomes that were taken.
fn ways(line: &SourceLine) -> String {
    let ways = || line.branches.values().flatten();
    match ways().count() {
        0 => String::new(),
        all => format!("{}/{all}", ways().filter(|&&count| count > 0).count()),
    }
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>towpath: coverage</title>";
const STYLE: &str = include_str!("page.css");
