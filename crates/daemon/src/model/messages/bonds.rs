//! Bonds: the contents of `/proc/net/bonding` as data.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::authors::Author;

/// A bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BondView {
    /// The bond's name.
    pub name: String,
    /// Authors of the bond: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// The bond's ifindex.
    pub ifindex: u32,
    /// The mode: how a member is chosen for a frame.
    pub mode: String,
    /// The header fields that balance-xor and 802.3ad hash.
    pub xmit_hash_policy: String,
    /// The bond's Ethernet address.
    pub mac: String,
    /// Carrier of the bond: `up` or `down`.
    pub mii_status: String,
    /// Milliseconds between two checks of the links; 0 for none.
    pub miimon: u64,
    /// Milliseconds for which a link must be up before it is used.
    pub updelay: u64,
    /// Milliseconds for which a link must be down before it is given up.
    pub downdelay: u64,
    /// The ARP and neighbour monitor, if it is on.
    pub arp: Option<ArpView>,
    /// Milliseconds between two announcements of the bond's addresses.
    pub peer_notif_delay: u64,
    /// Active-backup: the member that is used whenever its link works.
    pub primary: Option<String>,
    /// When the primary becomes active again.
    pub primary_reselect: String,
    /// Treatment of Ethernet addresses on a fail-over.
    pub fail_over_mac: String,
    /// Active-backup: the active member.
    pub active: Option<String>,
    /// Whether control frames are hidden from programs.
    pub protect_control: bool,
    /// Programs attached to the bond, which its members run.
    pub programs: Vec<String>,
    /// 802.3ad: the state of LACP.
    pub lacp: Option<LacpView>,
    /// The members, in the order in which they joined.
    pub members: Vec<MemberView>,
}

/// The ARP and neighbour monitor of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ArpView {
    /// Milliseconds between two requests.
    pub interval: u64,
    /// Intervals without an answer before a link counts as down.
    pub missed_max: u8,
    /// Members on which arriving answers are validated.
    pub validate: String,
    /// Addresses that are asked by ARP.
    pub ip_targets: Vec<String>,
    /// Addresses that are asked by neighbour solicitations.
    pub ns_targets: Vec<String>,
}

/// LACP of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LacpView {
    /// Whether the bond starts LACP on its own (`lacp_active`).
    pub active: bool,
    /// `slow` or `fast`
    pub rate: String,
    /// Working members required for a carrier.
    pub min_links: u32,
    /// Criterion by which aggregators are compared.
    pub ad_select: String,
    /// Priority of the system.
    pub system_priority: u16,
    /// Address of the system.
    pub system: String,
    /// The active aggregator.
    pub aggregator: Option<AggregatorView>,
}

/// An active aggregator.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AggregatorView {
    /// Id of the aggregator.
    pub id: u16,
    /// Ports in the aggregator whose link is up.
    pub ports: usize,
    /// Key of the aggregator's ports.
    pub actor_key: u16,
    /// Key of the partner's ports.
    pub partner_key: u16,
    /// Ethernet address of the partner; zero without a partner.
    pub partner_mac: String,
}

/// A member of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// The member's port.
    pub name: String,
    /// State of the link: `up`, `going down`, `down` or `going back`.
    pub mii_status: String,
    /// Speed of the link in Mbit/s; unset without a carrier.
    pub speed: Option<u32>,
    /// Duplex mode of the link: `full` or `half`; unset without a carrier.
    pub duplex: Option<String>,
    /// Number of times that the link was given up.
    pub link_failure_count: u32,
    /// The member's own Ethernet address.
    pub permanent_mac: String,
    /// Whether frames may leave by this member.
    pub can_send: bool,
    /// Whether frames that pass on this member are delivered.
    pub is_active: bool,
    /// The member's priority.
    pub prio: i32,
    /// 802.3ad: the member's LACP port.
    pub lacp: Option<PortView>,
}

/// A member's LACP port.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// Id of the aggregator that the port is in.
    pub aggregator_id: Option<u16>,
    /// State of the receive machine.
    pub receive: String,
    /// State of the periodic transmission machine.
    pub periodic: String,
    /// State of the mux machine.
    pub mux: String,
    /// Churn state of this end: whether it got in sync in time.
    pub actor_churn: String,
    /// Number of times that this end did not get in sync in time.
    pub actor_churned: u32,
    /// Churn state of the other end.
    pub partner_churn: String,
    /// Number of times that the other end did not get in sync in time.
    pub partner_churned: u32,
    /// Parameters of this end.
    pub actor: EndView,
    /// Parameters of the other end.
    pub partner: EndView,
    /// LACPDUs sent.
    pub lacpdu_tx: u64,
    /// LACPDUs received.
    pub lacpdu_rx: u64,
    /// Markers answered.
    pub marker_rx: u64,
}

/// One end of a link, as it describes itself.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EndView {
    /// Priority of the system.
    pub system_priority: u16,
    /// Address of the system.
    pub system_mac: String,
    /// Key of the port.
    pub key: u16,
    /// Priority of the port.
    pub port_priority: u16,
    /// Number of the port.
    pub port_number: u16,
    /// State bits: 1 activity, 2 short timeout, 4 aggregation, 8 synchronisation, 16 collecting, 32
    /// distributing, 64 defaulted, 128 expired.
    pub port_state: u8,
}
