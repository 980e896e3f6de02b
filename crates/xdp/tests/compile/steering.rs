//! Steering: a worker that is chosen by the headers of a frame.

use towpath_xdp::Frame;

pub fn place(frame: &Frame) -> u8 {
    frame.linear()[26] % 2 //~ [E0599]: no method named `linear`
}
