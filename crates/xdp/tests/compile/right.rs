//! What the other files do wrong, in the ways that there are.

use std::io;

use towpath_xdp::{Frame, SharedBytes};

pub fn place(frame: &Frame) -> u8 {
    frame.with_linear(|packet| packet[26] % 2)
}

pub fn send(frame: &Frame, mut to: impl io::Write) -> io::Result<()> {
    match frame.own() {
        Some(own) => own.pieces().try_for_each(|piece| to.write_all(piece)),
        None => to.write_all(&frame.to_vec()),
    }
}

pub fn receive(frame: &mut Frame, mut from: impl io::Read) -> io::Result<usize> {
    let Some(own) = frame.own_mut() else { return Ok(0) };
    from.read(own.room())
}

pub fn first(bytes: SharedBytes<'_>) -> u8 {
    let mut first = [0];
    bytes.part(0..1).read(&mut first);
    first[0]
}

pub fn clear(frame: &mut Frame) {
    frame.shared_linear_mut().part(24..26).write(&[0; 2]);
}

pub fn record(frame: &Frame, into: &mut Vec<u8>) {
    frame.shared_metadata().append_to(into);
}

pub fn reuse(frame: &mut Frame) -> usize {
    let len = frame.own().map_or(0, |own| own.linear().len());
    frame.clear();
    len
}
