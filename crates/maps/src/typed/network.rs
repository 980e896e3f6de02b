//! Types that say that their bytes are in network order: shown as people write them.
//!
//! The kernel's headers mark such fields by name only (`__be16`, `struct in6_addr`); to BTF they
//! are plain integers. Without this a port 80 would be shown as 20480. Where a source has `__u32`
//! for an address, a tag says so: `__attribute__((btf_decl_tag("ipv4")))` of a typedef, a member or
//! a variable; or `btf_type_tag`, which compilers keep only behind a pointer.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value as Json;
use towpath_bpf::btf::{Btf, Kind, TypeId};

/// The meaning of the bytes of a type.
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

/// The meaning of a tag: for a value of a number of bytes, or for the elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    network: Network,
    bytes: u64,
}

impl Tag {
    /// The tag of a member, `index` of `owner`.
    pub(super) fn of_member(btf: &Btf, owner: TypeId, index: i32) -> Option<Tag> {
        btf.decl_tags(owner, index).find_map(Tag::named)
    }

    /// The tag of a value's place; else that of one of its type's names.
    pub(super) fn of(btf: &Btf, id: TypeId, said: Option<Tag>) -> Option<Tag> {
        said.or_else(|| {
            names(btf, id).find_map(|id| match btf.kind(id) {
                Kind::TypeTag(_) => Tag::named(btf.name(id)),
                _ => btf.decl_tags(id, -1).find_map(Tag::named),
            })
        })
    }

    fn named(text: &str) -> Option<Tag> {
        let (network, bytes) = match text {
            "ipv4" => (Network::Ipv4, 4),
            "ipv6" => (Network::Ipv6, 16),
            "mac" => (Network::Mac, 6),
            "be16" => (Network::Number, 2),
            "be32" => (Network::Number, 4),
            "be64" => (Network::Number, 8),
            _ => return None,
        };
        Some(Tag { network, bytes })
    }
}

/// A type, and the types that it is another name for.
fn names(btf: &Btf, id: TypeId) -> impl Iterator<Item = TypeId> {
    let next = |&id: &TypeId| match *btf.kind(id) {
        Kind::Typedef(to)
        | Kind::Volatile(to)
        | Kind::Const(to)
        | Kind::Restrict(to)
        | Kind::TypeTag(to) => Some(to),
        _ => None,
    };
    // Limited like every walk over types from an untrusted file.
    std::iter::successors(Some(id), next).take(NAMES_MAX)
}

impl Network {
    /// The meaning of its tag, of its type's name, or of the name of an aliased type.
    pub(super) fn of(btf: &Btf, id: TypeId, tag: Option<Tag>) -> Option<Network> {
        let size = btf.size_of(id)?;
        if let Some(tag) = tag.filter(|tag| tag.bytes == size) {
            return Some(tag.network);
        }
        names(btf, id).find_map(|id| match (btf.name(id), size, btf.kind(id)) {
            ("__be16", 2, _) | ("__be64", 8, _) => Some(Network::Number),
            ("__be32" | "in_addr", 4, _) => Some(Network::Ipv4),
            ("in6_addr", 16, _) => Some(Network::Ipv6),
            (_, _, Kind::Array { elem, count: 6, .. }) if is_byte(btf, *elem) => Some(Self::Mac),
            _ => None,
        })
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
const NAMES_MAX: usize = 32;
