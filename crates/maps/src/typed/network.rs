//! Types whose names say that their bytes are in network order: shown as people write them.
//!
//! The kernel's headers mark such fields by name only (`__be16`, `struct in6_addr`); to BTF they
//! are plain integers. Without this a port 80 would be shown as 20480.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value as Json;
use towpath_bpf::btf::{Btf, Kind, TypeId};

/// How the bytes of a type are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// A big-endian number: `__be16`, `__be64`.
    Number,
    /// An IPv4 address: `__be32`, `struct in_addr`.
    Ipv4,
    /// An IPv6 address, or an IPv4 address mapped into one: `struct in6_addr`.
    Ipv6,
    /// Six bytes without a sign: an Ethernet address.
    Mac,
}

impl Network {
    /// What a type's name, or that of a type it is another name for, says.
    pub(super) fn of(btf: &Btf, id: TypeId) -> Option<Network> {
        let mut id = btf.strip_qualifiers(id);
        // Bounded like every walk over types that came from outside.
        for _ in 0..TYPEDEFS_MAX {
            let size = btf.size_of(id);
            match (btf.name(id), size) {
                ("__be16", Some(2)) | ("__be64", Some(8)) => return Some(Network::Number),
                ("__be32" | "in_addr", Some(4)) => return Some(Network::Ipv4),
                ("in6_addr", Some(16)) => return Some(Network::Ipv6),
                _ => {}
            }
            match btf.kind(id) {
                Kind::Typedef(of) => id = btf.strip_qualifiers(*of),
                Kind::Array { elem, count: 6, .. } => {
                    return is_byte(btf, *elem).then_some(Self::Mac);
                }
                _ => return None,
            }
        }
        None
    }

    /// The bytes as JSON; `None` if there are too few.
    pub(super) fn to_json(self, bytes: &[u8]) -> Option<Json> {
        Some(match self {
            Network::Number => {
                bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)).into()
            }
            Network::Ipv4 => Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string().into(),
            Network::Ipv6 => {
                let address = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
                let mapped = address.to_ipv4_mapped().map(|address| address.to_string());
                mapped.unwrap_or_else(|| address.to_string()).into()
            }
            Network::Mac => {
                let [a, b, c, d, e, f] = bytes.first_chunk::<6>()?;
                format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}").into()
            }
        })
    }

    /// A number that was given for the bytes, turned to network order; addresses may be numbers
    /// too.
    pub(super) fn write_number(value: u64, out: &mut [u8]) {
        let bytes = value.to_be_bytes();
        let from = bytes.len().saturating_sub(out.len());
        out.copy_from_slice(&bytes[from..]);
    }
}

fn is_byte(btf: &Btf, elem: TypeId) -> bool {
    matches!(btf.resolved(elem), Kind::Int { size: 1, signed: false, char: false, .. })
        && btf.name(btf.resolve(elem)) != "char"
}

/// Names a type may have on top of each other.
const TYPEDEFS_MAX: usize = 32;
