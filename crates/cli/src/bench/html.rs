//! The report: one self-contained HTML file, with a chart for each engine and all figures.

use std::fmt::Write as _;
use std::path::Path;

use towpath_testing::escaped;

use super::result::{Entry, Results};
use crate::error::CliError;
use crate::files;

/// Writes the report.
pub(super) fn write(path: &Path, results: &Results) -> Result<(), CliError> {
    files::write(path, document(results).as_bytes())
}

fn document(results: &Results) -> String {
    let mut body = String::new();
    let method = &results.method;
    let against = escaped(results.against);
    for (exec, mean) in &results.geomean {
        let mut entries: Vec<&Entry> =
            results.programs.iter().filter(|entry| entry.exec == exec).collect();
        entries.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
        let count = entries.len();
        let mean = mean.as_f64().map_or("nothing measured".to_owned(), |mean| {
            format!("{mean:.2} times as fast as {against}: geometric mean of {count} programs")
        });
        body += &format!("<h2>{}</h2><p class=mean>{mean}</p>{}", escaped(exec), chart(&entries));
    }
    let flows: Vec<String> = method.flows.iter().map(u32::to_string).collect();
    let flows = format!("{} flows", flows.join(", "));
    let tables = if method.cold { ", large tables" } else { "" };
    let without = match method.without.is_empty() {
        true => String::new(),
        false => format!("; without {}", escaped(&method.without.join(", "))),
    };
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\">\
         <title>towpath bench</title><style>{STYLE}</style><h1>Towpath beside {against}</h1>\
         <p>Time of a program's work on one frame, an empty program subtracted on both sides. A \
         ratio above 1 is faster than {against}; whiskers show the least and the largest ratio of \
         a round.</p>\
         <p class=facts>Towpath {}, {} rounds of {} ms, {} buffers, {flows}{tables}{without}. \
         {}, Linux {}.</p>{body}{}{}{}{}",
        method.version,
        method.rounds,
        method.window_ms,
        method.buffers,
        escaped(&method.cpu),
        escaped(&method.kernel),
        table("Programs", &results.programs),
        table("Short programs, to be compared by nanoseconds", &results.short),
        table("Too little work to compare", &results.trivial),
        skipped(results),
    )
}

/// Bars on a logarithmic axis, so that half and twice are equally far from 1.
fn chart(entries: &[&Entry]) -> String {
    let exponents =
        entries.iter().flat_map(|e| e.spread).map(|ratio| ratio.log2().clamp(-10.0, 10.0));
    let (low, high) = exponents.fold((-1.0_f64, 1.0_f64), |(low, high), exponent| {
        (low.min(exponent.floor()), high.max(exponent.ceil()))
    });
    let x = |ratio: f64| {
        LABEL_WIDTH + (ratio.log2().clamp(low, high) - low) / (high - low) * PLOT_WIDTH
    };
    let height = entries.len() as f64 * ROW + AXIS;
    let width = LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH;
    let mut svg =
        format!("<svg viewBox=\"0 0 {width} {height}\" width={width} height={height} role=img>");
    for exponent in low as i32..=high as i32 {
        let ratio = f64::from(exponent).exp2();
        let (at, class) = (x(ratio), if exponent == 0 { "one" } else { "grid" });
        _ = write!(
            svg,
            "<line class={class} x1={at:.1} x2={at:.1} y1={AXIS} y2={height} />\
             <text class=axis x={at:.1} y={}>{ratio}</text>",
            AXIS - 6.0
        );
    }
    for (row, entry) in entries.iter().enumerate() {
        svg += &bar(entry, AXIS + row as f64 * ROW, &x);
    }
    svg + "</svg>"
}

/// One program's label, bar, whisker and ratio.
fn bar(entry: &Entry, top: f64, x: &dyn Fn(f64) -> f64) -> String {
    let (one, end) = (x(1.0), x(entry.ratio));
    let (left, width) = (one.min(end), (end - one).abs());
    let [least, most] = entry.spread.map(x);
    let (middle, text) = (top + ROW / 2.0, top + ROW / 2.0 + 4.0);
    let class = if entry.ratio >= 1.0 { "fast" } else { "slow" };
    let title =
        format!("{} ({}): {:.1} ns, {:.1} ns", entry.name, entry.object, entry.ns, entry.peer_ns);
    format!(
        "<g><title>{}</title><text class=name x={} y={text:.1}>{}</text>\
         <rect class={class} x={left:.1} y={:.1} width={width:.1} height={} />\
         <line class=whisker x1={least:.1} x2={most:.1} y1={middle:.1} y2={middle:.1} />\
         <text x={} y={text:.1}>{:.2}</text></g>",
        escaped(&title),
        LABEL_WIDTH - 8.0,
        escaped(&entry.name_and_flows()),
        top + 3.0,
        ROW - 6.0,
        LABEL_WIDTH + PLOT_WIDTH + 8.0,
        entry.ratio,
    )
}

fn table(title: &str, entries: &[Entry]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
    let mut html = format!(
        "<h2>{title}</h2><table><tr><th>program<th>engine<th>ns<th>peer ns<th>ratio<th>spread\
         <th>difference in ns<th>returns<th>executed<th>frame<th>frame bytes<th>instructions\
         <th>verified in \u{b5}s\
         <th>compiled in \u{b5}s<th>peer loaded in \u{b5}s<th>object"
    );
    for entry in sorted {
        let ran = if entry.ran == entry.exec { "" } else { " (ran: " };
        let ran = if ran.is_empty() { String::new() } else { format!("{ran}{})", entry.ran) };
        let [least, most] = entry.spread;
        _ = write!(
            html,
            "<tr><td>{}<td>{}{ran}<td>{:.1}<td>{:.1}<td>{:.2}<td>{least:.2} to {most:.2}<td>{:+.1}\
             <td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.0}<td>{:.0}<td>{:.0}<td>{}",
            escaped(&entry.name_and_flows()),
            entry.exec,
            entry.ns,
            entry.peer_ns,
            entry.ratio,
            entry.difference_ns,
            entry.verdict,
            entry.executed,
            entry.frame,
            entry.frame_bytes,
            entry.insns,
            entry.verify_us,
            entry.compile_us,
            entry.peer_load_us,
            escaped(&entry.object),
        );
    }
    html + "</table>"
}

fn skipped(results: &Results) -> String {
    if results.skipped.is_empty() {
        return String::new();
    }
    let mut html = "<h2>Not measured</h2><table><tr><th>program<th>reason<th>object".to_owned();
    for skipped in &results.skipped {
        let cells = [&skipped.name, &skipped.reason, &skipped.object].map(|text| escaped(text));
        _ = write!(html, "<tr><td>{}<td class=text>{}<td>{}", cells[0], cells[1], cells[2]);
    }
    html + "</table>"
}

const LABEL_WIDTH: f64 = 250.0;
const PLOT_WIDTH: f64 = 600.0;
const VALUE_WIDTH: f64 = 60.0;
const ROW: f64 = 20.0;
const AXIS: f64 = 28.0;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2rem auto;padding:0 1rem;\
color:#1d2733;background:#fff}\
h1{font-size:1.6rem}h2{font-size:1.15rem;margin:2rem 0 .4rem}.mean{font-weight:600}\
.facts{color:#5a6673;font-size:.9rem}svg{max-width:100%;height:auto;font-size:12px;fill:#1d2733}\
.name{text-anchor:end}.axis{text-anchor:middle;fill:#5a6673}.grid{stroke:#dfe4ea}\
.one{stroke:#1d2733;stroke-width:1.5}.fast{fill:#2f855a}.slow{fill:#c05621}\
.whisker{stroke:#1d2733;stroke-opacity:.55}\
table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums;display:block;\
overflow-x:auto}td,th{padding:.22rem .6rem;border-bottom:1px solid #e3e8ee;text-align:right;\
white-space:nowrap}td:first-child,th:first-child,td:last-child,th:last-child,.text{text-align:left}\
td.text{white-space:normal}\
@media(prefers-color-scheme:dark){body{background:#14181d;color:#dfe6ee}svg{fill:#dfe6ee}\
.one,.whisker{stroke:#dfe6ee}.grid{stroke:#2c353f}td,th{border-color:#2c353f}\
.facts,.axis{color:#93a1b0;fill:#93a1b0}.fast{fill:#48a873}.slow{fill:#dd7a3b}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_objects_stay_text() {
        let (name, flows) = ("<b>&".to_owned(), 1);
        let entry = Entry { name, flows, exec: "jit", ratio: 2.0, ..Entry::default() };
        let mut results = Results { programs: vec![entry], ..Results::default() };
        results.method.flows = vec![flows];
        results.finish(&["jit"]);
        let html = document(&results);
        assert!(html.contains("&lt;b&gt;&amp;") && !html.contains("<b>"), "{html}");
        assert!(html.contains("2.00 times as fast"), "{html}");
    }
}
