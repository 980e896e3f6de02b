//! Formatted text into memory or into the program's stream.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::format::format;
use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[(id::SNPRINTF, entry(snprintf))];

pub(super) const KFUNCS: KfuncTable = &[("bpf_stream_vprintk_impl", entry(stream))];

/// `bpf_snprintf(str, str_size, fmt, data, data_len)`: the length the whole text has with its NUL.
#[inline(always)]
fn snprintf(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [out, size, fmt, data, len] = args;
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    let mut text = std::mem::take(&mut call.run.worker.text);
    text.clear();
    let length = match format(call.run, constant_text(call, fmt)?, values.as_ref(), &mut text) {
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

/// `bpf_stream_vprintk_impl(stream, fmt, args, len, aux)`: standard output (1) and error (2) of the
/// program are its trace.
#[inline(always)]
fn stream(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [stream, fmt, data, len, _] = args;
    if !matches!(stream, 1 | 2) {
        return Ok(Errno::ENOENT.to_reg());
    }
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    print(call, constant_text(call, fmt)?, values.as_ref())
}

/// Prints a line to the trace; gives its length.
pub(super) fn print(call: &Call<'_, '_>, fmt: &[u8], values: &[u64]) -> Result<u64, Stop> {
    let mut text = Vec::new();
    Ok(match format(call.run, fmt, values, &mut text) {
        Ok(()) => {
            call.run.surroundings.trace.push(String::from_utf8_lossy(&text).into_owned());
            text.len() as u64
        }
        Err(errno) => errno.to_reg(),
    })
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

/// The arguments at an address; `None` when there are too many or a broken one.
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
fn constant_text<'c>(call: &'c Call<'_, '_>, addr: u64) -> Result<&'c [u8], Stop> {
    let mut len = 0;
    while len < FORMAT_BYTES_MAX && call.run.get(addr + len, 1)? != 0 {
        len += 1;
    }
    Ok(call.run.view(addr, len)?)
}

/// `MAX_BPRINTF_VARARGS`
const VALUES_MAX: usize = 12;
const FORMAT_BYTES_MAX: u64 = 4096;
