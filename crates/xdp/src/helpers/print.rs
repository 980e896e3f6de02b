//! Formatted text into memory or into the program's stream.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::format::format;
use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table = &[(id::SNPRINTF, entry(snprintf))];

pub(super) const KFUNCS: KfuncTable = &[("bpf_stream_vprintk_impl", entry(stream))];

/// `bpf_snprintf(str, str_size, fmt, data, data_len)`: the length the whole text has with its NUL.
fn snprintf(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [out, size, fmt, data, len] = args;
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    let fmt = constant_text(call, fmt)?;
    match format(call.run, &fmt, &values) {
        Ok(text) => {
            let room = (size as u32 as usize).saturating_sub(1);
            if size as u32 > 0 {
                let mut cut = text.as_bytes()[..text.len().min(room)].to_vec();
                cut.push(0);
                call.write(out, &cut)?;
            }
            Ok(text.len() as u64 + 1)
        }
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// `bpf_stream_vprintk_impl(stream, fmt, args, len, aux)`: standard output (1) and error (2) of the
/// program are its trace.
fn stream(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [stream, fmt, data, len, _] = args;
    if !matches!(stream, 1 | 2) {
        return Ok(Errno::ENOENT.to_reg());
    }
    let Some(values) = words(call, data, len)? else { return Ok(Errno::EINVAL.to_reg()) };
    let fmt = constant_text(call, fmt)?;
    match format(call.run, &fmt, &values) {
        Ok(text) => {
            let len = text.len() as u64;
            call.run.surroundings.trace.push(text);
            Ok(len)
        }
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// The 8-byte arguments of a format; `None` when there are too many or a broken one.
pub(super) fn words(call: &Call<'_, '_>, data: u64, len: u64) -> Result<Option<Vec<u64>>, Stop> {
    let len = len as u32 as usize;
    if !len.is_multiple_of(8) || len > VALUES_MAX * 8 || (len != 0 && data == 0) {
        return Ok(None);
    }
    let bytes = call.read(data, len)?;
    let (words, _) = bytes.as_ref().as_chunks::<8>();
    Ok(Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
}

/// Text that the verifier found in a read-only map, without its NUL.
fn constant_text(call: &Call<'_, '_>, addr: u64) -> Result<Vec<u8>, Stop> {
    let mut text = Vec::new();
    while text.len() < FORMAT_BYTES_MAX {
        match call.read(addr + text.len() as u64, 1)?.as_ref()[0] {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}

/// `MAX_BPRINTF_VARARGS`
const VALUES_MAX: usize = 12;
const FORMAT_BYTES_MAX: usize = 4096;
