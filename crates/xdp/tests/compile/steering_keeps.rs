//! Steering: headers that are kept for longer than the look at them.

use towpath_xdp::Frame;

pub fn headers(frame: &Frame) -> &[u8] {
    frame.with_linear(|packet| &packet[..14]) //~ : lifetime may not live long enough
}
