//! The number of workers for `[engine] workers = "auto"`, from the CPU affinity of the process and
//! the CPU limit of its cgroup.

use std::fs;
use std::path::{Path, PathBuf};

/// All CPUs but one, which is left for everything else; no more than the cgroup's CPU limit,
/// rounded down; at least one.
pub(crate) fn workers() -> usize {
    let limit = cgroup_path().and_then(|path| limit(Path::new(CGROUPS), &path));
    workers_of(allowed(), limit)
}

fn workers_of(cpus: usize, limit: Option<f64>) -> usize {
    let free = cpus.saturating_sub(1);
    // A fraction of a CPU is not enough for a worker, which may have to run all the time.
    limit.map_or(free, |limit| free.min(limit as usize)).max(1)
}

/// Number of CPUs that the process may run on (`sched_getaffinity`).
fn allowed() -> usize {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(1, |set| set.count() as usize)
}

/// Path of the process's cgroup (version 2) below the root cgroup.
pub(crate) fn cgroup_path() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_start_matches('/').into())
}

/// CPU limit of a cgroup: the smallest `cpu.max` of its own and its ancestors', in CPUs. `None`
/// without a limit.
fn limit(top: &Path, path: &Path) -> Option<f64> {
    let around = path.ancestors().map(|path| top.join(path));
    let limits = around.filter_map(|path| cpus(&fs::read_to_string(path.join("cpu.max")).ok()?));
    limits.min_by(f64::total_cmp)
}

/// The number of CPUs in a line of `cpu.max`, `QUOTA PERIOD` in microseconds; `None` without a
/// limit.
fn cpus(line: &str) -> Option<f64> {
    let (quota, period) = line.trim().split_once(' ')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|&number| number > 0);
    Some(number(quota)? as f64 / number(period)? as f64)
}

/// Mount point of cgroups, version 2.
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
