//! `struct xdp_md` as files hold it: six little-endian words, as `BPF_PROG_TEST_RUN` takes them.

use std::path::Path;

use crate::error::CliError;
use crate::files;

/// The context of a test run. `data`, `data_end` and `data_meta` are offsets into the data: bytes
/// before `data` are metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Context {
    pub(super) data: u32,
    pub(super) data_end: u32,
    pub(super) data_meta: u32,
    pub(super) ingress_ifindex: u32,
    pub(super) rx_queue_index: u32,
    pub(super) egress_ifindex: u32,
}

impl Context {
    /// Reads a context for `len` bytes of data, with the kernel's rules (`xdp_convert_md_to_buff`
    /// and `bpf_prog_test_run_xdp`).
    pub(super) fn read(path: &Path, len: usize) -> Result<Self, CliError> {
        let refused = |message: String| CliError::Text { path: path.to_owned(), message };
        let bytes = files::read(path, "a context", CONTEXT_BYTES as u64)?;
        let Ok(bytes) = <[u8; CONTEXT_BYTES]>::try_from(bytes.as_slice()) else {
            let found = bytes.len();
            return Err(refused(format!(
                "{found} bytes, expected {CONTEXT_BYTES}: struct xdp_md, six 32-bit words"
            )));
        };
        let context = Context::from_bytes(bytes);
        let Context { data, data_end, data_meta, egress_ifindex, .. } = context;
        if data_end as usize != len {
            return Err(refused(format!(
                "data_end is {data_end}, expected {len}, the data's size"
            )));
        }
        if data > data_end || data_meta != 0 {
            return Err(refused(format!(
                "data_meta is {data_meta} and data {data}, expected 0 and at most {data_end}"
            )));
        }
        if egress_ifindex != 0 {
            return Err(refused(format!("egress_ifindex is {egress_ifindex}, expected 0")));
        }
        Ok(context)
    }

    fn from_bytes(bytes: [u8; CONTEXT_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| words.get(index).map_or(0, |word| u32::from_le_bytes(*word));
        Context {
            data: word(0),
            data_end: word(1),
            data_meta: word(2),
            ingress_ifindex: word(3),
            rx_queue_index: word(4),
            egress_ifindex: word(5),
        }
    }

    /// The context in the form of a file.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let Context { data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex } =
            self;
        let words = [data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

const CONTEXT_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_survives_its_file() {
        let context = Context { data: 4, data_end: 64, ingress_ifindex: 7, ..Context::default() };
        let bytes: [u8; CONTEXT_BYTES] = context.to_bytes().try_into().unwrap();
        assert_eq!(Context::from_bytes(bytes), context);
    }
}
