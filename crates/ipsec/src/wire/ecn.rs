//! Traffic classes: DSCP and ECN.

use super::{ECN_MASK, IPV4_CHECKSUM_AT, Sum, Version, get16, put16};

/// The ECN field of a decapsulated packet (RFC 6040, figure 4). `None` if the packet must be
/// dropped, because the outer header is marked with congestion and the inner one does not support
/// ECN.
#[inline]
pub(crate) fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN_MASK, outer & ECN_MASK) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// The traffic class of a decapsulated packet.
#[inline]
pub(crate) fn decapsulated_class(inner: u8, outer: u8, dscp: bool, ecn: bool) -> Option<u8> {
    let new_ecn = if ecn { decapsulated_ecn(inner, outer)? } else { inner & ECN_MASK };
    let new_dscp = if dscp { outer } else { inner } & !ECN_MASK;
    Some(new_dscp | new_ecn)
}

/// Changes the traffic class of the IP header at the front of `ip`, and updates the checksum of an
/// IPv4 header (RFC 1624).
#[inline]
pub(crate) fn set_class(ip: &mut [u8], version: Version, class: u8) {
    let old = get16(ip, 0);
    if version == Version::V6 {
        put16(ip, 0, old & 0xf00f | u16::from(class) << 4);
        return;
    }
    let new = old & 0xff00 | u16::from(class);
    put16(ip, 0, new);
    let sum = Sum::ZERO.plus(!get16(ip, IPV4_CHECKSUM_AT)).plus(!old).plus(new);
    ip[IPV4_CHECKSUM_AT..][..2].copy_from_slice(&sum.checksum());
}

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 6040, figure 4, row by row. The columns are the outer field: Not-ECT,
    /// ECT(0), ECT(1), CE.
    #[test]
    fn the_table_of_rfc_6040() {
        let columns = [NOT_ECT, ECT_0, ECT_1, CE];
        let rows = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
        ];
        for (inner, answers) in rows {
            for (outer, answer) in columns.into_iter().zip(answers) {
                assert_eq!(decapsulated_ecn(inner, outer), answer, "{inner} in {outer}");
            }
        }
    }

    #[test]
    fn the_checksum_follows_every_change_of_class() {
        for class in 0..=255 {
            let mut header =
                [0x45, 0x12, 0, 28, 0xab, 0xcd, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let checksum = Sum::of(&header).checksum();
            header[10..12].copy_from_slice(&checksum);
            set_class(&mut header, Version::V4, class);
            assert_eq!(header[1], class);
            assert!(Sum::of(&header).is_right());
        }
    }
}
