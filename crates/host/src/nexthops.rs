//! Next-hop objects (`ip nexthop`), for routes that refer to one by its id.
//!
//! The kernel repeats an object's content in each route unless `net.ipv4.nexthop_compat_mode` is
//! off; then the content is found only here.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NlasIterator;
use towpath_xdp::host::fib::NextHop;

/// A next-hop object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Object {
    pub(crate) id: u32,
    gateway: Option<IpAddr>,
    ifindex: Option<u32>,
    encapsulates: bool,
    is_dead: bool,
    /// Ids and weights of a group.
    members: Vec<(u32, u32)>,
}

/// The next hops of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ways {
    pub(crate) hops: Vec<NextHop>,
    pub(crate) encapsulates: bool,
}

/// All objects by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Objects(HashMap<u32, Object>);

impl Objects {
    pub(crate) fn new(objects: Vec<Object>) -> Objects {
        Objects(objects.into_iter().map(|object| (object.id, object)).collect())
    }

    /// The next hops of an id. Groups contain no groups.
    pub(crate) fn ways(&self, id: u32) -> Ways {
        let mut ways = Ways::default();
        let Some(object) = self.0.get(&id) else { return ways };
        if object.members.is_empty() {
            ways.add(object, 1);
        }
        for (member, weight) in &object.members {
            if let Some(member) = self.0.get(member) {
                ways.add(member, *weight);
            }
        }
        ways
    }
}

impl Ways {
    fn add(&mut self, object: &Object, weight: u32) {
        if let (Some(ifindex), false) = (object.ifindex, object.is_dead) {
            self.hops.push(NextHop { ifindex, gateway: object.gateway, weight });
            self.encapsulates |= object.encapsulates;
        }
    }
}

/// The object in an `RTM_NEWNEXTHOP` (`struct nhmsg` and `NHA_*`).
pub(crate) fn object(body: &[u8]) -> Option<Object> {
    let [_family, _scope, _protocol, _reserved, flags @ ..] = body.first_chunk::<NHMSG_BYTES>()?;
    let is_dead = u32::from_ne_bytes(*flags) & RTNH_F_DEAD != 0;
    let mut object = Object { is_dead, ..Object::default() };
    for attribute in NlasIterator::new(&body[NHMSG_BYTES..]) {
        let attribute = attribute.ok()?;
        let value = attribute.value();
        let word = || value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match attribute.kind() {
            NHA_ID => object.id = word()?,
            NHA_GROUP => {
                let (entries, _) = value.as_chunks::<GROUP_ENTRY_BYTES>();
                // `struct nexthop_grp`: the weight is stored less one, with its upper half last.
                object.members.extend(entries.iter().map(|[a, b, c, d, low, high, ..]| {
                    let weight = u32::from(u16::from_le_bytes([*low, *high])) + 1;
                    (u32::from_ne_bytes([*a, *b, *c, *d]), weight)
                }));
            }
            NHA_OIF => object.ifindex = word(),
            NHA_GATEWAY => object.gateway = Some(ip(value)?),
            NHA_ENCAP_TYPE => object.encapsulates = true,
            _ => {}
        }
    }
    Some(object)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk()?).into()),
        _ => None,
    }
}

const NHMSG_BYTES: usize = 8;
const GROUP_ENTRY_BYTES: usize = 8;
const RTNH_F_DEAD: u32 = 1;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes
    }

    #[test]
    fn groups_are_their_members() {
        let body = |attributes: &[Vec<u8>]| [vec![0; NHMSG_BYTES], attributes.concat()].concat();
        let one = |id: u32| {
            let [id, out] = [id, 7].map(u32::to_ne_bytes);
            let gateway = attribute(NHA_GATEWAY, &[10, 0, 0, id[0]]);
            object(&body(&[attribute(NHA_ID, &id), attribute(NHA_OIF, &out), gateway])).unwrap()
        };
        let entries = [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 1, 0, 0];
        let id = attribute(NHA_ID, &9u32.to_ne_bytes());
        let group = object(&body(&[id, attribute(NHA_GROUP, &entries)])).unwrap();
        let objects = Objects::new(vec![one(1), one(2), group]);
        let gateways = |id| {
            let ways = objects.ways(id).hops.into_iter();
            ways.map(|hop| (hop.gateway, hop.weight)).collect::<Vec<_>>()
        };
        let via = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        assert_eq!(gateways(1), [(via(1), 1)]);
        assert_eq!(gateways(9), [(via(1), 1), (via(2), 261)]);
        assert_eq!(gateways(3), []);
        assert_eq!(object(&[0; 3]), None);
        assert_eq!(object(&body(&[attribute(NHA_GATEWAY, &[1, 2, 3])])), None);
    }
}
