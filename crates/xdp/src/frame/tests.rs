use super::offload::{Checksum, Offload};
use super::*;
use towpath_bpf::Errno;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7) as u8).collect()
}

#[test]
fn sizes_are_those_of_the_kernel() {
    assert_eq!(Frame::new(&pattern(13)).unwrap_err(), FrameError::TooShort(13));
    assert_eq!(Frame::new(&pattern(3520)).unwrap().frag_count(), 0);
    let big = Frame::new(&pattern(9000)).unwrap();
    assert_eq!((big.linear_len(), big.len(), big.frag_count()), (3520, 9000, 2));
    assert_eq!(big.to_vec(), pattern(9000));
    assert!(Frame::new(&pattern(FRAME_BYTES_MAX)).is_ok());
    assert!(Frame::new(&pattern(FRAME_BYTES_MAX + 1)).is_err());
    assert!(Frame::with_metadata(&pattern(300), 220).is_err());
    let meta = Frame::with_metadata(&pattern(300), 216).unwrap();
    assert_eq!((meta.linear_len(), meta.metadata_len()), (84, 216));
}

#[test]
fn the_head_takes_its_metadata_along() {
    let mut frame = Frame::with_metadata(&pattern(72), 8).unwrap();
    frame.adjust_head(-20).unwrap();
    assert_eq!(frame.own().unwrap().metadata(), &pattern(72)[..8]);
    assert_eq!(frame.to_vec()[20..], pattern(72)[8..]);
    assert_eq!(frame.adjust_head(-189), Err(Errno::EINVAL), "room for the frame header stays");
    frame.adjust_head(-188).unwrap();
}

#[test]
fn cutting_frees_frags_and_growing_fills_with_zeroes() {
    let mut frame = Frame::new(&pattern(9000)).unwrap();
    frame.adjust_tail(-5480).unwrap();
    assert_eq!((frame.frag_count(), frame.len()), (0, 3520));
    let mut small = Frame::new(&[0xff; 64]).unwrap();
    small.adjust_tail(-10).unwrap();
    small.adjust_tail(10).unwrap();
    assert_eq!(small.to_vec()[54..], [0; 10]);
    let mut fixed = Frame::new(&pattern(9000)).unwrap();
    fixed.rx.frag_size = 0;
    assert_eq!(fixed.adjust_tail(0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn pulling_keeps_every_byte_in_order() {
    for len in [3521, 3600, 3736] {
        let mut frame = Frame::with_metadata(&pattern(9000), 0).unwrap();
        frame.pull_data(len).unwrap();
        assert_eq!(frame.linear_len(), len);
        assert_eq!(frame.to_vec(), pattern(9000));
    }
    let mut last = Frame::new(&pattern(3600)).unwrap();
    last.pull_data(3600).unwrap();
    assert_eq!((last.frag_count(), last.to_vec()), (0, pattern(3600)));
}

#[test]
fn bytes_cross_buffers_both_ways() {
    let mut frame = Frame::new(&pattern(9000)).unwrap();
    let mut out = [0; 4200];
    frame.load_bytes(3518, &mut out).unwrap();
    assert_eq!(out[..], pattern(9000)[3518..3518 + 4200]);
    frame.store_bytes(3518, &[0xee; 4200]).unwrap();
    let bytes = frame.to_vec();
    assert!(bytes[3518..3518 + 4200].iter().all(|&b| b == 0xee));
    assert_eq!(bytes[3518 + 4200..], pattern(9000)[3518 + 4200..]);
    assert_eq!(frame.pointer(3518, 2), Ok(Some(frame.data_addr() + 3518)));
    assert_eq!(frame.pointer(3518, 3), Ok(None));
    assert_eq!(frame.pointer(3520, 8), Ok(frame.frags().next().map(|frag| frag.data_addr())));
}

#[test]
fn a_frame_is_refilled_in_place() {
    let mut frame = Frame::new(&pattern(9000)).unwrap();
    let head = frame.data_addr();
    frame.adjust_head(10).unwrap();
    frame.refill(&[1; 60], 0).unwrap();
    assert_eq!((frame.data_addr(), frame.to_vec()), (head, vec![1; 60]));
    assert!(frame.refill(&[1; 2], 0).is_err());
    assert_eq!(frame.len(), 60);
}

/// `skb->csum_start` refers to bytes in the buffer, not to an offset from the present head.
#[test]
fn a_checksum_left_to_do_stays_with_its_bytes() {
    let checksum = |start| Some(Checksum { start, offset: 16 });
    let mut frame = Frame::new(&pattern(9000)).unwrap();
    frame.set_offload(Some(Offload { checksum: checksum(34), gso: None }));
    frame.adjust_head(-4).unwrap();
    assert_eq!(frame.offload().unwrap().checksum, checksum(38));
    frame.pull_data(3700).unwrap();
    assert_eq!(frame.offload().unwrap().checksum, checksum(38), "the bytes moved with the head");
    frame.adjust_head(38).unwrap();
    assert_eq!(frame.offload().unwrap().checksum, checksum(0));
    frame.adjust_head(1).unwrap();
    assert_eq!(frame.offload(), None, "what it was for is cut off");
}

#[test]
fn frags_use_their_whole_buffers() {
    let mut frame = Frame::new(&pattern(100)).unwrap();
    for count in 0..FRAGS_MAX {
        let mut piece = Frame::default();
        piece.own_mut().unwrap().buffer().fill(count as u8);
        frame.append_buffer(piece, BUFFER_BYTES).unwrap();
    }
    assert_eq!(frame.len(), 100 + FRAGS_MAX * BUFFER_BYTES);
    assert!(frame.append_buffer(Frame::default(), 1).is_err());
    assert_eq!(frame.to_vec()[100 + BUFFER_BYTES..][..2], [1, 1]);
}
