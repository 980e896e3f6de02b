//! `bpf_trace_printk` and `bpf_trace_vprintk`: lines of text for whoever debugs the program.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::print::{print, words};
use super::{Call, Table, entry};

pub(super) const TABLE: Table =
    &[(id::TRACE_PRINTK, entry(trace_printk)), (id::TRACE_VPRINTK, entry(trace_vprintk))];

/// The last lines that programs printed. Bounded: old lines make room for new ones.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Mutex<VecDeque<String>>,
}

impl Trace {
    /// Takes all lines out, oldest first.
    pub fn take(&self) -> Vec<String> {
        self.lock().drain(..).collect()
    }

    pub(crate) fn push(&self, line: String) {
        let mut lines = self.lock();
        if lines.len() == TRACE_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bpf_trace_printk(fmt, fmt_size, arg1, arg2, arg3)`: returns the length of the text.
fn trace_printk(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [fmt, size, values @ ..] = args;
    printk(call, fmt, size, &values)
}

/// `bpf_trace_vprintk(fmt, fmt_size, data, data_len)`: arguments are 8-byte words in memory.
fn trace_vprintk(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [fmt, size, data, len, _] = args;
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    printk(call, fmt, size, values.as_ref())
}

fn printk(call: &mut Call<'_, '_>, fmt: u64, size: u64, values: &[u64]) -> Result<u64, Stop> {
    let bytes = call.run.view(fmt, u64::from(size as u32).min(FORMAT_BYTES_MAX))?;
    let Some((0, text)) = bytes.split_last() else {
        return Ok(Errno::EINVAL.to_reg());
    };
    print(call, text.split(|&byte| byte == 0).next().unwrap_or_default(), values)
}

/// Lines kept.
const TRACE_LINES_MAX: usize = 4096;
/// A format longer than this is not a constant string of a program.
const FORMAT_BYTES_MAX: u64 = 4096;
