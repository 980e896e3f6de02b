//! No frame makes the UDP sockets' parser panic, and a datagram's bytes are the frame's own.

use towpath_udp::{RxDatagram, parse};

#[test]
fn every_part_of_a_real_frame() {
    for frame in [IPV4, IPV6] {
        for len in 0..frame.len() {
            assert!(parse(&frame[..len], 0).is_err(), "{len} bytes");
        }
        let datagram = parse(frame, 3).expect("it is whole");
        assert_eq!((datagram.payload, datagram.queue), (&b"towpath"[..], 3));
    }
}

#[test]
fn a_real_frame_with_bytes_changed() {
    bolero::check!().with_type::<(bool, Vec<(u16, u8)>, u8)>().for_each(|(v6, changes, cut)| {
        let mut frame = if *v6 { IPV6.to_vec() } else { IPV4.to_vec() };
        let len = frame.len();
        for (at, value) in changes {
            frame[usize::from(*at) % len] = *value;
        }
        frame.truncate(len - usize::from(*cut) % len);
        check(&frame);
    });
}

#[test]
fn any_bytes_behind_the_types_of_real_frames() {
    bolero::check!().with_type::<(bool, Vec<u8>)>().for_each(|(v6, bytes)| {
        let mut frame = bytes.clone();
        let kind = if *v6 { [0x86, 0xdd, 0x60] } else { [0x08, 0x00, 0x45] };
        if let Some(place) = frame.get_mut(12..15) {
            place.copy_from_slice(&kind);
        }
        check(&frame);
    });
}

fn check(frame: &[u8]) {
    let Ok(RxDatagram { payload, source, destination, ecn, .. }) = parse(frame, 0) else { return };
    let (whole, part) = (frame.as_ptr_range(), payload.as_ptr_range());
    assert!(whole.start <= part.start && part.end <= whole.end, "the payload is in the frame");
    assert_eq!(source.is_ipv4(), destination.is_ipv4());
    let headers = if source.is_ipv4() { 14 + 20 + 8 } else { 14 + 40 + 8 };
    assert!(payload.len() + headers <= frame.len());
    assert!(ecn < 4);
}

/// From 10.0.0.1, port 4433, to 10.0.0.2, port 9.
const IPV4: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0\0\x23\0\0\x40\0\x40\x11\x26\xc8\
\x0a\0\0\x01\x0a\0\0\x02\x11\x51\0\x09\0\x0f\x25\x1ftowpath";
/// From 2001:db8::1, port 4433, to 2001:db8::2, port 9.
const IPV6: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x86\xdd\x60\0\0\0\0\x0f\x11\x40\
\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\
\x11\x51\0\x09\0\x0f\xdd\xactowpath";
