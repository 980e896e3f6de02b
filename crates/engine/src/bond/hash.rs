//! The hash by which a bond chooses a member for a frame.
//!
//! It equals the kernel's `bond_xmit_hash_xdp` on a little-endian machine bit for bit, so that a
//! flow leaves by the same member as with the kernel. On a big-endian machine the kernel's hashes
//! differ; this hash is the same everywhere.

use super::XmitPolicy;
use super::dissect::{self, ETHERNET_BYTES, Flow};

/// Hashes the linear part (`data..data_end`) of a frame, without its frags.
///
/// Any byte sequence is valid input; one shorter than an Ethernet header hashes to 0. The member is
/// `hash % usable members`.
///
/// ```
/// use towpath_engine::bond::{XmitPolicy, hash};
///
/// // Where nothing is understood, addresses and type decide: 0x02 ^ 0x01 ^ 0x88cc.
/// let lldp = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xcc];
/// assert_eq!(hash(XmitPolicy::Layer34, &lldp), 0x88cf);
/// ```
#[inline]
pub fn hash(policy: XmitPolicy, linear: &[u8]) -> u32 {
    if let XmitPolicy::Layer23 | XmitPolicy::Layer34 = policy
        && let Some((ethernet, flow)) = linear.first_chunk().zip(dissect::plain(linear))
    {
        return match policy {
            XmitPolicy::Layer34 => fold(of_ports(&flow)) >> 1,
            _ => fold(link_hash(ethernet) ^ flow.addresses),
        };
    }
    hash_any(policy, linear)
}

/// Like [`hash`], without its fast path.
#[inline(never)]
fn hash_any(policy: XmitPolicy, linear: &[u8]) -> u32 {
    let Some(ethernet) = linear.first_chunk::<ETHERNET_BYTES>() else { return 0 };
    let link = link_hash(ethernet);
    match policy {
        XmitPolicy::Layer2 => link,
        XmitPolicy::Layer23 => {
            dissect::outer::<false>(linear).map_or(link, |flow| fold(link ^ flow.addresses))
        }
        XmitPolicy::Layer34 => {
            dissect::outer::<true>(linear).map_or(link, |flow| fold(of_ports(&flow)) >> 1)
        }
        XmitPolicy::Encap23 => {
            dissect::innermost(linear).map_or(link, |flow| fold(link ^ flow.addresses))
        }
        XmitPolicy::Encap34 => {
            dissect::innermost(linear).map_or(link, |flow| fold(of_ports(&flow)) >> 1)
        }
        XmitPolicy::VlanSrcmac => vendor_and_device(ethernet),
    }
}

/// `bond_eth_hash`: not folded, so that with few members only the addresses' last bytes count.
#[inline]
fn link_hash(ethernet: &[u8; ETHERNET_BYTES]) -> u32 {
    let ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    u32::from(ethernet[5] ^ ethernet[11]) ^ u32::from(ethertype)
}

/// The hash over ports and addresses; an echo's id takes the place of ports.
#[inline]
fn of_ports(flow: &Flow) -> u32 {
    let start = if flow.icmp >> 16 != 0 { flow.icmp } else { flow.ports };
    start ^ flow.addresses
}

/// `bond_ip_hash`, without the final shift. With the shift, port policies ignore the lowest bit,
/// because many systems use even ports only.
#[inline]
fn fold(hash: u32) -> u32 {
    let hash = hash ^ hash >> 16;
    hash ^ hash >> 8
}

/// `bond_vlan_srcmac_hash`. The kernel hashes a tag that hardware stripped; there is none here.
#[inline]
fn vendor_and_device(ethernet: &[u8; ETHERNET_BYTES]) -> u32 {
    let three =
        |at: usize| u32::from_be_bytes([0, ethernet[at], ethernet[at + 1], ethernet[at + 2]]);
    three(6) ^ three(9)
}
