//! Names for `perf`: with `TOWPATH_PERF_MAP=1` in the environment, each compiled function's address
//! is added to `/tmp/perf-PID.map`, where perf looks for those of code that no file contains.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::LazyLock;

use crate::xir::Module;

/// Tells perf about the functions at `offsets` of `code`: the module's in order, then others.
pub(crate) fn note(tier: &str, module: &Module, code: &[u8], offsets: &[usize]) {
    static WANTED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("TOWPATH_PERF_MAP").is_some_and(|value| value == "1"));
    if !*WANTED {
        return;
    }
    let lines: String = lines(tier, module, code, offsets);
    let path = format!("/tmp/perf-{}.map", std::process::id());
    // Not through a link somebody else may have put there. What cannot be written is not missed.
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
    let _ = file.and_then(|mut file| file.write_all(lines.as_bytes()));
}

fn lines(tier: &str, module: &Module, code: &[u8], offsets: &[usize]) -> String {
    let program = module.functions.first().map_or("program", |function| &function.name);
    let mut sorted: Vec<(usize, usize)> =
        offsets.iter().enumerate().map(|(index, &offset)| (offset, index)).collect();
    sorted.sort_unstable();
    let ends = sorted.iter().skip(1).map(|&(offset, _)| offset).chain([code.len()]);
    let line = |((offset, index), end): ((usize, usize), usize)| {
        let function = module.functions.get(index).map_or("entry", |function| &function.name);
        let address = code.as_ptr() as usize + offset;
        let bytes = end.saturating_sub(offset);
        format!("{address:x} {bytes:x} towpath_{tier}::{program}::{function}\n")
    };
    sorted.iter().copied().zip(ends).map(line).collect()
}
