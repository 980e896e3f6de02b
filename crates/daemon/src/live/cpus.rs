//! How many workers `[engine] workers = "auto"` is: by the CPUs that we may run on, and by the time
//! that our cgroup may take of them.

use std::fs;
use std::path::{Path, PathBuf};

/// All CPUs but one, for everything else that there is to do; no more than our cgroup has the time
/// of; one at least.
pub(crate) fn workers() -> usize {
    let limit = cgroup_path().and_then(|path| limit(Path::new(CGROUPS), &path));
    workers_of(allowed(), limit)
}

fn workers_of(cpus: usize, limit: Option<f64>) -> usize {
    let free = cpus.saturating_sub(1);
    // A part of a CPU is not enough for a worker that may have to be at work all the time.
    limit.map_or(free, |limit| free.min(limit as usize)).max(1)
}

/// CPUs that we may run on (`sched_getaffinity`).
fn allowed() -> usize {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(1, |set| set.count() as usize)
}

/// Where our cgroup (version 2) is, from the first one on.
pub(crate) fn cgroup_path() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_start_matches('/').into())
}

/// The CPUs whose time a cgroup may take, by its own limit and those of the ones around it
/// (`cpu.max`); nothing without any.
fn limit(top: &Path, path: &Path) -> Option<f64> {
    let around = path.ancestors().map(|path| top.join(path));
    let limits = around.filter_map(|path| cpus(&fs::read_to_string(path.join("cpu.max")).ok()?));
    limits.min_by(f64::total_cmp)
}

/// CPUs by a line of `cpu.max`: microseconds of processor time, and those of the period that they
/// are for.
fn cpus(line: &str) -> Option<f64> {
    let (quota, period) = line.trim().split_once(' ')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0);
    Some(number(quota)? as f64 / number(period)? as f64)
}

/// Where cgroups of version 2 are mounted.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_is_for_everything_else() {
        let all = [(1, None, 1), (2, None, 1), (16, None, 15), (0, None, 1)];
        let limited = [(16, Some(4.0), 4), (16, Some(2.5), 2), (16, Some(0.5), 1)];
        let wide = [(4, Some(64.0), 3), (1, Some(1.0), 1)];
        for (cpus, limit, workers) in [&all[..], &limited, &wide].concat() {
            assert_eq!(workers_of(cpus, limit), workers, "{cpus} CPUs, limit {limit:?}");
        }
    }

    #[test]
    fn a_cgroup_has_no_more_than_those_around_it() {
        let top = std::env::temp_dir().join(format!("towpath-cpus-{}", std::process::id()));
        let inner = Path::new("a/b/c");
        fs::create_dir_all(top.join(inner)).unwrap();
        let put = |at: &str, text: &str| fs::write(top.join(at).join("cpu.max"), text).unwrap();
        assert_eq!(limit(&top, inner), None, "the first one has no such file");
        put("a/b/c", "max 100000\n");
        assert_eq!(limit(&top, inner), None);
        put("a", "350000 100000\n");
        assert_eq!(limit(&top, inner), Some(3.5));
        put("a/b/c", "20000 10000\n");
        put("a/b", "nonsense\n");
        assert_eq!((limit(&top, inner), limit(&top, Path::new(""))), (Some(2.0), None));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn there_is_a_worker_here() {
        assert!((1..=allowed()).contains(&workers()));
    }
}
