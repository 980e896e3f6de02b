//! Formatted text into memory or into the program's stream.

use std::borrow::Cow;
use std::time::Duration;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::format::format;
use super::{Call, KfuncTable, Table, cost, entry};
use crate::printed::{Line, StreamId};

pub(super) const TABLE: Table = &[(id::SNPRINTF, entry(snprintf).costing(cost::of_a_walk))];

pub(super) const KFUNCS: KfuncTable = &[("bpf_stream_vprintk_impl", entry(stream))];

/// `bpf_snprintf(str, str_size, fmt, data, data_len)`: returns the length of the whole text, with
/// its NUL.
#[inline(always)]
fn snprintf(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [out, size, fmt, data, len] = args;
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    let mut text = std::mem::take(&mut call.run.worker.text);
    text.clear();
    let constant = constant_text(call, fmt)?;
    let length = match format(call.run, &constant, values.as_ref(), &mut text) {
        Ok(()) => text.len() as u64 + 1,
        Err(errno) => return Ok(errno.to_reg()),
    };
    if let Some(room) = (size as u32 as usize).checked_sub(1) {
        text.truncate(room);
        text.push(0);
        call.write(out, &text)?;
    }
    call.run.worker.text = text;
    Ok(length)
}

/// `bpf_stream_vprintk_impl(stream, fmt, args, len, aux)`: prints into a stream of the running
/// program, standard output (1) or error (2). A trace that records all output also gets the text.
#[inline(always)]
fn stream(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [stream, fmt, data, len, _] = args;
    let Some(stream) = StreamId::from_number(stream) else { return Ok(Errno::ENOENT.to_reg()) };
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    let len = constant_text(call, fmt)?.len() as u64;
    print(call, (fmt, len), values.as_ref(), |call, text| {
        if call.run.surroundings.trace.has_streams() {
            call.trace(text);
        }
        let code = call.callbacks.code();
        let program = call.run.surroundings.programs.of_code(&code).ok_or(Errno::ENOENT)?;
        program.streams.push(stream, text).map(|()| 0)
    })
}

/// Formats a line and passes it to `keep`, whose result the program gets. The format is given by
/// its address and length.
pub(super) fn print<'r>(
    call: &mut Call<'_, 'r>,
    (fmt, len): (u64, u64),
    values: &[u64],
    keep: impl FnOnce(&Call<'_, 'r>, &[u8]) -> Result<u64, Errno>,
) -> Result<u64, Stop> {
    let mut text = std::mem::take(&mut call.run.worker.text);
    text.clear();
    let formatted = format(call.run, &call.run.view(fmt, len)?, values, &mut text);
    let result = formatted.and_then(|()| keep(call, &text));
    call.run.worker.text = text;
    Ok(result.unwrap_or_else(Errno::to_reg))
}

impl Call<'_, '_> {
    /// Sends a line to listeners of programs' output.
    pub(super) fn trace(&self, text: &[u8]) {
        let trace = &self.run.surroundings.trace;
        if trace.is_kept() {
            trace.push(Line {
                worker: self.run.worker.number(),
                time: monotonic(),
                program: self.callbacks.code().name.clone(),
                text: String::from_utf8_lossy(text).into_owned(),
            });
        }
    }
}

fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// The 8-byte arguments of a format.
pub(super) struct Words {
    words: [u64; VALUES_MAX],
    len: usize,
}

impl AsRef<[u64]> for Words {
    fn as_ref(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

/// The arguments at an address; `None` if there are too many or the last one is incomplete.
pub(super) fn words(call: &Call<'_, '_>, data: u64, len: u64) -> Result<Option<Words>, Stop> {
    let len = len as u32 as usize;
    if !len.is_multiple_of(8) || len > VALUES_MAX * 8 || (len != 0 && data == 0) {
        return Ok(None);
    }
    let mut words = [0; VALUES_MAX];
    for (word, at) in words[..len / 8].iter_mut().zip(0..) {
        *word = call.run.get(data + at * 8, 8)?;
    }
    Ok(Some(Words { words, len: len / 8 }))
}

/// Text that the verifier found in a read-only map, without its NUL.
fn constant_text<'c>(call: &'c Call<'_, '_>, addr: u64) -> Result<Cow<'c, [u8]>, Stop> {
    let mut len = 0;
    while len < FORMAT_BYTES_MAX && call.run.get(addr + len, 1)? != 0 {
        len += 1;
    }
    Ok(call.run.view(addr, len)?)
}

/// `MAX_BPRINTF_VARARGS`
const VALUES_MAX: usize = 12;
const FORMAT_BYTES_MAX: u64 = 4096;
