//! No header and no frame make the reader of virtio-net headers, or what does the work that they
//! leave, panic or lose frames.

use std::panic::AssertUnwindSafe;

use towpath_engine::offload::prepare_xmit;
use towpath_engine::port::Features;
use towpath_ports::vnet;
use towpath_xdp::{Arena, Pool};

#[test]
fn any_header_before_any_frame() {
    let arena = AssertUnwindSafe(Arena::new(512).expect("memory"));
    let checked = bolero::check!().with_type::<([u8; vnet::BYTES], Vec<u8>, u8)>();
    checked.for_each(|(header, bytes, choice)| {
        let Ok(offload) = vnet::parse(header, bytes.len()) else { return };
        let mut pool = Pool::new(&arena);
        let Ok(Some(mut frame)) = pool.frame(bytes) else { return };
        if let Some(offload) = &offload {
            let again = vnet::parse(&vnet::emit(Some(offload), bytes.len()), bytes.len());
            let again = again.expect("what is written can be read").expect("it says something");
            assert_eq!(again.checksum, offload.checksum);
        }
        frame.set_offload(offload);
        let features = Features {
            tx_frags: choice & 1 != 0,
            tx_checksum: choice & 2 != 0,
            tx_tso: choice & 4 != 0,
            tx_uso: choice & 8 != 0,
            ..Features::default()
        };
        let mut out = Vec::new();
        match prepare_xmit(frame, &features, &mut pool, &mut out) {
            Ok(_) => pool.give_all(&mut out),
            Err((frame, _why)) => pool.give(frame),
        }
        drop(pool);
        assert_eq!(arena.free(), arena.total(), "a frame is lost");
    });
}
