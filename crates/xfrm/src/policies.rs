//! Policies as messages describe them (`struct xfrm_userpolicy_info`).

use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::{self as netlink, UserPolicyInfo, UserTemplate, XfrmAttrs};
use towpath_ipsec::{Action, Policy, Prefix, Selector};

use crate::refused::Refused;
use crate::states;

/// Direction of a policy (`XFRM_POLICY_IN`, ...) and its selector, which name it.
pub(crate) type Key = (u8, Selector);

/// A policy with its message.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) info: UserPolicyInfo,
    pub(crate) template: Option<UserTemplate>,
    /// The attributes of the message.
    pub(crate) attributes: Vec<u8>,
}

impl Held {
    /// The policy that a message describes.
    ///
    /// # Errors
    ///
    /// The message asks for a feature that the accelerator doesn't have, or can't be.
    pub(crate) fn new(
        info: UserPolicyInfo,
        attributes: &[XfrmAttrs],
        bytes: &[u8],
    ) -> Result<Held, Refused> {
        let mut template = None;
        for attribute in attributes {
            match attribute {
                XfrmAttrs::Template(list) => template = the_only(list)?.copied(),
                XfrmAttrs::PolicyType(it) if it.ptype != XFRM_POLICY_TYPE_MAIN => {
                    return Err(Refused::unsupported("a policy of type \"sub\""));
                }
                other => states::refuse(other)?,
            }
        }
        if let Some(template) = &template {
            states::check_protocol(template.id.proto)?;
            if template.reqid == 0 {
                return Err(Refused::unsupported("a policy without a reqid"));
            }
        }
        if ![XFRM_POLICY_ALLOW, XFRM_POLICY_BLOCK].contains(&info.action) {
            return Err(Refused::malformed(format!("{} is no action of a policy", info.action)));
        }
        Ok(Held { info, template, attributes: bytes.to_vec() })
    }

    /// The reqid of the SAs that protect packets.
    pub(crate) fn reqid(&self) -> Option<u32> {
        let is_allowed = self.info.action == XFRM_POLICY_ALLOW;
        self.template.filter(|_| is_allowed).map(|template| template.reqid)
    }

    /// The policy of the table: only those for sent packets are in it.
    ///
    /// strongSwan adds the outbound SA of a change of keys before the peer has the inbound one, and
    /// writes its SPI into the policy when the peer is ready.
    pub(crate) fn policy(&self, selector: Selector) -> Option<Policy> {
        let action = match (self.info.action, self.reqid()) {
            (XFRM_POLICY_BLOCK, _) => Action::Discard,
            (_, None) => Action::Bypass,
            (_, Some(reqid)) => match self.template.map_or(0, |template| template.id.spi) {
                0 => Action::Protect(reqid),
                spi => Action::ProtectBy { reqid, spi },
            },
        };
        let is_sent = self.info.direction == XFRM_POLICY_OUT;
        is_sent.then_some(Policy { selector, priority: self.info.priority, action })
    }
}

/// The only template, if there is one.
fn the_only(list: &[UserTemplate]) -> Result<Option<&UserTemplate>, Refused> {
    match list {
        [] => Ok(None),
        [template] => Ok(Some(template)),
        _ => Err(Refused::unsupported("a policy of several transformations")),
    }
}

/// The name of a policy.
pub(crate) fn key(direction: u8, it: &netlink::Selector) -> Result<Key, Refused> {
    if direction > XFRM_POLICY_FWD {
        return Err(Refused::malformed(format!("{direction} is no direction of a policy")));
    }
    Ok((direction, selector(it)?))
}

/// The selector of a message (`struct xfrm_selector`).
///
/// # Errors
///
/// It has no family, prefixes longer than addresses, or ranges of ports.
pub(crate) fn selector(it: &netlink::Selector) -> Result<Selector, Refused> {
    if it.ifindex != 0 {
        return Err(Refused::unsupported("a selector with an interface"));
    }
    let prefix = |address, len: u8| {
        let address = states::address(address, it.family)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if len > most {
            return Err(Refused::malformed(format!("a prefix of {address} has no {len} bits")));
        }
        Ok(Prefix { address, len })
    };
    let port = |port: u16, mask: u16| match mask {
        0 => Ok(None),
        u16::MAX if [IPPROTO_ICMP, IPPROTO_ICMPV6].contains(&it.proto) => {
            Err(Refused::unsupported("a selector with a type of ICMP"))
        }
        u16::MAX => Ok(Some(port)),
        _ => Err(Refused::unsupported("a selector with a range of ports")),
    };
    Ok(Selector {
        source: prefix(&it.saddr, it.prefixlen_s)?,
        destination: prefix(&it.daddr, it.prefixlen_d)?,
        protocol: (it.proto != 0).then_some(it.proto),
        source_port: port(it.sport, it.sport_mask)?,
        destination_port: port(it.dport, it.dport_mask)?,
    })
}
