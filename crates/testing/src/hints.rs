//! A test's receive metadata of a packet.

use serde::{Deserialize, Serialize};
use towpath_xdp::Frame;
use towpath_xdp::frame::rx_metadata::{RxChecksum, RxHash, RxMetadata, SupportedHints, VlanTag};

/// Hints of the port about a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hints {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<u32>,
    /// `XDP_RSS_L3_IPV4` (1) and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash_type: Option<u16>,
    /// Nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vlan_tci: Option<u16>,
    /// 0x8100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vlan_proto: Option<u16>,
}

impl Hints {
    /// Sets the hints of a frame, as from a port that supports all hints, but not for each frame.
    /// Without any hint, the frame stays as from a port that supports none.
    pub fn put_on(&self, frame: &mut Frame) {
        if *self == Hints::default() {
            return;
        }
        let kind = self.hash_type.unwrap_or(0);
        let protocol = self.vlan_proto.unwrap_or(0x8100);
        frame.set_rx_metadata(&RxMetadata {
            hash: self.hash.map(|value| RxHash { value, kind }),
            timestamp_ns: self.timestamp,
            vlan: self.vlan_tci.map(|tci| VlanTag { protocol, tci }),
            checksum: RxChecksum::None,
        });
        frame.tells_rx_metadata(SupportedHints::ALL);
    }
}
