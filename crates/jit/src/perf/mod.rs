//! Names of functions for `perf`, which can't find code outside of files: in a list of addresses,
//! and together with the code in a file that outlives the process.

mod dump_unsafe;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::LazyLock;

use crate::xir::Module;

/// A compiled function.
struct Named<'a> {
    /// Name in the form `towpath_TIER::PROGRAM::FUNCTION`.
    name: String,
    code: &'a [u8],
}

/// Reports the functions at `offsets` of `code`, the module's in order, then others, to perf: with
/// `TOWPATH_PERF_MAP=1` in the environment by `/tmp/perf-PID.map`, with `TOWPATH_JITDUMP=FOLDER` by
/// `jit-PID.dump` there. Errors of writing are ignored.
pub(crate) fn note(tier: &str, module: &Module, code: &[u8], offsets: &[usize]) {
    static WANTS_MAP: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("TOWPATH_PERF_MAP").is_some_and(|value| value == "1"));
    let dump = dump_unsafe::wanted();
    if !*WANTS_MAP && dump.is_none() {
        return;
    }
    let functions = functions(tier, module, code, offsets);
    if *WANTS_MAP {
        list(&functions);
    }
    if let Some(dump) = dump {
        functions.iter().for_each(|function| dump.add(function));
    }
}

/// Appends to the list at the path that perf expects.
fn list(functions: &[Named<'_>]) {
    let line = |Named { name, code }: &Named<'_>| {
        format!("{:x} {:x} {name}\n", code.as_ptr() as usize, code.len())
    };
    let lines: String = functions.iter().map(line).collect();
    let path = format!("/tmp/perf-{}.map", std::process::id());
    // A link that another user may have made is not followed.
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
    let _ = file.and_then(|mut file| file.write_all(lines.as_bytes()));
}

fn functions<'a>(tier: &str, module: &Module, code: &'a [u8], offsets: &[usize]) -> Vec<Named<'a>> {
    let program = module.functions.first().map_or("program", |function| &function.name);
    let mut sorted: Vec<(usize, usize)> =
        offsets.iter().enumerate().map(|(index, &offset)| (offset, index)).collect();
    sorted.sort_unstable();
    let ends = sorted.iter().skip(1).map(|&(offset, _)| offset).chain([code.len()]);
    let named = |((offset, index), end): ((usize, usize), usize)| {
        let function = module.functions.get(index).map_or("entry", |function| &function.name);
        let name = format!("towpath_{tier}::{program}::{function}");
        Named { name, code: code.get(offset..end).unwrap_or_default() }
    };
    sorted.iter().copied().zip(ends).map(named).collect()
}
