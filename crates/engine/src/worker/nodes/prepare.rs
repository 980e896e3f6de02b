//! Preparation of frames before they are queued for a port or a socket.

use towpath_xdp::Frame;

use crate::offload;
use crate::port::{Features, RxHints};
use crate::snapshot::Snapshot;
use crate::target::{Prepare, Side, Target};
use crate::worker::graph::Graph;

/// The features for which a target's frames are prepared; `None` if they are not.
#[inline]
pub(super) fn features(snapshot: &Snapshot, target: &Target) -> Option<Features> {
    let port = target.owner.port().and_then(|port| snapshot.port(port));
    match (target.prepare, port) {
        (Prepare::Port, Some(port)) => Some(port.features),
        (Prepare::Socket, _) => Some(AS_ON_A_WIRE),
        _ => None,
    }
}

/// Converts a frame for its target ([`offload::prepare_xmit`]): appends the frame or its segments
/// to `pieces`, or drops it.
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

/// Features of sockets: applications support frames of several buffers, and no offloads.
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
