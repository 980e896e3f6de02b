//! How much memory there is for frames: to ask for more would end in the middle, with the machine's
//! other processes killed.

use std::fs;
use std::path::Path;

use towpath_xdp::frame::arena::STRIDE_BYTES;

use crate::live::cpus::{CGROUPS, cgroup_path};

/// Whether so many frames fit the memory that is available.
///
/// # Errors
///
/// They don't: how much they take, how much there is, and how many would fit.
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

/// Bytes that processes can still get, as far as the kernel says; less where our cgroup has less.
pub(crate) fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    // Huge pages that are reserved are no part of what is available otherwise.
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let huge = field("HugePages_Free:").unwrap_or(0) * field("Hugepagesize:").unwrap_or(0);
    let there = (field("MemAvailable:")? + huge) << 10;
    Some(cgroup_left().map_or(there, |left| left.min(there)))
}

/// What our cgroup (version 2) may still take.
fn cgroup_left() -> Option<u64> {
    let cgroup = Path::new(CGROUPS).join(cgroup_path()?);
    let number = |file: &str| {
        let text = fs::read_to_string(cgroup.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

/// A frame's buffer, and what is known of it.
const FRAME_BYTES: u64 = STRIDE_BYTES as u64 + 128;
const _: () = assert!(FRAME_BYTES > STRIDE_BYTES as u64, "a frame has a header beside its buffer");

#[cfg(test)]
mod tests {
    use super::*;

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
