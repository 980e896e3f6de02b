//! `bond`: several ports combined into one, with keys and values of `ip link ... type bond`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};
use towpath_ports::bond::lacp::AdSelect;
use towpath_ports::bond::settings::{
    ArpSettings, ArpValidate, FailOverMac, LacpSettings, Settings, Word,
};

use super::kind::{Kind, OptionDoc, doc, options};
use super::mac;
use crate::model::state::PortState;

/// Name of the only kind for which no device is opened.
pub(crate) const NAME: &str = "bond";

pub(super) static KIND: Kind =
    Kind::new(NAME, "several ports that act as one", OPTIONS, check, open);

static OPTIONS: &[OptionDoc] = &[
    doc("members", "none", "ports of the bond, in the order they join"),
    doc("mode", "balance-rr", "balance-rr, active-backup, balance-xor, broadcast or 802.3ad"),
    doc(
        "xmit_hash_policy",
        "layer2",
        "fields that balance-xor and 802.3ad hash: layer2, layer2+3, layer3+4, encap2+3, encap3+4 \
         or vlan+srcmac",
    ),
    doc("mac", "the first member's", "Ethernet address of the bond"),
    doc("protect_control", "false", "keep control frames away from programs"),
    doc("miimon", "0", "milliseconds between two checks of the links; 0: no checks (802.3ad: 100)"),
    doc("updelay", "0", "milliseconds that a link must be up before it is used"),
    doc("downdelay", "0", "milliseconds that a link must be down before it counts as down"),
    doc("arp_interval", "0", "milliseconds between two probes of the targets; 0: no probes"),
    doc("arp_ip_target", "none", "up to 16 IPv4 addresses to probe (ARP)"),
    doc("ns_ip6_target", "none", "up to 16 IPv6 addresses to probe (neighbour solicitation)"),
    doc(
        "arp_validate",
        "none",
        "received frames that show a working link: none, active, backup, all, filter, \
         filter_active or filter_backup",
    ),
    doc("arp_all_targets", "any", "how many targets must answer: any or all"),
    doc(
        "arp_missed_max",
        "2",
        "intervals without an answer before a link counts as down, 1 to 255",
    ),
    doc("num_peer_notif", "1", "announcements after a fail-over, 0 to 255"),
    doc(
        "peer_notif_delay",
        "0",
        "milliseconds between two announcements; 0: one at each check of the links",
    ),
    doc("resend_igmp", "1", "IGMP and MLD queries that the upper gets after a fail-over, 0 to 255"),
    doc(
        "announce",
        "none",
        "IP addresses of the bond, announced after a fail-over and used as source addresses of \
         probes",
    ),
    doc("primary", "none", "active-backup: the member to use whenever it works"),
    doc(
        "primary_reselect",
        "always",
        "active-backup: when a returning primary is used again: always, better or failure",
    ),
    doc("prio", "none", "active-backup: priorities of members, as { p0 = 10 }"),
    doc("active_slave", "none", "active-backup: the member to use now"),
    doc("fail_over_mac", "none", "address of the bond at a fail-over: none, active or follow"),
    doc("all_slaves_active", "false", "deliver frames that arrive on inactive members, too"),
    doc(
        "packets_per_slave",
        "1",
        "balance-rr: consecutive frames that one member sends; 0: a random member for each frame",
    ),
    doc(
        "min_links",
        "0",
        "802.3ad: least number of working members; with fewer the bond has no carrier",
    ),
    doc("lacp_rate", "slow", "802.3ad: ask for LACPDUs every 30 s (slow) or every second (fast)"),
    doc("lacp_active", "on", "802.3ad: send LACPDUs without being asked"),
    doc(
        "ad_select",
        "stable",
        "802.3ad: rule for the active aggregator: stable, bandwidth, count or actor_port_prio",
    ),
    doc("ad_actor_sys_prio", "65535", "802.3ad: LACP system priority, 1 to 65535"),
    doc("ad_actor_system", "the bond's address", "802.3ad: LACP system address"),
    doc("ad_user_port_key", "0", "802.3ad: upper bits of the members' port keys, 0 to 1023"),
    doc(
        "coupled_control",
        "on",
        "802.3ad: on: members start to receive and to send together; off: to receive first",
    ),
    doc("broadcast_neighbor", "off", "802.3ad: send ARP and neighbour messages by all members"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    members: Vec<String>,
    mode: Option<Name>,
    xmit_hash_policy: Option<Name>,
    mac: Option<String>,
    protect_control: bool,
    miimon: u32,
    updelay: u32,
    downdelay: u32,
    arp_interval: u32,
    arp_ip_target: Vec<Ipv4Addr>,
    ns_ip6_target: Vec<Ipv6Addr>,
    arp_validate: Option<Name>,
    arp_all_targets: Option<Name>,
    arp_missed_max: Option<u8>,
    num_peer_notif: Option<u8>,
    peer_notif_delay: u32,
    resend_igmp: Option<u8>,
    announce: Vec<IpAddr>,
    primary: Option<String>,
    primary_reselect: Option<Name>,
    prio: BTreeMap<String, i32>,
    active_slave: Option<String>,
    fail_over_mac: Option<Name>,
    all_slaves_active: bool,
    packets_per_slave: Option<u16>,
    min_links: u32,
    lacp_rate: Option<Name>,
    lacp_active: Option<Name>,
    ad_select: Option<Name>,
    ad_actor_sys_prio: Option<u16>,
    ad_actor_system: Option<String>,
    ad_user_port_key: u16,
    coupled_control: Option<Name>,
    broadcast_neighbor: Option<Name>,
}

/// A word, or the kernel's number or truth value for the word.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a word, or the kernel's number for it")]
enum Name {
    Word(String),
    Number(u32),
    Truth(bool),
}

impl Name {
    fn text(&self) -> String {
        match self {
            Name::Word(word) => word.clone(),
            Name::Number(number) => number.to_string(),
            Name::Truth(truth) => if *truth { "on" } else { "off" }.to_owned(),
        }
    }
}

/// A bond as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Names of the members, in order.
    pub(crate) members: Vec<String>,
    /// The bond's Ethernet address, if configured.
    pub(crate) mac: Option<[u8; 6]>,
    /// All other settings.
    pub(crate) settings: Settings,
}

/// The configuration of a bond; `None` for ports of other kinds.
pub(crate) fn wanted(port: &PortState) -> Option<Result<Wanted, Problem>> {
    (port.kind == KIND.name).then(|| read(port))
}

/// Removes the members for which `goes` is true from a bond, also as `primary` and `active_slave`.
pub(crate) fn release(port: &mut PortState, goes: &impl Fn(&str) -> bool) {
    if members(port).into_iter().any(goes)
        && let Some(Json::Array(list)) = port.options.get_mut("members")
    {
        list.retain(|name| !name.as_str().is_some_and(goes));
    }
    for key in ["primary", "active_slave"] {
        if port.kind == KIND.name && port.options.get(key).and_then(Json::as_str).is_some_and(goes)
        {
            port.options.remove(key);
        }
    }
}

/// Names of a bond's members; empty for ports of other kinds.
pub(crate) fn members(port: &PortState) -> Vec<&str> {
    match port.options.get("members") {
        Some(Json::Array(list)) if port.kind == KIND.name => {
            list.iter().filter_map(Json::as_str).collect()
        }
        _ => Vec::new(),
    }
}

fn check(port: &PortState) -> Result<(), Problem> {
    let layers = [
        ("fault", port.fault.is_some()),
        ("limit", port.limit.is_some()),
        ("rx_hash", port.rx_hash.is_some()),
        ("rx_vlan", port.rx_vlan.is_some()),
        ("timestamp", port.timestamp.is_some()),
        ("record", port.record.is_some()),
        ("trace", port.trace.is_some()),
        ("workers", !port.workers.is_empty()),
        ("spread", port.spread.is_some()),
    ];
    if let Some((key, _)) = layers.iter().find(|(_, is_set)| *is_set) {
        return Err(Problem::new(*key, "a bond has no queues of its own: say it of its members"));
    }
    read(port).map(drop)
}

fn open(_ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    Err("a bond is made by the engine, not opened".to_owned())
}

fn read(port: &PortState) -> Result<Wanted, Problem> {
    let keys: Keys = options(&KIND, port)?;
    let mode: BondMode = parsed("mode", keys.mode.as_ref())?;
    check_modes(port, mode)?;
    let mac = match &keys.mac {
        Some(text) => Some(mac::parse_or_make(Some(text), &port.name)?),
        None => None,
    };
    for (at, member) in keys.members.iter().enumerate() {
        if keys.members[..at].contains(member) {
            let message = format!("{member} is named twice");
            return Err(Problem::new(format!("members[{at}]"), message));
        }
    }
    for (key, member) in [("primary", &keys.primary), ("active_slave", &keys.active_slave)] {
        if let Some(member) = member
            && !keys.members.contains(member)
        {
            let hint = suggest::among(member, keys.members.iter().map(String::as_str));
            return Err(Problem::new(key, format!("{member} is no member{hint} (EINVAL)")));
        }
    }
    let settings = Settings {
        options: BondOptions {
            mode,
            policy: parsed::<XmitPolicy>("xmit_hash_policy", keys.xmit_hash_policy.as_ref())?,
            packets_per_slave: keys.packets_per_slave.map_or(1, u32::from),
            all_slaves_active: keys.all_slaves_active,
            protect_control: keys.protect_control,
            broadcast_neighbor: switch(
                "broadcast_neighbor",
                keys.broadcast_neighbor.as_ref(),
                false,
            )?,
            ..BondOptions::default()
        },
        num_peer_notif: keys.num_peer_notif.unwrap_or(1),
        peer_notif_delay: ms(keys.peer_notif_delay),
        resend_igmp: keys.resend_igmp.unwrap_or(1),
        announce: keys.announce.clone(),
        primary: keys.primary.clone(),
        primary_reselect: word("primary_reselect", keys.primary_reselect.as_ref())?,
        prio: keys.prio.clone(),
        active_slave: keys.active_slave.clone(),
        fail_over_mac: word::<FailOverMac>("fail_over_mac", keys.fail_over_mac.as_ref())?,
        min_links: keys.min_links,
        lacp: lacp(&keys, port)?,
        arp: arp(&keys)?,
        ..delays(&keys)?
    };
    Ok(Wanted { members: keys.members, mac, settings })
}

fn delays(keys: &Keys) -> Result<Settings, Problem> {
    for (key, delay) in [("updelay", keys.updelay), ("downdelay", keys.downdelay)] {
        if delay > 0 && keys.miimon == 0 {
            return Err(Problem::new(
                key,
                "it needs miimon: without it, links are not checked (EPERM)",
            ));
        }
    }
    // `bond_option_updelay_set`: rounded down to whole ticks of the monitor.
    let whole = |delay: u32| ms(delay - delay % keys.miimon.max(1));
    Ok(Settings {
        miimon: ms(keys.miimon),
        updelay: whole(keys.updelay),
        downdelay: whole(keys.downdelay),
        ..Settings::default()
    })
}

/// Settings of the ARP monitor (`bond_option_arp_interval_set` and related options).
fn arp(keys: &Keys) -> Result<ArpSettings, Problem> {
    if keys.arp_interval > 0 && keys.miimon > 0 {
        return Err(Problem::new("arp_interval", "not together with miimon: choose one (EINVAL)"));
    }
    let counts =
        [("arp_ip_target", keys.arp_ip_target.len()), ("ns_ip6_target", keys.ns_ip6_target.len())];
    if let Some((key, count)) = counts.into_iter().find(|(_, count)| *count > TARGETS_MAX) {
        let message = format!("{count} targets, but at most {TARGETS_MAX} can be probed (EINVAL)");
        return Err(Problem::new(key, message));
    }
    if keys.arp_interval > 0 && counts.iter().all(|(_, count)| *count == 0) {
        return Err(Problem::new(
            "arp_interval",
            "there are no targets: set arp_ip_target (EINVAL)",
        ));
    }
    if keys.arp_missed_max == Some(0) {
        return Err(Problem::new("arp_missed_max", "1 to 255 (EINVAL)"));
    }
    Ok(ArpSettings {
        interval: ms(keys.arp_interval),
        targets: keys.arp_ip_target.clone(),
        targets6: keys.ns_ip6_target.clone(),
        validate: word::<ArpValidate>("arp_validate", keys.arp_validate.as_ref())?,
        all_targets: choice("arp_all_targets", keys.arp_all_targets.as_ref(), &["any", "all"])?
            == 1,
        missed_max: keys.arp_missed_max.unwrap_or(0),
    })
}

fn lacp(keys: &Keys, port: &PortState) -> Result<LacpSettings, Problem> {
    if keys.ad_user_port_key > USER_KEY_MAX {
        return Err(Problem::new("ad_user_port_key", format!("0 to {USER_KEY_MAX} (EINVAL)")));
    }
    let system_priority = keys.ad_actor_sys_prio.unwrap_or(u16::MAX);
    if system_priority == 0 {
        return Err(Problem::new("ad_actor_sys_prio", "1 to 65535 (EINVAL)"));
    }
    let system = keys.ad_actor_system.as_deref();
    let system = system.map(|text| mac::parse_or_make(Some(text), &port.name)).transpose();
    let selects = AdSelect::ALL.map(AdSelect::name);
    Ok(LacpSettings {
        fast: choice("lacp_rate", keys.lacp_rate.as_ref(), &["slow", "fast"])? == 1,
        active: switch("lacp_active", keys.lacp_active.as_ref(), true)?,
        select: AdSelect::ALL[choice("ad_select", keys.ad_select.as_ref(), &selects)?],
        system_priority,
        system: system.map_err(|it| Problem::new("ad_actor_system", it.message))?,
        user_key: keys.ad_user_port_key,
        coupled: switch("coupled_control", keys.coupled_control.as_ref(), true)?,
    })
}

/// Refuses keys that the mode does not support (`unsuppmodes` of the kernel's option table).
fn check_modes(port: &PortState, mode: BondMode) -> Result<(), Problem> {
    use BondMode::{ActiveBackup, BalanceRr, BalanceXor, Broadcast, Lacp};
    for key in port.options.keys() {
        let modes: &[BondMode] = match key.as_str() {
            "packets_per_slave" => &[BalanceRr],
            "primary" | "primary_reselect" | "prio" | "active_slave" => &[ActiveBackup],
            "ad_select" => continue,
            key if key.starts_with("arp_") || key == "ns_ip6_target" => {
                &[BalanceRr, ActiveBackup, BalanceXor, Broadcast]
            }
            key if key.starts_with("lacp_") || key.starts_with("ad_") => &[Lacp],
            "coupled_control" | "broadcast_neighbor" => &[Lacp],
            _ => continue,
        };
        if !modes.contains(&mode) {
            let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            let message = format!("not in mode {mode}: only in {} (EACCES)", names.join(", "));
            return Err(Problem::new(key.clone(), message));
        }
    }
    Ok(())
}

fn parsed<T>(key: &str, name: Option<&Name>) -> Result<T, Problem>
where
    T: std::str::FromStr + Default,
    T::Err: std::fmt::Display,
{
    let Some(name) = name else { return Ok(T::default()) };
    name.text().parse().map_err(|error: T::Err| Problem::new(key, format!("{error} (EINVAL)")))
}

fn word<T: Word + Default>(key: &str, name: Option<&Name>) -> Result<T, Problem> {
    let Some(name) = name else { return Ok(T::default()) };
    let text = name.text();
    T::from_word(&text).ok_or_else(|| unknown(key, &text, T::WORDS.iter().map(|(name, _)| *name)))
}

/// Parses `on` or `off`.
fn switch(key: &str, name: Option<&Name>, usual: bool) -> Result<bool, Problem> {
    if name.is_none() {
        return Ok(usual);
    }
    choice(key, name, &["off", "on"]).map(|number| number == 1)
}

/// The index of the given word among `words`; 0 if no word is given.
fn choice(key: &str, name: Option<&Name>, words: &[&'static str]) -> Result<usize, Problem> {
    let Some(name) = name else { return Ok(0) };
    let text = name.text();
    let numbered = text.parse().ok().filter(|&number: &usize| number < words.len());
    let named = || words.iter().position(|word| *word == text);
    numbered.or_else(named).ok_or_else(|| unknown(key, &text, words.iter().copied()))
}

fn unknown<'a>(key: &str, text: &str, words: impl Iterator<Item = &'a str> + Clone) -> Problem {
    let hint = suggest::among(text, words);
    Problem::new(key, format!("no {key} \"{text}\"{hint} (EINVAL)"))
}

fn ms(milliseconds: u32) -> Duration {
    Duration::from_millis(milliseconds.into())
}

const USER_KEY_MAX: u16 = 1023;
/// `BOND_MAX_ARP_TARGETS`, `BOND_MAX_NS_TARGETS`
const TARGETS_MAX: usize = 16;
const _: () = assert!(USER_KEY_MAX < 1 << 10, "AD_PORT_KEY has ten bits for it");
