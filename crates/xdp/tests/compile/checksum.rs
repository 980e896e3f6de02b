//! Offloads: a checksum over bytes where they lie.

use towpath_xdp::SharedBytes;

pub fn first(bytes: SharedBytes<'_>) -> u8 {
    bytes[0] //~ [E0608]: cannot index
}
