//! Memory available for frames: allocating more would succeed at first, and then get processes
//! killed when the pages are used.

use std::fs;
use std::path::Path;

use towpath_xdp::frame::arena::STRIDE_BYTES;

use crate::live::cpus::{CGROUPS, cgroup_path};

/// Checks that the given number of frames fits into the available memory.
///
/// # Errors
///
/// Fails if they do not fit; the message says how much memory they need, how much is available, and
/// how many frames would fit.
pub(crate) fn check_frames(frames: usize) -> Result<(), String> {
    let wanted = (frames as u64).saturating_mul(FRAME_BYTES);
    match available() {
        Some(available) if wanted > available => Err(format!(
            "[engine] frames = {frames}: they take {}, and {} are available; at most {} fit",
            gib(wanted),
            gib(available),
            available / FRAME_BYTES
        )),
        _ => Ok(()),
    }
}

pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// Bytes that processes can still allocate according to the kernel, limited by the cgroup.
pub(crate) fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    // Reserved huge pages are not contained in the available memory.
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let huge = field("HugePages_Free:").unwrap_or(0) * field("Hugepagesize:").unwrap_or(0);
    let there = (field("MemAvailable:")? + huge) << 10;
    Some(cgroup_left().map_or(there, |left| left.min(there)))
}

/// Bytes that the process's cgroup (version 2) may still allocate.
fn cgroup_left() -> Option<u64> {
    left(Path::new(CGROUPS), &cgroup_path()?)
}

/// The least that a cgroup and its ancestors leave below `memory.max`; `None` without a limit.
fn left(top: &Path, path: &Path) -> Option<u64> {
    let of = |cgroup: &Path| {
        let number = |file: &str| {
            let text = fs::read_to_string(top.join(cgroup).join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    };
    path.ancestors().filter_map(of).min()
}

/// Bytes per frame: its buffer and its metadata.
const FRAME_BYTES: u64 = STRIDE_BYTES as u64 + 128;
const _: () = assert!(FRAME_BYTES > STRIDE_BYTES as u64, "a frame has a header beside its buffer");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_no_more_than_those_around_it_leave() {
        let top = std::env::temp_dir().join(format!("towpath-memory-{}", std::process::id()));
        let inner = Path::new("a/b/c");
        fs::create_dir_all(top.join(inner)).unwrap();
        let put = |at: &str, max: &str, current: &str| {
            fs::write(top.join(at).join("memory.max"), max).unwrap();
            fs::write(top.join(at).join("memory.current"), current).unwrap();
        };
        assert_eq!(left(&top, inner), None, "the first one has no such files");
        put("a/b/c", "max\n", "1000\n");
        assert_eq!(left(&top, inner), None);
        put("a", "5000\n", "3500\n");
        assert_eq!(left(&top, inner), Some(1500), "others in the slice count");
        put("a/b/c", "1200\n", "1000\n");
        put("a/b", "nonsense\n", "7\n");
        assert_eq!((left(&top, inner), left(&top, Path::new(""))), (Some(200), None));
        put("a", "5000\n", "6000\n");
        assert_eq!(left(&top, inner), Some(0));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn more_than_there_is_is_refused() {
        check_frames(1024).expect("some megabytes");
        let why = check_frames(1 << 40).expect_err("petabytes");
        assert!(
            why.contains("[engine] frames = 1099511627776") && why.contains("at most"),
            "{why}"
        );
    }
}
