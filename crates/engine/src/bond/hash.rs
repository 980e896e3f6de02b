//! The hash by which a bond chooses a member for a frame.
//!
//! The kernel's `bond_xmit_hash_xdp`, bit for bit on a little-endian machine, so that a flow takes
//! the same member here as there. On a big-endian machine the kernel's hashes are others; ours
//! are these everywhere.

use super::XmitPolicy;
use super::dissect::{self, ETHERNET_BYTES, Flow};

/// Hashes a frame, of which only the linear part counts: `data..data_end`, not the frags.
///
/// Any bytes are a frame; one shorter than an Ethernet header hashes to 0. The member is
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

/// The same for any frame.
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

/// An echo's id stands for ports, as it tells conversations apart.
#[inline]
fn of_ports(flow: &Flow) -> u32 {
    let start = if flow.icmp >> 16 != 0 { flow.icmp } else { flow.ports };
    start ^ flow.addresses
}

/// `bond_ip_hash`, without the shift by which port policies drop the lowest bit: many systems use
/// even ports only.
#[inline]
fn fold(hash: u32) -> u32 {
    let hash = hash ^ hash >> 16;
    hash ^ hash >> 8
}

/// `bond_vlan_srcmac_hash`. The tag it knows is the one that hardware stripped: there is none.
#[inline]
fn vendor_and_device(ethernet: &[u8; ETHERNET_BYTES]) -> u32 {
    let three =
        |at: usize| u32::from_be_bytes([0, ethernet[at], ethernet[at + 1], ethernet[at + 2]]);
    three(6) ^ three(9)
}
