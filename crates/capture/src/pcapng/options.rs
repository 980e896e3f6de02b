//! Options of blocks: a code, a length, a value padded to 32 bits.

use crate::source::Fields;

pub(super) const END: u16 = 0;
pub(super) const COMMENT: u16 = 1;

pub(super) const SECTION_HARDWARE: u16 = 2;
pub(super) const SECTION_OS: u16 = 3;
pub(super) const SECTION_APPLICATION: u16 = 4;

pub(super) const INTERFACE_NAME: u16 = 2;
pub(super) const INTERFACE_DESCRIPTION: u16 = 3;
pub(super) const INTERFACE_TIME_RESOLUTION: u16 = 9;
pub(super) const INTERFACE_FCS_LENGTH: u16 = 13;
pub(super) const INTERFACE_TIME_OFFSET: u16 = 14;

pub(super) const STATISTICS_DROPPED: u16 = 5;

pub(super) const PACKET_FLAGS: u16 = 2;
pub(super) const PACKET_ID: u16 = 5;
pub(super) const PACKET_QUEUE: u16 = 6;
pub(super) const PACKET_VERDICT: u16 = 7;

/// First byte of `epb_verdict`: a 64-bit return code of an XDP program follows.
pub(super) const VERDICT_LINUX_XDP: u8 = 2;

/// The options in `fields`, in order. Gives `Err` once if an option exceeds the end of its block.
pub(super) struct Options<'a> {
    fields: Fields<'a>,
    ended: bool,
}

/// An option that is longer than the rest of its block.
#[derive(Debug)]
pub(super) struct Overrun {
    /// Length of the option, as it claims, in bytes.
    pub(super) length: u16,
    /// Number of bytes left in the block after its header.
    pub(super) remaining: usize,
}

impl<'a> Options<'a> {
    pub(super) fn new(fields: Fields<'a>) -> Self {
        Options { fields, ended: false }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), Overrun>;

    fn next(&mut self) -> Option<Self::Item> {
        // The end marker may be missing if there are no options.
        if self.ended || self.fields.remaining() < 4 {
            return None;
        }
        let code = self.fields.u16()?;
        let length = self.fields.u16()?;
        if code == END {
            return None;
        }
        let remaining = self.fields.remaining();
        let padded = usize::from(length).next_multiple_of(4);
        let Some(bytes) = self.fields.bytes(padded) else {
            self.ended = true;
            return Some(Err(Overrun { length, remaining }));
        };
        Some(Ok((code, &bytes[..usize::from(length)])))
    }
}

/// Appends an option.
pub(super) fn push(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    // A value has at most 65535 bytes; a longer text is cut.
    let length = value.len().min(usize::from(u16::MAX));
    block.extend_from_slice(&code.to_le_bytes());
    block.extend_from_slice(&(length as u16).to_le_bytes());
    block.extend_from_slice(&value[..length]);
    block.resize(block.len().next_multiple_of(4), 0);
}

/// Appends a text, unless it is empty.
pub(super) fn push_text(block: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        push(block, code, text.as_bytes());
    }
}

/// Appends the end marker.
pub(super) fn finish(block: &mut Vec<u8>) {
    push(block, END, &[]);
}
