//! A port that sends: the pieces of a packet for one system call.

use std::io;

use towpath_xdp::Frame;

pub fn send(frame: &Frame, mut to: impl io::Write) -> io::Result<()> {
    frame.pieces().try_for_each(|piece| to.write_all(piece)) //~ [E0599]: no method named `pieces`
}
