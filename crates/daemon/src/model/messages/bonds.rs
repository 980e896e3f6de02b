//! Bonds: what `/proc/net/bonding` says, as data.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::authors::Author;

/// A bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BondView {
    /// Its name.
    pub name: String,
    /// Who wants it: `file`, `api`, `saved`.
    #[serde(default)]
    pub wanted_by: Vec<Author>,
    /// Its ifindex.
    pub ifindex: u32,
    /// How it chooses members.
    pub mode: String,
    /// What balance-xor and 802.3ad hash.
    pub xmit_hash_policy: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Whether it has a carrier: `up` or `down`.
    pub mii_status: String,
    /// Milliseconds between two looks at links; 0 is never.
    pub miimon: u64,
    /// Milliseconds a link must be up before it is used.
    pub updelay: u64,
    /// Milliseconds a link must be down before it is given up.
    pub downdelay: u64,
    /// The ARP and neighbour monitor, if there is one.
    pub arp: Option<ArpView>,
    /// Milliseconds between two announcements.
    pub peer_notif_delay: u64,
    /// Active-backup: the member to use whenever it works.
    pub primary: Option<String>,
    /// When it is taken again.
    pub primary_reselect: String,
    /// What becomes of addresses on a fail-over.
    pub fail_over_mac: String,
    /// Active-backup: the member in use.
    pub active: Option<String>,
    /// Whether control frames are kept away from programs.
    pub protect_control: bool,
    /// Programs that its members run.
    pub programs: Vec<String>,
    /// 802.3ad.
    pub lacp: Option<LacpView>,
    /// Its members, in the order in which they joined.
    pub members: Vec<MemberView>,
}

/// The ARP and neighbour monitor of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ArpView {
    /// Milliseconds between two questions.
    pub interval: u64,
    /// Intervals without an answer before a link is down.
    pub missed_max: u8,
    /// Which arrivals count.
    pub validate: String,
    /// Who is asked by ARP.
    pub ip_targets: Vec<String>,
    /// Who is asked by neighbour solicitations.
    pub ns_targets: Vec<String>,
}

/// LACP of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LacpView {
    /// Whether it begins by itself.
    pub active: bool,
    /// `slow` or `fast`
    pub rate: String,
    /// Working members without which there is no carrier.
    pub min_links: u32,
    /// By what aggregators are compared.
    pub ad_select: String,
    /// Priority of the system.
    pub system_priority: u16,
    /// Address of the system.
    pub system: String,
    /// The aggregate in use.
    pub aggregator: Option<AggregatorView>,
}

/// An aggregate in use.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AggregatorView {
    /// Its id.
    pub id: u16,
    /// Ports in it whose link is up.
    pub ports: usize,
    /// Key of its ports.
    pub actor_key: u16,
    /// Key of the partner's ports.
    pub partner_key: u16,
    /// Address of the partner; zero when there is none.
    pub partner_mac: String,
}

/// A member of a bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// The port.
    pub name: String,
    /// Its link: `up`, `going down`, `down` or `going back`.
    pub mii_status: String,
    /// Mbit/s of its link; nothing while it has no carrier.
    pub speed: Option<u32>,
    /// Whether frames leave and arrive at the same time: `full` or `half`.
    pub duplex: Option<String>,
    /// How often its link was given up.
    pub link_failure_count: u32,
    /// Its own address.
    pub permanent_mac: String,
    /// Whether frames may leave by it.
    pub can_send: bool,
    /// Whether what passes on it is delivered.
    pub is_active: bool,
    /// Its preference.
    pub prio: i32,
    /// 802.3ad: its port.
    pub lacp: Option<PortView>,
}

/// A member's LACP port.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// Id of the aggregator it is in.
    pub aggregator_id: Option<u16>,
    /// State of the receive machine.
    pub receive: String,
    /// State of the periodic transmission machine.
    pub periodic: String,
    /// State of the mux machine.
    pub mux: String,
    /// Whether this end got in sync in time.
    pub actor_churn: String,
    /// How often it did not.
    pub actor_churned: u32,
    /// Whether the other end did.
    pub partner_churn: String,
    /// How often it did not.
    pub partner_churned: u32,
    /// This end.
    pub actor: EndView,
    /// The other end.
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
    /// Priority of its system.
    pub system_priority: u16,
    /// Address of its system.
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
