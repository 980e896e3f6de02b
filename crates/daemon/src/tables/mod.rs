//! The file behind `--fib`: interfaces, routes and neighbours, in TOML or JSON.
//!
//! Names are those of `ip route` and `ip neigh`. The file becomes [`Host`] tables here, with every
//! reference checked, so that helpers never meet an interface that does not exist.

mod file;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use towpath_daemon::suggest;
use towpath_xdp::host::fib::{NextHop, Route, TABLE_MAIN};
use towpath_xdp::host::{Host, Interface, Neighbour, Vlan};

use crate::error::CliError;
use crate::files;
use file::{Device, FibFile, InterfaceEntry, NeighbourEntry, NextHopEntry, RouteEntry};

/// Reads a file of tables.
pub(crate) fn read(path: &Path) -> Result<Host, CliError> {
    let refused = |message: String| CliError::Text { path: path.to_owned(), message };
    let bytes = files::read(path, "a table of routes", FILE_BYTES_MAX)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| refused(format!("not text: byte {}", error.utf8_error().valid_up_to())))?;
    let is_json = text.trim_start().starts_with('{');
    let file: FibFile = if is_json {
        serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| refused(toml_message(&text, &error)))?
    };
    host(file).map_err(refused)
}

/// `line 3, column 1: ...`, as JSON errors have it.
fn toml_message(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else { return error.message().to_owned() };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
    format!("line {line}, column {column}: {}", error.message().replace('\n', " "))
}

/// From what the file says to tables; the error names the entry.
fn host(file: FibFile) -> Result<Host, String> {
    let FibFile { interface, route, neighbour } = file;
    let names = Names::new(&interface)?;
    Ok(Host {
        interfaces: each("interface", interface, |entry| interface_of(entry, &names))?,
        routes: each("route", route, |entry| route_of(entry, &names))?,
        neighbours: each("neighbour", neighbour, |entry| neighbour_of(entry, &names))?,
    })
}

fn each<E, T>(
    what: &str,
    entries: Vec<E>,
    convert: impl Fn(E) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let converted = entries.into_iter().enumerate().map(|(index, entry)| {
        convert(entry).map_err(|message| format!("{what} {}: {message}", index + 1))
    });
    converted.collect()
}

/// The interfaces by name and number.
struct Names {
    by_name: HashMap<String, u32>,
}

impl Names {
    fn new(interfaces: &[InterfaceEntry]) -> Result<Self, String> {
        let mut by_name = HashMap::new();
        let mut by_number = HashMap::new();
        for entry in interfaces {
            if entry.ifindex == 0 {
                return Err(format!("interface {}: ifindex is 0, expected 1 or more", entry.name));
            }
            if let Some(other) = by_number.insert(entry.ifindex, entry.name.clone()) {
                return Err(format!(
                    "{} and {other} both have ifindex {}",
                    entry.name, entry.ifindex
                ));
            }
            if by_name.insert(entry.name.clone(), entry.ifindex).is_some() {
                return Err(format!("two interfaces are called {}", entry.name));
            }
        }
        Ok(Names { by_name })
    }

    fn ifindex(&self, device: &Device) -> Result<u32, String> {
        match device {
            Device::Number(number) if self.by_name.values().any(|known| known == number) => {
                Ok(*number)
            }
            Device::Number(number) => Err(format!("no interface has ifindex {number}")),
            Device::Name(name) => self.by_name.get(name).copied().ok_or_else(|| {
                let hint = suggest::among(name, self.by_name.keys().map(String::as_str));
                format!("no interface is called {name:?}{hint}")
            }),
        }
    }
}

fn interface_of(entry: InterfaceEntry, names: &Names) -> Result<Interface, String> {
    let InterfaceEntry {
        ifindex,
        name,
        mac,
        mtu,
        up,
        forwarding,
        forwarding_v4,
        forwarding_v6,
        addresses,
        vlan,
    } = entry;
    let vlan = match vlan {
        None => None,
        Some(vlan) if (1..=4094).contains(&vlan.id) => {
            Some(Vlan { lower: names.ifindex(&vlan.lower)?, id: vlan.id, protocol: vlan.protocol })
        }
        Some(vlan) => return Err(format!("vlan id {}, expected 1 to 4094", vlan.id)),
    };
    Ok(Interface {
        ifindex,
        name,
        mac: mac.0,
        mtu,
        up,
        forwarding_v4: forwarding_v4.unwrap_or(forwarding),
        forwarding_v6: forwarding_v6.unwrap_or(forwarding),
        addresses,
        vlan,
    })
}

fn route_of(entry: RouteEntry, names: &Names) -> Result<Route, String> {
    let RouteEntry { to, via, dev, next_hops, kind, table, metric, mtu, src, encapsulates } = entry;
    let (destination, prefix_len) = prefix(&to, via)?;
    let mut hops: Vec<NextHop> = Vec::with_capacity(next_hops.len() + 1);
    if let Some(dev) = &dev {
        hops.push(NextHop { ifindex: names.ifindex(dev)?, gateway: via, weight: 1 });
    } else if via.is_some() {
        return Err(format!("{to}: via without dev: which interface leads there?"));
    }
    for NextHopEntry { via, dev, weight } in next_hops {
        hops.push(NextHop { ifindex: names.ifindex(&dev)?, gateway: via, weight: weight.max(1) });
    }
    if kind.needs_next_hop() && hops.is_empty() {
        return Err(format!("{to}: a unicast route needs dev or next_hops"));
    }
    Ok(Route {
        table: table.unwrap_or(TABLE_MAIN),
        destination,
        prefix_len,
        kind: kind.into(),
        metric,
        mtu,
        encapsulates,
        source: src,
        next_hops: hops,
    })
}

fn neighbour_of(entry: NeighbourEntry, names: &Names) -> Result<Neighbour, String> {
    let NeighbourEntry { address, dev, mac } = entry;
    Ok(Neighbour { ifindex: names.ifindex(&dev)?, address, mac: mac.0 })
}

/// `192.0.2.0/24`, an address alone, or `default` in the family of the gateway.
fn prefix(text: &str, via: Option<IpAddr>) -> Result<(IpAddr, u8), String> {
    if text == "default" {
        let zero = match via {
            Some(IpAddr::V6(_)) => IpAddr::from([0_u16; 8]),
            _ => IpAddr::from([0_u8; 4]),
        };
        return Ok((zero, 0));
    }
    let wanted = || format!("to = {text:?}: expected a prefix such as 192.0.2.0/24, or default");
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_unparsable| wanted())?;
    let bits: u8 = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        "" if !text.contains('/') => bits,
        digits => digits.parse().ok().filter(|len| *len <= bits).ok_or_else(wanted)?,
    };
    let network = network_of(address, length);
    if network != address {
        return Err(format!(
            "to = {text:?}: bits past the prefix are set, expected {network}/{length}"
        ));
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

const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use towpath_xdp::host::fib::RouteKind;

    use super::*;

    fn parse(text: &str) -> Result<Host, String> {
        host(toml::from_str(text).map_err(|error| toml_message(text, &error))?)
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
        let host = parse(&text).unwrap();
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
        let refuse = |tail: &str| parse(&format!("{TWO_INTERFACES}\n{tail}")).unwrap_err();
        let cases = [
            ("[[route]]\nto = \"10.0.0.0/8\"\ndev = \"eth2\"", "route 1: no interface is called"),
            ("[[route]]\nto = \"10.0.0.1/8\"\ndev = \"eth0\"", "expected 10.0.0.0/8"),
            ("[[route]]\nto = \"10.0.0.0/33\"\ndev = \"eth0\"", "expected a prefix"),
            ("[[route]]\nto = \"10.0.0.0/8\"", "needs dev or next_hops"),
            ("[[route]]\nto = \"10.0.0.0/8\"\ngateway = \"eth0\"", "unknown field `gateway`"),
            ("[[neighbour]]\naddress=\"::1\"\ndev=2\nmac=\"02:0\"", "six bytes in hex"),
        ];
        for (tail, expected) in cases {
            let message = refuse(tail);
            assert!(message.contains(expected), "{message}");
        }
    }
}
