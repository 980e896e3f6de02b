//! The host that programs see, as users describe it: `[host]` of a configuration, and the file of
//! `--fib`.
//!
//! Names are those of `ip route` and `ip neigh`. The description becomes [`Host`] tables here, with
//! every reference checked, so that helpers never see an interface that does not exist.

mod state;

use std::collections::HashMap;
use std::net::IpAddr;

use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_xdp::host::fib::{NextHop, Route, TABLE_MAIN};
use towpath_xdp::host::{Host, Interface, Neighbour, Vlan};

pub use state::{
    Device, HostState, InterfaceEntry, Mac, NeighbourEntry, NextHopEntry, RouteEntry, RouteWord,
    VlanEntry,
};

/// Parses a file of tables, TOML or JSON.
///
/// # Errors
///
/// Fails with a description of the error, and its line if known.
pub fn parse(text: &str) -> Result<HostState, String> {
    towpath_document::parse(text)
}

impl HostState {
    /// Makes tables of it. `ports` are interfaces that exist anyway; entries add to them by name.
    ///
    /// An entry with an error is reported with its path, and left out.
    pub fn tables(&self, ports: &[Interface]) -> (Host, Vec<Problem>) {
        let mut problems = Vec::new();
        let names = Names::new(&self.interface, ports, &mut problems);
        let mut host = Host {
            interfaces: each("interface", &self.interface, &mut problems, |entry| {
                interface(entry, &names, ports)
            }),
            routes: each("route", &self.route, &mut problems, |entry| route(entry, &names)),
            neighbours: each("neighbour", &self.neighbour, &mut problems, |entry| {
                neighbour(entry, &names)
            }),
            sockets: Vec::new(),
        };
        host.merge(ports.iter().cloned());
        (host, problems)
    }
}

fn each<E, T>(
    what: &str,
    entries: &[E],
    problems: &mut Vec<Problem>,
    convert: impl Fn(&E) -> Result<T, Problem>,
) -> Vec<T> {
    let mut converted = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        match convert(entry) {
            Ok(made) => converted.push(made),
            Err(problem) => problems.push(problem.inside(&format!("{what}[{index}]"))),
        }
    }
    converted
}

/// The numbers of interfaces and ports.
struct Names<'a> {
    by_name: HashMap<&'a str, u32>,
    by_number: HashMap<u32, &'a str>,
}

impl<'a> Names<'a> {
    fn new(
        interfaces: &'a [InterfaceEntry],
        ports: &'a [Interface],
        problems: &mut Vec<Problem>,
    ) -> Names<'a> {
        let mut names = Names { by_name: HashMap::new(), by_number: HashMap::new() };
        for port in ports {
            names.by_name.insert(&port.name, port.ifindex);
            names.by_number.insert(port.ifindex, &port.name);
        }
        let mut seen = HashMap::new();
        for (index, entry) in interfaces.iter().enumerate() {
            if let Err(problem) = names.add(entry, seen.insert(&entry.name, index).is_some()) {
                problems.push(problem.inside(&format!("interface[{index}]")));
            }
        }
        names
    }

    fn add(&mut self, entry: &'a InterfaceEntry, is_second: bool) -> Result<(), Problem> {
        let name = entry.name.as_str();
        if is_second {
            return Err(Problem::new("name", format!("two interfaces are called \"{name}\"")));
        }
        match (entry.ifindex, self.by_name.get(name)) {
            (None, Some(_port)) => Ok(()),
            (Some(_), Some(_port)) => {
                let message = format!("\"{name}\" is a port, which has a number: leave it out");
                Err(Problem::new("ifindex", message))
            }
            (None, None) => {
                let message = format!("no port is called \"{name}\": give the interface a number");
                Err(Problem::new("ifindex", message))
            }
            (Some(0), None) => Err(Problem::new("ifindex", "0, expected 1 or more")),
            (Some(number), None) => match self.by_number.insert(number, name) {
                Some(other) => {
                    let message = format!("\"{other}\" has the number {number}, too");
                    Err(Problem::new("ifindex", message))
                }
                None => {
                    self.by_name.insert(name, number);
                    Ok(())
                }
            },
        }
    }

    fn ifindex(&self, key: &str, device: &Device) -> Result<u32, Problem> {
        match device {
            Device::Number(number) if self.by_number.contains_key(number) => Ok(*number),
            Device::Number(number) => {
                Err(Problem::new(key, format!("no interface has ifindex {number}")))
            }
            Device::Name(name) => self.by_name.get(name.as_str()).copied().ok_or_else(|| {
                let hint = suggest::among(name, self.by_name.keys().copied());
                Problem::new(key, format!("no interface is called \"{name}\"{hint}"))
            }),
        }
    }
}

fn interface(
    entry: &InterfaceEntry,
    names: &Names<'_>,
    ports: &[Interface],
) -> Result<Interface, Problem> {
    let port = ports.iter().find(|port| port.name == entry.name);
    // An unknown name was reported before.
    let ifindex = port.map(|port| port.ifindex).or(entry.ifindex).unwrap_or_default();
    let vlan = match &entry.vlan {
        None => None,
        Some(vlan) if (1..=4094).contains(&vlan.id) => {
            let lower = names.ifindex("vlan.lower", &vlan.lower)?;
            Some(Vlan { lower, id: vlan.id, protocol: vlan.protocol })
        }
        Some(vlan) => return Err(Problem::new("vlan.id", format!("{}, not 1 to 4094", vlan.id))),
    };
    let forwarding = entry.forwarding.unwrap_or(port.is_some());
    Ok(Interface {
        ifindex,
        name: entry.name.clone(),
        mac: entry.mac.map(|mac| mac.0).or(port.map(|port| port.mac)).unwrap_or_default(),
        mtu: entry.mtu.or(port.map(|port| port.mtu)).unwrap_or(ETHERNET_MTU),
        up: entry.up.or(port.map(|port| port.up)).unwrap_or(true),
        forwarding_v4: entry.forwarding_v4.unwrap_or(forwarding),
        forwarding_v6: entry.forwarding_v6.unwrap_or(forwarding),
        addresses: entry.addresses.clone(),
        vlan,
    })
}

fn route(entry: &RouteEntry, names: &Names<'_>) -> Result<Route, Problem> {
    let (destination, prefix_len) = prefix(&entry.to, entry.via)?;
    let mut hops: Vec<NextHop> = Vec::with_capacity(entry.next_hops.len() + 1);
    if let Some(dev) = &entry.dev {
        hops.push(NextHop { ifindex: names.ifindex("dev", dev)?, gateway: entry.via, weight: 1 });
    } else if entry.via.is_some() {
        return Err(Problem::new("via", "without dev: which interface leads there?"));
    }
    for (index, hop) in entry.next_hops.iter().enumerate() {
        hops.push(NextHop {
            ifindex: names.ifindex(&format!("next_hops[{index}].dev"), &hop.dev)?,
            gateway: hop.via,
            weight: hop.weight.max(1),
        });
    }
    if entry.kind.needs_next_hop() && hops.is_empty() {
        return Err(Problem::new("", "a unicast route needs dev or next_hops"));
    }
    Ok(Route {
        table: entry.table.unwrap_or(TABLE_MAIN),
        destination,
        prefix_len,
        kind: entry.kind.into(),
        metric: entry.metric,
        mtu: entry.mtu,
        output_mtu: entry.mtu,
        encapsulates: entry.encapsulates,
        source: entry.src,
        next_hops: hops,
    })
}

fn neighbour(entry: &NeighbourEntry, names: &Names<'_>) -> Result<Neighbour, Problem> {
    let ifindex = names.ifindex("dev", &entry.dev)?;
    Ok(Neighbour { ifindex, address: entry.address, mac: entry.mac.0 })
}

/// `192.0.2.0/24`, an address alone, or `default` in the family of the gateway.
fn prefix(text: &str, via: Option<IpAddr>) -> Result<(IpAddr, u8), Problem> {
    if text == "default" {
        let zero = match via {
            Some(IpAddr::V6(_)) => IpAddr::from([0_u16; 8]),
            _ => IpAddr::from([0_u8; 4]),
        };
        return Ok((zero, 0));
    }
    let wanted = || {
        let message = format!("\"{text}\": expected a prefix such as 192.0.2.0/24, or default");
        Problem::new("to", message)
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_unparsable| wanted())?;
    let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        "" if !text.contains('/') => bits,
        digits => digits.parse().ok().filter(|len| *len <= bits).ok_or_else(wanted)?,
    };
    let network = network_of(address, length);
    if network != address {
        let message = format!("\"{text}\": bits past the prefix, expected {network}/{length}");
        return Err(Problem::new("to", message));
    }
    Ok((address, length))
}

/// The address with all bits past the prefix cleared.
fn network_of(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

/// MTU of an interface without another one, in bytes.
const ETHERNET_MTU: u32 = 1500;
/// Longest file of tables, in bytes.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use towpath_xdp::host::fib::RouteKind;

    use super::*;

    fn host(text: &str) -> Result<Host, String> {
        let (host, problems) = parse(text)?.tables(&[]);
        problems.first().map_or(Ok(host), |problem| Err(problem.to_string()))
    }

    const TWO_INTERFACES: &str = r#"
        [[interface]]
        ifindex = 2
        name = "eth0"
        mac = "02:00:00:00:00:01"
        forwarding = true

        [[interface]]
        ifindex = 3
        name = "eth1"
        mac = "02:00:00:00:00:02"
        mtu = 9000
        forwarding_v6 = true
    "#;

    #[test]
    fn tables_are_filled_from_names() {
        let text = format!(
            r#"{TWO_INTERFACES}
            [[route]]
            to = "198.51.100.0/24"
            via = "192.0.2.254"
            dev = "eth1"
            [[route]]
            to = "default"
            type = "blackhole"
            [[neighbour]]
            address = "192.0.2.254"
            dev = 3
            mac = "02:00:00:00:00:99"
            "#
        );
        let host = host(&text).unwrap();
        assert_eq!((host.interfaces[0].mtu, host.interfaces[1].mtu), (1500, 9000));
        assert!(host.interfaces[0].forwarding_v4 && !host.interfaces[1].forwarding_v4);
        let route = &host.routes[0];
        assert_eq!((route.prefix_len, route.table), (24, TABLE_MAIN));
        assert_eq!(route.next_hops[0].ifindex, 3);
        assert_eq!(host.routes[1].kind, RouteKind::Blackhole);
        let gateway = route.next_hops[0].gateway.unwrap();
        assert_eq!(host.neighbour(3, gateway), Some([2, 0, 0, 0, 0, 0x99]));
    }

    #[test]
    fn mistakes_are_named() {
        let refuse = |tail: &str| host(&format!("{TWO_INTERFACES}\n{tail}")).unwrap_err();
        let cases = [
            (
                "[[route]]\nto = \"10.0.0.0/8\"\ndev = \"eth2\"",
                "route[0].dev: no interface is called",
            ),
            ("[[route]]\nto = \"10.0.0.1/8\"\ndev = \"eth0\"", "expected 10.0.0.0/8"),
            ("[[route]]\nto = \"10.0.0.0/33\"\ndev = \"eth0\"", "expected a prefix"),
            ("[[route]]\nto = \"10.0.0.0/8\"", "needs dev or next_hops"),
            ("[[route]]\nto = \"10.0.0.0/8\"\ngateway = \"eth0\"", "route[0].gateway: unknown key"),
            ("[[neighbour]]\naddress=\"::1\"\ndev=2\nmac=\"02:0\"", "six bytes in hex"),
        ];
        for (tail, expected) in cases {
            let message = refuse(tail);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn ports_are_interfaces_and_entries_add_to_them() {
        let port = Interface {
            ifindex: 65537,
            name: "p0".to_owned(),
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 9000,
            up: true,
            forwarding_v4: true,
            forwarding_v6: true,
            addresses: Vec::new(),
            vlan: None,
        };
        let text = r#"
            [[interface]]
            name = "p0"
            addresses = ["192.0.2.1"]
            forwarding_v6 = false
            [[interface]]
            name = "p0.7"
            ifindex = 70
            vlan = { lower = "p0", id = 7 }
            [[route]]
            to = "default"
            via = "192.0.2.254"
            dev = "p0"
            [[route]]
            to = "198.51.100.0/24"
            dev = "p1"
        "#;
        let (host, problems) = parse(text).unwrap().tables(std::slice::from_ref(&port));
        assert_eq!(problems.len(), 1, "the rest is there: {problems:?}");
        assert!(problems[0].to_string().starts_with("route[1].dev: no interface is called"));
        let known = host.interface(65537).unwrap();
        assert_eq!((known.mtu, known.mac, known.addresses.len()), (9000, port.mac, 1));
        assert!(known.forwarding_v4 && !known.forwarding_v6);
        assert_eq!(host.interface(70).unwrap().vlan.unwrap().lower, 65537);
        assert_eq!((host.routes.len(), host.routes[0].next_hops[0].ifindex), (1, 65537));

        let refused = |text: &str, ports: &[Interface]| {
            let (_, problems) = parse(text).unwrap().tables(ports);
            problems[0].to_string()
        };
        let with_number = "[[interface]]\nname = \"p0\"\nifindex = 3";
        assert!(refused(with_number, &[port]).contains("is a port, which has a number"));
        assert!(
            refused("[[interface]]\nname = \"p0\"", &[]).contains("give the interface a number")
        );
    }
}
