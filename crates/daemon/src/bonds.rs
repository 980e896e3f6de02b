//! Bonds as the API shows them: what `/proc/net/bonding` says, as data.

use serde::{Deserialize, Serialize};
use towpath_ports::bond::lacp::pdu::PortInfo;
use towpath_ports::bond::lacp::{MemberState, Stats};
use towpath_ports::bond::settings::{Settings, word_of};
use towpath_ports::bond::{MemberStatus, Status};
use utoipa::ToSchema;

use crate::control::Inner;
use crate::view::mac_text;

/// A bond.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BondView {
    /// Its name.
    pub name: String,
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

/// All bonds, by name.
pub(crate) fn all(inner: &Inner) -> Vec<BondView> {
    let bonds = inner.live.bonds.iter();
    bonds.map(|(name, bond)| view(inner, name, &bond.status())).collect()
}

fn view(inner: &Inner, name: &str, status: &Status) -> BondView {
    let Status { settings, looks: _, carrier, mac, active, period, aggregator: _, members } =
        status;
    let links = inner.live.links.iter().filter(|link| link.attach.port == name);
    let ms = |time: std::time::Duration| time.as_millis() as u64;
    BondView {
        name: name.to_owned(),
        ifindex: inner.live.ports.get(name).map_or(0, |port| port.ifindex),
        mode: settings.options.mode.name().to_owned(),
        xmit_hash_policy: settings.options.policy.name().to_owned(),
        mac: mac_text(*mac),
        mii_status: if *carrier { "up" } else { "down" }.to_owned(),
        miimon: period.map_or(0, ms),
        updelay: ms(settings.updelay),
        downdelay: ms(settings.downdelay),
        arp: settings.arp_period().map(|interval| ArpView {
            interval: ms(interval),
            missed_max: settings.arp.missed_max(),
            validate: word_of(settings.arp.validate).to_owned(),
            ip_targets: settings.arp.targets.iter().map(ToString::to_string).collect(),
            ns_targets: settings.arp.targets6.iter().map(ToString::to_string).collect(),
        }),
        peer_notif_delay: ms(settings.peer_notif_delay),
        primary: settings.primary.clone(),
        primary_reselect: word_of(settings.primary_reselect).to_owned(),
        fail_over_mac: word_of(settings.fail_over_mac).to_owned(),
        active: active.clone(),
        protect_control: settings.options.protect_control,
        programs: links.map(|link| link.link.program.name().to_owned()).collect(),
        lacp: lacp(settings, status),
        members: members.iter().map(member).collect(),
    }
}

fn lacp(settings: &Settings, status: &Status) -> Option<LacpView> {
    if settings.options.mode != towpath_engine::bond::BondMode::Lacp {
        return None;
    }
    let config = settings.lacp_config(status.mac);
    Some(LacpView {
        active: config.active,
        rate: if config.fast { "fast" } else { "slow" }.to_owned(),
        min_links: config.min_links,
        ad_select: config.select.name().to_owned(),
        system_priority: config.system_priority,
        system: mac_text(config.system),
        aggregator: status.aggregator.map(|it| AggregatorView {
            id: it.id,
            ports: it.ports,
            actor_key: it.actor_key,
            partner_key: it.partner_key,
            partner_mac: mac_text(it.partner),
        }),
    })
}

fn member(status: &MemberStatus) -> MemberView {
    MemberView {
        name: status.name.clone(),
        mii_status: status.link.name().to_owned(),
        speed: status.speed.map(|it| it.mbps),
        duplex: status.speed.map(|it| if it.is_full_duplex { "full" } else { "half" }.to_owned()),
        link_failure_count: status.failures,
        permanent_mac: mac_text(status.mac),
        can_send: status.can_send,
        is_active: status.is_active,
        prio: status.prio,
        lacp: status.lacp.map(|it| port(&it)),
    }
}

fn port(state: &MemberState) -> PortView {
    let Stats { lacpdu_tx, lacpdu_rx, marker_rx, .. } = state.stats;
    PortView {
        aggregator_id: state.aggregator,
        receive: state.receive.name().to_owned(),
        periodic: state.periodic.name().to_owned(),
        mux: state.mux.name().to_owned(),
        actor_churn: state.actor_churn.name().to_owned(),
        actor_churned: state.actor_churned,
        partner_churn: state.partner_churn.name().to_owned(),
        partner_churned: state.partner_churned,
        actor: end(&state.actor),
        partner: end(&state.partner),
        lacpdu_tx,
        lacpdu_rx,
        marker_rx,
    }
}

fn end(info: &PortInfo) -> EndView {
    EndView {
        system_priority: info.system_priority,
        system_mac: mac_text(info.system),
        key: info.key,
        port_priority: info.port_priority,
        port_number: info.port,
        port_state: info.state.0,
    }
}
