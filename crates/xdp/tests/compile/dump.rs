//! A dump: the metadata in front of a packet, as a slice.

use towpath_xdp::Frame;

pub fn record(frame: &Frame, into: &mut Vec<u8>) {
    into.extend_from_slice(frame.metadata()); //~ [E0599]: no method named `metadata`
}
