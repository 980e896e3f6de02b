//! What a benchmark found, and its JSON form.

use serde::Serialize;

/// The `--json` document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    /// Geometric mean of the ratios of `programs` for the first `--exec`.
    pub(super) geomean_ratio: Option<f64>,
    /// The same for every `--exec`.
    pub(super) geomean: serde_json::Map<String, serde_json::Value>,
    /// What was compared with.
    pub(super) against: &'static str,
    /// Programs with work to do.
    pub(super) programs: Vec<Entry>,
    /// Programs whose work is too short to be compared: not in the mean.
    pub(super) trivial: Vec<Entry>,
    /// Programs that were not measured.
    pub(super) skipped: Vec<Skipped>,
    /// How and where.
    pub(super) method: Method,
}

/// One program in one engine.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Entry {
    pub(super) name: String,
    /// As asked for with `--exec`.
    pub(super) exec: &'static str,
    /// Of one frame, an empty program's time subtracted; the median of all rounds.
    pub(super) ns: f64,
    pub(super) peer_ns: f64,
    /// The median of the rounds' ratios; above 1 is faster than the peer.
    pub(super) ratio: f64,
    pub(super) verify_us: f64,
    /// 0 when nothing was compiled.
    pub(super) compile_us: f64,
    pub(super) object: String,
    /// The least and the largest ratio of a round.
    pub(super) spread: [f64; 2],
    /// The program's return value.
    pub(super) verdict: u32,
    pub(super) frame_bytes: usize,
    /// Whether a run gets the frame that the run before left (`kept`), or one made anew
    /// (`rewritten`, and `resized` when the program changes its size).
    pub(super) frames: &'static str,
    /// BPF instructions.
    pub(super) insns: usize,
    /// What really executed it: `interp` where it could not be compiled.
    pub(super) ran: &'static str,
    /// The peer's time from instructions to a program that can run: verification and compilation.
    pub(super) peer_load_us: f64,
}

/// A program without a measurement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Skipped {
    pub(super) name: String,
    pub(super) object: String,
    pub(super) reason: String,
}

/// How the figures were made.
#[derive(Debug, Default, Serialize)]
pub(super) struct Method {
    pub(super) rounds: u32,
    pub(super) window_ms: u32,
    pub(super) buffers: usize,
    pub(super) without: Vec<String>,
    /// Different flows; 1 is the same frame over and over.
    pub(super) flows: u32,
    /// Hash tables were filled up.
    pub(super) cold: bool,
    pub(super) cpu: String,
    pub(super) kernel: String,
    pub(super) version: &'static str,
}

impl Results {
    /// Fills in the means; `execs` are those asked for, in order.
    pub(super) fn finish(&mut self, execs: &[&'static str]) {
        for &exec in execs {
            let ratios = self.programs.iter().filter(|e| e.exec == exec).map(|e| e.ratio);
            let mean = geometric_mean(ratios);
            self.geomean.insert(exec.to_owned(), mean.into());
            self.geomean_ratio = self.geomean_ratio.or(mean);
        }
    }
}

/// `None` of nothing.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    if logarithms.is_empty() {
        return None;
    }
    Some((logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

/// The middle of some values; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians() {
        assert_eq!(geometric_mean([].into_iter()), None);
        assert!((geometric_mean([1.0, 4.0].into_iter()).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
