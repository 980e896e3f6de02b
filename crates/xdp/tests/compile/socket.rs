//! A socket: a packet that is copied after its frame was given back.

use towpath_xdp::{Frame, SharedBytes};

pub fn later(frame: Frame) -> SharedBytes<'static> {
    frame.shared_linear() //~ [E0515]: cannot return value referencing function parameter
}
