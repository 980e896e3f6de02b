//! Slices of a frame that is ours, kept while another packet is put into it.

use towpath_xdp::Frame;

pub fn reuse(frame: &mut Frame) -> usize {
    let own = frame.own().expect("ours");
    frame.clear(); //~ [E0502]: cannot borrow
    own.linear().len()
}
