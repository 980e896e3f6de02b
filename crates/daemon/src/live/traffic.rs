//! Received and sent frames of ports.

use towpath_engine::counters::{Counter, PortCounters};
use towpath_engine::{Port, Snapshot};

use crate::live::{LivePort, Seen};
use crate::model::kinds;
use crate::model::messages::TrafficView;

/// Ports whose frames come from outside, or go there: no bonds, whose frames are their members',
/// and no pairs, whose frames other ports count. If all ports but bonds are pairs, the pairs count.
pub(crate) fn outer(live: &Seen) -> Vec<&str> {
    let ports = &live.ports;
    let is_pair = |port: &LivePort| {
        let peer = port.opened.as_ref().and_then(kinds::peer);
        peer.is_some_and(|peer| ports.contains_key(peer))
    };
    let wires = || ports.iter().filter(|(_, port)| port.kind != "bond");
    let outer: Vec<&str> =
        wires().filter(|(_, port)| !is_pair(port)).map(|(name, _)| &**name).collect();
    if outer.is_empty() { wires().map(|(name, _)| &**name).collect() } else { outer }
}

/// Frames that a port received, sent and dropped; a bond includes its members' frames.
pub(crate) fn traffic(snapshot: &Snapshot, slot: &Port) -> TrafficView {
    let counted = |read: &dyn Fn(&PortCounters) -> u64| -> u64 {
        slot.opened.counters.iter().map(read).sum()
    };
    let dropped = |it: &PortCounters| {
        it.drops.iter().chain(&it.tx_drops).map(Counter::get).sum::<u64>() + it.rx_missed.get()
    };
    let mut traffic = TrafficView {
        rx_packets: counted(&|it| it.rx_packets.get()),
        rx_bytes: counted(&|it| it.rx_bytes.get()),
        tx_packets: counted(&|it| it.tx_packets.get()),
        tx_bytes: counted(&|it| it.tx_bytes.get()),
        drops: counted(&dropped),
    };
    let members = slot.bond.iter().flat_map(|bond| bond.members.iter());
    for member in members.filter_map(|&id| snapshot.port(id)) {
        traffic.add_frames(&self::traffic(snapshot, member));
    }
    traffic
}
