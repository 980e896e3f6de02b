//! What is left to do to a frame before it can wait at a port's or a socket's target.

use towpath_xdp::Frame;

use crate::offload;
use crate::port::{Features, RxHints};
use crate::snapshot::Snapshot;
use crate::target::{Prepare, Side, Target};
use crate::worker::graph::Graph;

/// What a target can do with frames, if they are prepared for that.
#[inline]
pub(super) fn features(snapshot: &Snapshot, target: &Target) -> Option<Features> {
    let port = target.owner.port().and_then(|port| snapshot.port(port));
    match (target.prepare, port) {
        (Prepare::Port, Some(port)) => Some(port.features),
        (Prepare::Socket, _) => Some(AS_ON_A_WIRE),
        _ => None,
    }
}

/// Does what is left to do to a frame before it can leave as it is ([`offload::prepare_xmit`]):
/// adds the pieces that it is made of, or drops it.
#[cold]
pub(super) fn prepare(
    graph: &mut Graph,
    snapshot: &Snapshot,
    (target, features): (&Target, &Features),
    frame: Frame,
    pieces: &mut Vec<Frame>,
) {
    assert!(pieces.is_empty(), "nobody else is at it");
    match offload::prepare_xmit(frame, features, &mut graph.pool, pieces) {
        Ok(false) => {}
        Ok(true) => {
            graph.counters().created.add(pieces.len() as u64);
            graph.counters().freed.add(1);
        }
        Err((frame, why)) if target.prepare == Prepare::Socket => {
            graph.drop_arrived(snapshot, why, frame);
        }
        Err((frame, why)) => graph.drop(snapshot, target.owner, Side::Tx, why, frame),
    }
    if target.prepare == Prepare::Socket {
        pieces.iter_mut().for_each(|piece| piece.set_offload(None));
    }
}

/// What sockets can do with a frame: applications know chains of buffers, and nothing else.
const AS_ON_A_WIRE: Features = Features {
    rx_frags: true,
    tx_frags: true,
    tx_checksum: false,
    tx_tso: false,
    tx_uso: false,
    rx_checksum: false,
    zero_copy: false,
    rx_hints: RxHints::NONE,
    rx_offloads: false,
};
