//! `bpf_trace_printk` and `bpf_trace_vprintk`: lines of text for debugging a program.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::print::{print, words};
use super::{Call, Table, cost, entry};

pub(super) const TABLE: Table = &[
    (id::TRACE_PRINTK, entry(trace_printk).costing(cost::of_a_walk)),
    (id::TRACE_VPRINTK, entry(trace_vprintk).costing(cost::of_a_walk)),
];

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
    let len = memchr::memchr(0, text).unwrap_or(text.len());
    print(call, (fmt, len as u64), values, |call, text| {
        call.trace(text);
        Ok(text.len() as u64)
    })
}

/// A format longer than this is not a constant string of a program.
const FORMAT_BYTES_MAX: u64 = 4096;
