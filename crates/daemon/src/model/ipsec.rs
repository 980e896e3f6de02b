//! Security associations and policies of IPsec, as they are wanted.
//!
//! An SA names the file of its keys; the keys themselves are in no document and no message.

mod checks;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_ipsec::{
    Action, Config, ConfigError, Df, Direction, Dscp, Encapsulation, Keys, Lifetime, Limits, Mode,
    Policy, Prefix, Replay, Sa, Selector, Suite, Tunnel,
};
use utoipa::ToSchema;

/// A security association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaState {
    /// The SA's name.
    pub name: String,
    /// The port of kind `ipsec` that uses the SA.
    pub port: String,
    /// Direction of the SA's packets.
    pub direction: DirectionState,
    /// Security parameters index, 256 or higher.
    pub spi: u32,
    /// Outer source address.
    #[schema(value_type = String)]
    pub source: IpAddr,
    /// Outer destination address.
    #[schema(value_type = String)]
    pub destination: IpAddr,
    /// Tunnel or transport mode.
    #[serde(default)]
    pub mode: ModeState,
    /// Name of the algorithms, such as `aes-gcm-128`.
    pub suite: String,
    /// Path of the file with the keys in hex, which only its owner may read.
    pub key_file: String,
    /// Ports of UDP encapsulation (RFC 3948).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpState>,
    /// Sequence numbers that an inbound SA tells apart: 32 to 4096, or 0 for no protection.
    /// Defaults to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window: Option<u32>,
    /// Sequence numbers of 64 bits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub esn: bool,
    /// Number by which policies name an outbound SA.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reqid: u32,
    /// Limits after which the SA should be replaced.
    #[serde(default, skip_serializing_if = "LimitsState::is_empty")]
    pub soft: LimitsState,
    /// Limits after which the SA refuses all packets.
    #[serde(default, skip_serializing_if = "LimitsState::is_empty")]
    pub hard: LimitsState,
    /// Properties of the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelState>,
    /// Packets that an inbound SA may bring. Defaults to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<SelectorState>,
    /// MTU of the path in bytes. Defaults to no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pmtu: Option<u16>,
}

/// Direction of an SA's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectionState {
    /// Received packets, which are decapsulated.
    In,
    /// Sent packets, which are encapsulated.
    Out,
}

/// Mode of an SA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModeState {
    /// ESP protects whole IP packets, behind an outer header.
    #[default]
    Tunnel,
    /// ESP protects the payload of the IP packet that it is in.
    Transport,
}

/// Ports of UDP encapsulation, as they are in packets of the SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UdpState {
    /// Source port. Defaults to 4500.
    pub source_port: u16,
    /// Destination port. Defaults to 4500.
    pub destination_port: u16,
}

impl Default for UdpState {
    fn default() -> UdpState {
        UdpState { source_port: NAT_PORT, destination_port: NAT_PORT }
    }
}

/// Limits of an SA. Unset ones are no limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsState {
    /// Bytes of IP packets, without what ESP adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Seconds after the SA was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// Properties of a tunnel (RFC 4301, 5.1.2; RFC 6040).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelState {
    /// DSCP of the outer header: `"copy"` for the inner one, or a number from 0 to 63.
    pub dscp: DscpState,
    /// Whether decapsulation copies the outer DSCP into the inner header.
    pub decap_dscp: bool,
    /// Whether ECN passes between the headers.
    pub ecn: bool,
    /// Don't Fragment in an outer IPv4 header.
    pub df: DfState,
    /// TTL or hop limit of the outer header.
    pub hop_limit: u8,
    /// Padding of inner packets to a multiple of this number of bytes. 0 is no padding.
    pub tfc_padding: u16,
}

/// DSCP of an outer header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected \"copy\" or a number from 0 to 63")]
pub enum DscpState {
    /// The inner header's.
    Word(CopyWord),
    /// This one.
    Number(u8),
}

/// The word `copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopyWord {
    /// As in the inner header.
    Copy,
}

/// Don't Fragment in an outer IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DfState {
    /// As in the inner header; set for IPv6.
    Copy,
    /// Always set.
    Set,
    /// Never set.
    Clear,
}

impl Default for TunnelState {
    fn default() -> TunnelState {
        let Tunnel { decap_dscp, ecn, hop_limit, tfc_padding, .. } = Tunnel::default();
        let (dscp, df) = (DscpState::Word(CopyWord::Copy), DfState::Copy);
        TunnelState { dscp, decap_dscp, ecn, df, hop_limit, tfc_padding }
    }
}

/// Packets that an SA may bring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectorState {
    /// Source addresses, as `10.0.0.0/8`.
    pub source: String,
    /// Destination addresses, of the same family.
    pub destination: String,
    /// Number of the protocol. Defaults to all protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Source port. Defaults to all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port. Defaults to all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
}

/// A policy: the treatment of packets that are sent to a port of kind `ipsec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyState {
    /// The policy's name.
    pub name: String,
    /// The port of kind `ipsec`.
    pub port: String,
    /// Source addresses, as `10.0.0.0/8`.
    pub source: String,
    /// Destination addresses, of the same family.
    pub destination: String,
    /// Number of the protocol. Defaults to all protocols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Source port. Defaults to all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination port. Defaults to all ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Of several policies for a packet, the one with the lowest number counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Treatment of the packets.
    pub action: ActionState,
    /// The `reqid` of the SAs that protect the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reqid: Option<u32>,
}

/// Treatment of a policy's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActionState {
    /// Encapsulation by the newest usable SA with the policy's `reqid`.
    Protect,
    /// Delivery as they are.
    Bypass,
    /// Refusal.
    Discard,
}

impl SaState {
    /// The state of an SA that an IKE daemon made. It has no key file.
    pub(crate) fn of_daemon(port: &str, sa: &Sa) -> SaState {
        let Replay { window, esn, .. } = sa.replay();
        let Lifetime { soft, hard } = sa.lifetime();
        SaState {
            name: format!("{port}:{:#x}", sa.spi()),
            port: port.to_owned(),
            direction: match sa.direction() {
                Direction::Inbound => DirectionState::In,
                Direction::Outbound => DirectionState::Out,
            },
            spi: sa.spi(),
            source: sa.source(),
            destination: sa.destination(),
            mode: match sa.mode() {
                Mode::Tunnel(_) => ModeState::Tunnel,
                Mode::Transport => ModeState::Transport,
            },
            suite: suite_name(sa.suite()),
            key_file: String::new(),
            udp: sa.encapsulation().map(|it| UdpState {
                source_port: it.source_port,
                destination_port: it.destination_port,
            }),
            replay_window: Some(window),
            esn,
            reqid: sa.reqid(),
            soft: LimitsState::of(soft),
            hard: LimitsState::of(hard),
            tunnel: None,
            selector: None,
            pmtu: None,
        }
    }

    /// The description of the SA with its keys.
    ///
    /// # Errors
    ///
    /// Fails with the first wrong key of the configuration, by its path in the SA.
    pub(crate) fn config(&self, keys: Keys) -> Result<Config, Problem> {
        let suite = suite(&self.suite)?;
        let tunnel = self.tunnel.clone().unwrap_or_default();
        let base = Config::inbound(self.spi, self.source, self.destination, suite, keys);
        let selector = self.selector.as_ref().map(|it| it.parse());
        let config = Config {
            direction: match self.direction {
                DirectionState::In => Direction::Inbound,
                DirectionState::Out => Direction::Outbound,
            },
            mode: match self.mode {
                ModeState::Tunnel => Mode::Tunnel(tunnel.parse()),
                ModeState::Transport => Mode::Transport,
            },
            encapsulation: self.udp.map(|UdpState { source_port, destination_port }| {
                Encapsulation { source_port, destination_port }
            }),
            replay: Replay {
                window: self.replay_window.unwrap_or(Replay::default().window),
                esn: self.esn,
                last: 0,
            },
            lifetime: Lifetime { soft: self.soft.parse(), hard: self.hard.parse() },
            selector: selector.transpose().map_err(|problem| problem.inside("selector"))?,
            reqid: self.reqid,
            pmtu: self.pmtu.unwrap_or(0),
            ..base
        };
        config.check().map_err(|error| Problem::new(self.place(&error), error.to_string()))?;
        Ok(config)
    }

    /// The key of the configuration that an error is about.
    fn place(&self, error: &ConfigError) -> String {
        let key = match error {
            ConfigError::ReservedSpi(_) => "spi",
            ConfigError::Unspecified(address) if *address == self.source => "source",
            ConfigError::Families { .. } | ConfigError::Unspecified(_) => "destination",
            ConfigError::Window(_) => "replay_window",
            ConfigError::EsnWithoutWindow => "esn",
            ConfigError::SoftAboveHard { unit, .. } => return format!("soft.{unit}"),
            ConfigError::PortZero if self.udp.is_some_and(|udp| udp.source_port == 0) => {
                "udp.source_port"
            }
            ConfigError::PortZero => "udp.destination_port",
            ConfigError::Dscp(_) => "tunnel.dscp",
            ConfigError::HopLimit => "tunnel.hop_limit",
            ConfigError::Pmtu { .. } => "pmtu",
            _ => "key_file",
        };
        key.to_owned()
    }

    /// Checks everything but the keys and the SA's relation to other things.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let wrong = |key: &str, message: &str| Err(Problem::new(key, message));
        self.config(Keys::new(Vec::new(), Vec::new()))?;
        if self.tunnel.is_some() && self.mode == ModeState::Transport {
            return wrong("tunnel", "it has no effect in transport mode");
        }
        if self.selector.is_some() && self.direction == DirectionState::Out {
            return wrong("selector", "only an inbound SA has one: policies choose an outbound SA");
        }
        if !self.key_file.starts_with('/') {
            return wrong("key_file", "expected an absolute path");
        }
        Ok(())
    }
}

impl PolicyState {
    /// The policy, as its port's table has it.
    ///
    /// # Errors
    ///
    /// Fails with the first wrong key of the configuration, by its path in the policy.
    pub(crate) fn policy(&self) -> Result<Policy, Problem> {
        let PolicyState { source, destination, protocol, source_port, destination_port, .. } =
            self.clone();
        let selector =
            SelectorState { source, destination, protocol, source_port, destination_port };
        let selector = selector.parse()?;
        let action = match (self.action, self.reqid) {
            (ActionState::Protect, Some(reqid)) => Action::Protect(reqid),
            (ActionState::Protect, None) => {
                let message = "it is missing: the reqid of the SAs that protect the packets";
                return Err(Problem::new("reqid", message));
            }
            (_, Some(_)) => {
                let message = "it has no effect without action = \"protect\"";
                return Err(Problem::new("reqid", message));
            }
            (ActionState::Bypass, None) => Action::Bypass,
            (ActionState::Discard, None) => Action::Discard,
        };
        Ok(Policy { selector, priority: self.priority, action })
    }
}

impl SelectorState {
    fn parse(&self) -> Result<Selector, Problem> {
        let source = prefix("source", &self.source)?;
        let destination = prefix("destination", &self.destination)?;
        if source.address.is_ipv4() != destination.address.is_ipv4() {
            let message =
                format!("{} and {} are not of the same family", self.source, self.destination);
            return Err(Problem::new("destination", message));
        }
        let SelectorState { protocol, source_port, destination_port, .. } = *self;
        Ok(Selector { source, destination, protocol, source_port, destination_port })
    }
}

impl LimitsState {
    fn is_empty(&self) -> bool {
        *self == LimitsState::default()
    }

    fn of(limits: Limits) -> LimitsState {
        let Limits { bytes, packets, seconds } = limits;
        LimitsState { bytes, packets, seconds }
    }

    fn parse(self) -> Limits {
        let LimitsState { bytes, packets, seconds } = self;
        Limits { bytes, packets, seconds }
    }
}

impl TunnelState {
    fn parse(&self) -> Tunnel {
        let TunnelState { dscp, decap_dscp, ecn, df, hop_limit, tfc_padding } = *self;
        Tunnel {
            dscp: match dscp {
                DscpState::Word(CopyWord::Copy) => Dscp::Copy,
                DscpState::Number(number) => Dscp::Set(number),
            },
            decap_dscp,
            ecn,
            df: match df {
                DfState::Copy => Df::Copy,
                DfState::Set => Df::Set,
                DfState::Clear => Df::Clear,
            },
            hop_limit,
            tfc_padding,
        }
    }
}

/// The subject of a failure of a port's policies.
pub(crate) fn policies_subject(port: &str) -> String {
    format!("policies of port {port}")
}

/// Finds a suite by its name in configuration: `aes-gcm-128`, `aes-cbc-128-hmac-sha1-96`.
///
/// # Errors
///
/// Fails if there is no such suite; the message suggests a similar one.
pub(crate) fn suite(name: &str) -> Result<Suite, Problem> {
    Suite::all().find(|suite| suite_name(*suite) == name).ok_or_else(|| {
        let names: Vec<String> = Suite::all().map(suite_name).collect();
        let hint = suggest::among(name, names.iter().map(String::as_str));
        Problem::new("suite", format!("no suite \"{name}\"{hint}"))
    })
}

/// Name of a suite in configuration.
pub(crate) fn suite_name(suite: Suite) -> String {
    suite.to_string().to_lowercase().replace(" with ", "-")
}

/// Parses `10.0.0.0/8`; an address alone is the prefix of its whole length.
fn prefix(key: &str, text: &str) -> Result<Prefix, Problem> {
    let wrong = || {
        let message =
            format!("\"{text}\" is not a prefix, like \"10.0.0.0/8\" or \"2001:db8::/32\"");
        Problem::new(key, message)
    };
    let (address, len) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_wrong| wrong())?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let has_len = text.contains('/');
    let len = if has_len { len.parse().map_err(|_wrong| wrong())? } else { bits };
    if len > bits {
        return Err(wrong());
    }
    Ok(Prefix { address, len })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// UDP port of NAT traversal (RFC 3948).
const NAT_PORT: u16 = 4500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_a_name_of_its_own() {
        let names: Vec<String> = Suite::all().map(suite_name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
            assert_eq!(Suite::all().nth(at), suite(name).ok());
        }
        for name in ["aes-gcm-128", "chacha20-poly1305", "aes-cbc-128-hmac-sha1-96"] {
            suite(name).expect(name);
        }
        let problem = suite("aes-gcm-127").expect_err("there is none").to_string();
        assert!(problem.contains("did you mean \"aes-gcm-1"), "{problem}");
    }

    #[test]
    fn prefixes_have_lengths_that_their_addresses_have() {
        let len = |text| prefix("source", text).map(|prefix| prefix.len).ok();
        assert_eq!(len("10.0.0.0/8"), Some(8));
        assert_eq!(len("10.0.0.1"), Some(32));
        assert_eq!(len("::/0"), Some(0));
        assert_eq!(len("2001:db8::1"), Some(128));
        for wrong in ["", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/8/8", "/8"] {
            assert_eq!(len(wrong), None, "{wrong}");
        }
    }
}
