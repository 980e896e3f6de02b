use super::super::offload::{Checksum, Gso, GsoKind, Offload};
use super::super::{Pool, RxInfo, arena::Arena};
use super::*;

const KNOWN: RxMetadata = RxMetadata {
    hash: Some(RxHash { value: 0x1234_5678, kind: 9 }),
    timestamp_ns: Some(1_000_000_007),
    vlan: Some(VlanTag { protocol: 0x8100, tci: 0x2005 }),
    checksum: RxChecksum::Complete(0xabcd),
};
const LAUNCH_NS: Option<u64> = Some(77);
const WORK: Offload = Offload {
    checksum: Some(Checksum { start: 34, offset: 16 }),
    gso: Some(Gso { kind: GsoKind::UdpL4, size: 1200, header: 42, ecn: true }),
};

fn full(packet: &[u8]) -> Frame {
    let mut frame = Frame::new(packet).expect("a good length");
    frame.set_rx_metadata(&KNOWN);
    frame.arrive(3, 1);
    frame.set_launch_time(77);
    frame.set_offload(Some(WORK));
    frame
}

/// Asserts that the frame has no metadata, whatever bytes its second line has.
fn assert_bare(frame: &Frame) {
    assert_eq!((frame.rx_metadata(), frame.offload()), (None, None));
    assert_eq!((frame.launch_time(), frame.has_tx_request()), (None, false));
    assert_eq!((frame.is_plain(), frame.frag_count()), (true, 0));
    let arrived = Origin { ifindex: frame.rx.ifindex, queue_index: frame.rx.queue_index };
    assert_eq!(frame.origin(), arrived);
}

/// Fills all fields of the second line that depend on a flag with garbage.
fn poison(frame: &mut Frame) {
    frame.metadata = Metadata {
        timestamp_ns: u64::MAX,
        launch_time_ns: u64::MAX,
        hash: u32::MAX,
        checksum_sum: u32::MAX,
        origin: Origin { ifindex: u32::MAX, queue_index: u32::MAX },
        checksum_start: u32::MAX,
        checksum_offset: u16::MAX,
        gso_size: u16::MAX,
        gso_header: u16::MAX,
        hash_kind: u16::MAX,
        vlan: VlanTag { protocol: u16::MAX, tci: u16::MAX },
    };
}

#[test]
fn what_is_said_is_read() {
    let frame = full(&[1; 60]);
    assert_eq!((frame.rx_metadata(), frame.launch_time()), (Some(KNOWN), LAUNCH_NS));
    assert_eq!(frame.offload(), Some(WORK));
    for checksum in [RxChecksum::None, RxChecksum::Complete(0), RxChecksum::Unnecessary] {
        let known = RxMetadata { checksum, ..RxMetadata::default() };
        let mut frame = full(&[1; 60]);
        frame.set_rx_metadata(&known);
        assert_eq!(frame.rx_metadata(), Some(known), "nothing is left of what was said before");
        assert_eq!(frame.offload(), Some(WORK));
    }
    for kind in [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::UdpL4] {
        let gso = Some(Gso { kind, size: 1, header: 2, ecn: false });
        let mut frame = full(&[1; 60]);
        frame.set_offload(Some(Offload { checksum: None, gso }));
        assert_eq!(frame.offload(), Some(Offload { checksum: None, gso }));
        frame.set_offload(None);
        assert_eq!((frame.offload(), frame.rx_metadata()), (None, Some(KNOWN)));
    }
}

#[test]
fn parts_are_said_one_by_one() {
    let mut frame = Frame::new(&[1; 60]).expect("a good length");
    frame.tells_rx_metadata(SupportedHints { hash: true, ..SupportedHints::default() });
    assert_eq!(
        frame.told_rx_metadata(),
        SupportedHints { hash: true, ..SupportedHints::default() }
    );
    assert_eq!(frame.rx_metadata(), Some(RxMetadata::NOTHING));
    frame.store_rx_hash(KNOWN.hash.expect("known"));
    frame.store_rx_timestamp(KNOWN.timestamp_ns.expect("known"));
    frame.store_rx_vlan(KNOWN.vlan.expect("known"));
    frame.arrive(3, 1);
    let parts = RxMetadata { checksum: RxChecksum::None, ..KNOWN };
    assert_eq!(frame.rx_metadata(), Some(parts));
    assert_eq!(frame.origin(), Origin { ifindex: 3, queue_index: 1 });
    frame.set_rx_metadata(&KNOWN);
    frame.distrust_checksum();
    assert_eq!(frame.rx_metadata(), Some(parts), "all but that stays");
    assert!(!frame.has_no_room_for_hints());
    frame.adjust_head(-184).expect("there is headroom");
    assert!(!frame.has_no_room_for_hints());
    frame.adjust_meta(-4).expect("there is headroom");
    assert!(frame.has_no_room_for_hints());
}

#[test]
fn plain_is_what_leaves_a_sender_no_work() {
    let mut frame = Frame::new(&[1; 60]).expect("a good length");
    frame.set_rx_metadata(&KNOWN);
    frame.arrive(3, 1);
    assert!(frame.is_plain() && frame.plain_linear().is_some());
    frame.set_launch_time(0);
    assert!(!frame.is_plain());
    frame.clear_launch_time();
    assert!(frame.is_plain());
    frame.set_offload(Some(Offload { checksum: WORK.checksum, gso: None }));
    assert!(!frame.is_plain() && frame.plain_linear().is_none());
    frame.set_offload(None);
    assert!(frame.is_plain());
    frame.append(Frame::new(&[2; 20]).expect("a good length")).expect("room for a frag");
    assert!(!frame.is_plain());
}

/// The next packet in the same buffer inherits no metadata, and neither does a frame from a pool.
#[test]
fn a_recycled_frame_says_nothing() {
    let arena = Arena::new(64).expect("there is memory");
    let mut pool = Pool::new(&arena);
    let mut seen = 0;
    for round in 0..3 {
        let mut frames = Vec::new();
        assert_eq!(pool.take_many(64, &mut frames), 64);
        for frame in &mut frames {
            match round {
                0 => frame.fill(&[1; 60]),
                1 => frame.set_linear(60),
                _ => frame.refill(&[1; 60], 0).expect("a good length"),
            }
            frame.arrive(5, 2);
            assert_bare(frame);
            poison(frame);
            assert_bare(frame);
            frame.flags |= flag::METADATA & !flag::TX_REQUEST;
            seen += 1;
        }
        pool.give_all(&mut frames);
    }
    assert_eq!((seen, pool.len()), (3 * 64, 64));
    let mut frame = full(&[1; 9000]);
    frame.clear();
    assert_bare(&frame);
    let long = pool.frame(&[1; 9000]).expect("it fits").expect("there are frames");
    assert!(long.frags().all(|frag| frag.flags & !flag::FRAGS == 0), "nor do frags");
    pool.give(long);
    assert_eq!(pool.len(), 64);
}

#[test]
fn copies_say_the_same() {
    let arena = Arena::new(64).expect("there is memory");
    let mut pool = Pool::new(&arena);
    for len in [60, 9000, 30_000] {
        let mut frame = full(&vec![7; len]);
        frame.adjust_head(-8).expect("there is headroom");
        let copy = pool.copy(&frame).expect("there are frames");
        let mut linear = pool.copy(&frame).expect("there are frames");
        pool.linearize(&mut linear);
        assert!(!linear.has_frags());
        for copy in [copy, linear] {
            assert_eq!((copy.rx, copy.to_vec()), (frame.rx, frame.to_vec()));
            assert_eq!((copy.rx_metadata(), copy.launch_time()), (Some(KNOWN), LAUNCH_NS));
            assert_eq!((copy.offload(), copy.origin()), (frame.offload(), frame.origin()));
            pool.give(copy);
        }
    }
    drop(pool);
    assert_eq!(arena.free(), 64);
}

#[test]
fn moving_the_edges_changes_nothing_said() {
    let mut frame = full(&[1; 9000]);
    frame.adjust_head(14).expect("longer than that");
    frame.adjust_meta(-8).expect("there is headroom");
    frame.adjust_tail(-100).expect("longer than that");
    frame.pull_data(3600).expect("longer than that");
    assert_eq!((frame.rx_metadata(), frame.launch_time()), (Some(KNOWN), LAUNCH_NS));
    assert_eq!(frame.origin(), Origin { ifindex: 3, queue_index: 1 });
}

#[test]
fn what_the_first_port_knew_crosses_over() {
    let mut frame = full(&[1; 60]);
    frame.cross();
    frame.arrive(8, 0);
    assert_eq!((frame.rx_metadata(), frame.launch_time()), (Some(KNOWN), None));
    assert_eq!(frame.offload(), Some(WORK), "nobody has done it yet");
    assert_eq!(frame.origin(), Origin { ifindex: 3, queue_index: 1 });
    frame.set_rx_metadata(&KNOWN);
    frame.arrive(9, 0);
    assert_eq!(frame.origin(), Origin { ifindex: 3, queue_index: 1 });
    let mut piece = Frame::new(&[2; 60]).expect("a good length");
    piece.descend_from(&frame);
    assert_eq!(piece.rx, RxInfo { ifindex: 9, queue_index: 0, ..frame.rx });
    assert_eq!((piece.rx_metadata(), piece.origin()), (Some(KNOWN), frame.origin()));
    assert_eq!((piece.offload(), piece.launch_time()), (None, None));
    frame.fill(&[3; 60]);
    frame.arrive(9, 0);
    assert_bare(&frame);
}
