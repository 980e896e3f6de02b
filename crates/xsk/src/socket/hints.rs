//! Metadata of a received packet, in front of it for applications that request it
//! ([`UMEM_RX_METADATA`](crate::abi::UMEM_RX_METADATA)).
//!
//! It lies behind an empty `struct xsk_tx_metadata`, so that the packet can be sent again with the
//! descriptor that it came with. Metadata that a program put there stays, and then hints are not
//! written.

use towpath_ring::Desc;
use towpath_xdp::Frame;
use towpath_xdp::frame::rx_metadata::RxChecksum;

use crate::abi::RxMetadata;
use crate::umem::Umem;

/// Writes the metadata of a frame whose packet is at `data` in its chunk; returns the descriptor's
/// options. Nothing is written if there is no room in the chunk, or no metadata.
pub(super) fn tell(frame: &Frame, umem: &Umem, chunk: u64, data: u64) -> u32 {
    let size = u64::from(umem.tx_metadata);
    let Some(known) = frame.rx_metadata().filter(|_| umem.tells_rx_metadata()) else { return 0 };
    if !frame.shared_metadata().is_empty() || data - chunk < size {
        return 0;
    }
    let told = RxMetadata {
        hash: known.hash.map(|hash| (hash.value, hash.kind.into())),
        vlan: known.vlan.map(|tag| (tag.protocol, tag.tci)),
        timestamp_ns: known.timestamp_ns,
        checksum: Some(match known.checksum {
            RxChecksum::None => (1, 0),
            RxChecksum::Unnecessary => (2, 0),
            RxChecksum::Complete(sum) => (4, sum),
        }),
    };
    let mut bytes = [0; RxMetadata::END];
    bytes[RxMetadata::START..].copy_from_slice(&told.to_bytes());
    let is_written = umem.memory.write(data - size, &bytes).is_ok();
    if is_written { Desc::METADATA } else { 0 }
}
