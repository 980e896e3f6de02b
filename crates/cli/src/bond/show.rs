//! `bond show`: bonds and their members, as `/proc/net/bonding` shows them.

use towpath_daemon::api::types::bonds::{BondView, EndView, LacpView, MemberView, PortView};
use towpath_daemon::client::encoded;

use crate::args::PortArgs;
use crate::daemon::client;
use crate::error::CliError;
use crate::output::Output;

/// Prints one bond, or all.
pub(super) fn show(args: &PortArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let bonds: Vec<BondView> = match &args.port {
        Some(name) => vec![client.get(&format!("/v1/bonds/{}", encoded(name)))?],
        None => client.get("/v1/bonds")?,
    };
    if output.json {
        return output.json(&bonds);
    }
    let texts: Vec<String> = bonds.iter().map(text).collect();
    texts.join("\n").lines().try_for_each(|line| output.line(line))
}

fn text(bond: &BondView) -> String {
    let mut lines = vec![format!("Bond: {} (ifindex {})", bond.name, bond.ifindex), mode(bond)];
    if bond.lacp.is_some() || bond.mode == "balance-xor" {
        lines.push(format!("Transmit Hash Policy: {}", bond.xmit_hash_policy));
    }
    if bond.mode == "active-backup" {
        let primary = match &bond.primary {
            Some(name) => format!("{name} (primary_reselect {})", bond.primary_reselect),
            None => "None".to_owned(),
        };
        lines.push(format!("Primary Slave: {primary}"));
        lines.push(format!("Currently Active Slave: {}", bond.active.as_deref().unwrap_or("None")));
    }
    lines.extend([
        format!("MII Status: {}", bond.mii_status),
        format!("MII Polling Interval (ms): {}", bond.miimon),
        format!("Up Delay (ms): {}", bond.updelay),
        format!("Down Delay (ms): {}", bond.downdelay),
        format!("Peer Notification Delay (ms): {}", bond.peer_notif_delay),
        format!("HW addr: {}", bond.mac),
    ]);
    if let Some(arp) = &bond.arp {
        lines.extend([
            format!("ARP Polling Interval (ms): {}", arp.interval),
            format!("ARP Missed Max: {}", arp.missed_max),
            format!("ARP Validate: {}", arp.validate),
            format!("ARP IP target/s (n.n.n.n form): {}", arp.ip_targets.join(", ")),
            format!("NS IPv6 target/s (xx::xx form): {}", arp.ns_targets.join(", ")),
        ]);
    }
    if !bond.programs.is_empty() {
        lines.push(format!("XDP (delegated to all slaves): {}", bond.programs.join(", ")));
    }
    if let Some(lacp) = &bond.lacp {
        lines.extend(lacp_lines(lacp));
    }
    bond.members.iter().for_each(|member| lines.extend(member_lines(member)));
    lines.push(String::new());
    lines.join("\n")
}

/// Name of a mode in the kernel's words.
fn mode(bond: &BondView) -> String {
    let words = match bond.mode.as_str() {
        "balance-rr" => "load balancing (round-robin)",
        "active-backup" => "fault-tolerance (active-backup)",
        "balance-xor" => "load balancing (xor)",
        "broadcast" => "fault-tolerance (broadcast)",
        _ => "IEEE 802.3ad Dynamic link aggregation",
    };
    match bond.fail_over_mac.as_str() {
        "none" => format!("Bonding Mode: {words}"),
        other => format!("Bonding Mode: {words} (fail_over_mac {other})"),
    }
}

fn lacp_lines(lacp: &LacpView) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        "802.3ad info".to_owned(),
        format!("LACP active: {}", if lacp.active { "on" } else { "off" }),
        format!("LACP rate: {}", lacp.rate),
        format!("Min links: {}", lacp.min_links),
        format!("Aggregator selection policy (ad_select): {}", lacp.ad_select),
        format!("System priority: {}", lacp.system_priority),
        format!("System MAC address: {}", lacp.system),
    ];
    match &lacp.aggregator {
        None => lines.push("bond has no active aggregator".to_owned()),
        Some(it) => lines.extend([
            "Active Aggregator Info:".to_owned(),
            format!("\tAggregator ID: {}", it.id),
            format!("\tNumber of ports: {}", it.ports),
            format!("\tActor Key: {}", it.actor_key),
            format!("\tPartner Key: {}", it.partner_key),
            format!("\tPartner Mac Address: {}", it.partner_mac),
        ]),
    }
    lines
}

fn member_lines(member: &MemberView) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        format!("Slave Interface: {}", member.name),
        format!("MII Status: {}", member.mii_status),
        format!("Speed: {}", member.speed.map_or("Unknown".to_owned(), |it| format!("{it} Mbps"))),
        format!("Duplex: {}", member.duplex.as_deref().unwrap_or("Unknown")),
        format!("Link Failure Count: {}", member.link_failure_count),
        format!("Permanent HW addr: {}", member.permanent_mac),
    ];
    if member.prio != 0 {
        lines.push(format!("Slave prio: {}", member.prio));
    }
    if let Some(port) = &member.lacp {
        lines.extend(port_lines(port));
    }
    lines
}

fn port_lines(port: &PortView) -> Vec<String> {
    let id = port.aggregator_id.map_or("N/A".to_owned(), |id| id.to_string());
    let mut lines = vec![
        format!("Aggregator ID: {id}"),
        format!("Receive, Periodic, Mux: {}, {}, {}", port.receive, port.periodic, port.mux),
        format!("Actor Churn State: {}", port.actor_churn),
        format!("Partner Churn State: {}", port.partner_churn),
        format!("Actor Churned Count: {}", port.actor_churned),
        format!("Partner Churned Count: {}", port.partner_churned),
        format!("LACPDUs sent, received: {}, {}", port.lacpdu_tx, port.lacpdu_rx),
    ];
    for (which, end) in [("actor", &port.actor), ("partner", &port.partner)] {
        lines.push(format!("details {which} lacp pdu:"));
        lines.extend(end_lines(end));
    }
    lines
}

fn end_lines(end: &EndView) -> [String; 6] {
    [
        format!("    system priority: {}", end.system_priority),
        format!("    system mac address: {}", end.system_mac),
        format!("    port key: {}", end.key),
        format!("    port priority: {}", end.port_priority),
        format!("    port number: {}", end.port_number),
        format!("    port state: {}", end.port_state),
    ]
}
