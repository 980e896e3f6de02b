//! Bonds as the API shows them: the contents of `/proc/net/bonding` as data.

use towpath_ports::bond::lacp::pdu::PortInfo;
use towpath_ports::bond::lacp::{MemberState, Stats};
use towpath_ports::bond::settings::{Settings, word_of};
use towpath_ports::bond::{MemberStatus, Status};

use crate::control::Inner;
use crate::doors::view::mac_text;
use crate::model::messages::bonds::{
    AggregatorView, ArpView, BondView, EndView, LacpView, MemberView, PortView,
};
use crate::model::thing::Thing;

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
        wanted_by: inner.wanted.authors(&Thing::port(name)),
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
