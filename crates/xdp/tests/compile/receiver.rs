//! A port that receives: a system call that writes into the room of a frame.

use std::io;

use towpath_xdp::Frame;

pub fn receive(frame: &mut Frame, mut from: impl io::Read) -> io::Result<usize> {
    from.read(frame.room_mut()) //~ [E0599]: no method named `room_mut`
}
