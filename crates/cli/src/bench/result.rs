//! Results of a benchmark, and their JSON form.

use serde::Serialize;

use super::profile::ProfileLine;

/// The `--json` document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    /// Geometric mean of the ratios of `programs` for the first `--exec`: the least of the means of
    /// all numbers of flows.
    pub(super) geomean_ratio: Option<f64>,
    /// The geometric mean as above, for every `--exec`.
    pub(super) geomean: serde_json::Map<String, serde_json::Value>,
    /// Geometric mean for each number of flows, for every `--exec`.
    pub(super) geomean_by_flows: serde_json::Map<String, serde_json::Value>,
    /// The peer that was compared with.
    pub(super) against: &'static str,
    /// Programs with work to do.
    pub(super) programs: Vec<Entry>,
    /// Programs that take the peer a few nanoseconds, so that a difference says more than a ratio:
    /// they are left out of the geometric mean.
    pub(super) short: Vec<Entry>,
    /// Differences of the programs in `short`, for every `--exec`.
    pub(super) differences: serde_json::Map<String, serde_json::Value>,
    /// Programs whose work is too short to be compared, on every side.
    pub(super) trivial: Vec<Entry>,
    /// Programs that were not measured.
    pub(super) skipped: Vec<Skipped>,
    /// How and where the figures were made.
    pub(super) method: Method,
}

/// One program in one engine.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Entry {
    pub(super) name: String,
    /// Value of `--exec`.
    pub(super) exec: &'static str,
    /// Number of different flows of its frames, new ones among them; with 1, no flow is new.
    pub(super) flows: u32,
    /// Time for one frame without an empty program's time; the median of all rounds.
    pub(super) ns: f64,
    pub(super) peer_ns: f64,
    /// The median of the rounds' ratios; above 1 is faster than the peer.
    pub(super) ratio: f64,
    /// Median of the rounds' differences to the peer, in nanoseconds; below 0 is faster.
    pub(super) difference_ns: f64,
    pub(super) verify_us: f64,
    /// Compile time; 0 if nothing was compiled.
    pub(super) compile_us: f64,
    pub(super) object: String,
    /// The least and the largest ratio of the rounds.
    pub(super) spread: [f64; 2],
    /// The program's return value.
    pub(super) verdict: u32,
    /// Instructions that the interpreter executes for the frame.
    pub(super) executed: u64,
    /// The frame's number among the candidates, as `--frame` takes it.
    pub(super) frame: usize,
    pub(super) frame_bytes: usize,
    /// Whether a run gets the frame as the previous run left it (`kept`), or a fresh one
    /// (`rewritten`, or `resized` if the program changes its size).
    pub(super) frames: &'static str,
    /// Number of BPF instructions.
    pub(super) insns: usize,
    /// Settings that the object leaves to its loader and that were not given: the program may have
    /// done little for that reason.
    pub(super) leftover: Vec<String>,
    /// The engine that really executed it: `interp` if it could not be compiled.
    pub(super) ran: &'static str,
    /// Time of the peer from instructions to a runnable program: verification and compilation.
    pub(super) peer_load_us: f64,
    /// Time of the program by C line, most first; with `--profile` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) profile: Vec<ProfileLine>,
}

impl Entry {
    /// Name of the entry in a table, with its number of flows.
    pub(super) fn name_and_flows(&self) -> String {
        match self.flows {
            1 => self.name.clone(),
            flows => format!("{}, {flows} flows", self.name),
        }
    }
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
    /// Numbers of different flows that were measured; 1 is the same frame repeated.
    pub(super) flows: Vec<u32>,
    /// Whether hash tables were filled up.
    pub(super) cold: bool,
    pub(super) cpu: String,
    pub(super) kernel: String,
    pub(super) version: &'static str,
}

/// Way in which a program's figures may be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Compared by ratio.
    Measured,
    /// Compared by nanoseconds.
    Short,
    /// Not compared at all.
    Trivial,
}

impl Class {
    /// Class of a program, from the figures of each engine.
    pub(super) fn of(entries: &[Entry]) -> Self {
        let is_trivial = |entry: &Entry| entry.ns.max(entry.peer_ns) < TRIVIAL_NS;
        if entries.iter().all(is_trivial) {
            Class::Trivial
        } else if entries.iter().any(|entry| entry.peer_ns < SHORT_NS) {
            Class::Short
        } else {
            Class::Measured
        }
    }
}

/// Differences of short programs to the peer in one engine.
#[derive(Debug, PartialEq, Serialize)]
struct Differences {
    mean_ns: f64,
    /// The largest difference, and below the program that has it.
    most_ns: f64,
    most: String,
    /// Number of programs that are slower by more than a nanosecond.
    slower: usize,
}

impl Differences {
    fn of<'a>(entries: impl Iterator<Item = &'a Entry> + Clone) -> Option<Self> {
        let most = entries
            .clone()
            .max_by(|one, other| one.difference_ns.total_cmp(&other.difference_ns))?;
        let sum: f64 = entries.clone().map(|entry| entry.difference_ns).sum();
        Some(Differences {
            mean_ns: sum / entries.clone().count() as f64,
            most_ns: most.difference_ns,
            most: most.name.clone(),
            slower: entries.filter(|entry| entry.difference_ns > 1.0).count(),
        })
    }
}

impl Results {
    /// Adds a program's entries to the list of its class.
    pub(super) fn add(&mut self, class: Class, entries: Vec<Entry>) {
        let list = match class {
            Class::Measured => &mut self.programs,
            Class::Short => &mut self.short,
            Class::Trivial => &mut self.trivial,
        };
        list.extend(entries);
    }

    /// Fills in the means; `execs` are the values of `--exec`, in their order.
    pub(super) fn finish(&mut self, execs: &[&'static str]) {
        for &exec in execs {
            let mut means = serde_json::Map::new();
            let mut least = None;
            for &flows in &self.method.flows {
                let mine = |entry: &&Entry| entry.exec == exec && entry.flows == flows;
                let mean = geometric_mean(self.programs.iter().filter(mine).map(|e| e.ratio));
                means.insert(flows.to_string(), mean.into());
                least = mean.or(least).map(|mean| mean.min(least.unwrap_or(mean)));
            }
            let mean = least;
            self.geomean.insert(exec.to_owned(), mean.into());
            self.geomean_by_flows.insert(exec.to_owned(), means.into());
            self.geomean_ratio = self.geomean_ratio.or(mean);
            let differences = Differences::of(self.short.iter().filter(|e| e.exec == exec));
            let differences = serde_json::to_value(differences).unwrap_or_default();
            self.differences.insert(exec.to_owned(), differences);
        }
    }
}

/// Below this time on every side, the work is lost in the cost of the call.
pub(super) const TRIVIAL_NS: f64 = 5.0;
/// Below this time of the peer, a difference of a nanosecond would make a misleading ratio.
const SHORT_NS: f64 = 12.0;

/// Geometric mean; `None` if there are no values.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    if logarithms.is_empty() {
        return None;
    }
    Some((logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

/// Median of the values; 0 if there are none.
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

    fn entry(exec: &'static str, ns: f64, peer_ns: f64) -> Entry {
        let name = format!("takes {ns}");
        Entry { name, exec, ns, peer_ns, difference_ns: ns - peer_ns, ..Entry::default() }
    }

    #[test]
    fn a_short_program_is_compared_by_nanoseconds_unless_nobody_works() {
        assert_eq!(Class::of(&[entry("jit", 4.9, 4.9)]), Class::Trivial);
        // Slow here alone is not "too little work".
        assert_eq!(Class::of(&[entry("jit", 85.0, 0.5)]), Class::Short);
        assert_eq!(Class::of(&[entry("jit", 1.0, 1.0), entry("llvm", 6.0, 1.0)]), Class::Short);
        assert_eq!(Class::of(&[entry("jit", 3.0, 12.0)]), Class::Measured);
    }

    #[test]
    fn differences_of_short_programs_are_summed_up() {
        let mut results = Results::default();
        for (ns, peer_ns) in [(4.0, 6.0), (9.0, 6.0), (6.5, 6.0)] {
            results.add(Class::Short, vec![entry("jit", ns, peer_ns)]);
        }
        results.finish(&["jit", "llvm"]);
        let found = &results.differences["jit"];
        assert_eq!((&found["mean_ns"], &found["most_ns"]), (&0.5.into(), &3.0.into()));
        assert_eq!((&found["most"], &found["slower"]), (&"takes 9".into(), &1.into()));
        assert!(results.differences["llvm"].is_null());
    }

    #[test]
    fn means_and_medians() {
        assert_eq!(geometric_mean([].into_iter()), None);
        assert!((geometric_mean([1.0, 4.0].into_iter()).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
