//! The table, and the same as JSON.

use std::fmt;

use serde_json::{Value, json};
use towpath_bench::median;

use crate::first::First;
use crate::large::Large;
use crate::order::{Early, Order};

/// Runs a second of one program on one number of threads, in each round.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    pub(crate) here: Vec<f64>,
    pub(crate) kernel: Vec<f64>,
}

/// The figures of one program.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) figures: Vec<Sides>,
}

impl Sides {
    /// Millions of runs a second, here and there.
    fn middles(&self) -> [f64; 2] {
        [&self.here, &self.kernel].map(|figures| median(figures).0 / 1e6)
    }

    /// Ours as a multiple of the kernel's: the middle of the rounds'.
    fn ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.here.iter().zip(&self.kernel).map(|(a, b)| a / b).collect();
        median(&ratios).0
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Numbers of threads.
    pub(crate) counts: Vec<usize>,
    pub(crate) rows: Vec<Row>,
    pub(crate) orders: Vec<Order>,
    pub(crate) firsts: Vec<First>,
    pub(crate) large: Vec<Large>,
}

pub(crate) fn heading(counts: &[usize]) -> String {
    let columns: String = counts.iter().map(|threads| format!("{threads:>22}")).collect();
    format!("millions of runs a second: here | kernel (ratio)\n{:20}{columns}", "threads")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:20}", self.name)?;
        for sides in &self.figures {
            let [here, kernel] = sides.middles();
            if kernel.is_nan() {
                write!(f, "{here:>22.1}")?;
            } else {
                let column = format!("{here:.1} | {kernel:.1} ({:.2})", sides.ratio());
                write!(f, "{column:>22}")?;
            }
        }
        write!(f, "   {}", self.about)
    }
}

/// Processor, their number, and the kernel.
pub(crate) fn machine() -> String {
    let of = |path| std::fs::read_to_string(path).unwrap_or_default();
    let info = of("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = info.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = of("/proc/sys/kernel/osrelease");
    let model = model.map_or("unknown processor", |(_, name)| name);
    format!("{model}, {cpus} processors, kernel {}", kernel.trim())
}

impl Measured {
    pub(crate) fn json(&self, options: &str) -> Value {
        json!({
            "benchmark": "scale", "machine": machine(), "options": options,
            "programs": self.rows.iter().map(|row| of_row(row, &self.counts)).collect::<Vec<_>>(),
            "evicted_too_early": self.orders.iter().map(of_order).collect::<Vec<_>>(),
            "first_insertions": self.firsts.iter().map(of_first).collect::<Vec<_>>(),
            "large_tables": self.large.iter().map(of_large).collect::<Vec<_>>(),
        })
    }
}

fn of_row(row: &Row, counts: &[usize]) -> Value {
    let column = |(threads, sides): (&usize, &Sides)| {
        let [here, kernel] = sides.middles();
        json!({
            "threads": threads, "here_mrps": rounded(here), "kernel_mrps": rounded(kernel),
            "ratio": rounded(sides.ratio()),
        })
    };
    let columns: Vec<Value> = counts.iter().zip(&row.figures).map(column).collect();
    json!({ "program": row.name, "about": row.about, "figures": columns })
}

fn of_early(early: &Early) -> Value {
    let [median, most_of_all, most] = early.younger;
    json!({
        "missing": early.missing, "younger_p50": median, "younger_p99": most_of_all,
        "younger_max": most,
    })
}

fn of_order(order: &Order) -> Value {
    let kernel = order.kernel.as_ref().map(of_early);
    json!({ "threads": order.threads, "here": of_early(&order.here), "kernel": kernel })
}

fn of_first(first: &First) -> Value {
    let [here, kernel, ratio] = first.figures().map(rounded);
    json!({
        "program": first.program, "flows": first.flows, "here_ns": here, "kernel_ns": kernel,
        "ratio": ratio,
    })
}

fn of_large(large: &Large) -> Value {
    let [here, plain, kernel, share] = large.figures().map(rounded);
    json!({
        "kind": large.kind, "flows": large.flows, "here_ns": here, "without_ahead_ns": plain,
        "kernel_ns": kernel, "share": share,
    })
}

/// Three digits after the point; nothing where nothing was measured.
fn rounded(figure: f64) -> Option<f64> {
    figure.is_finite().then(|| (figure * 1000.0).round() / 1000.0)
}
