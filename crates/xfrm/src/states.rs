//! SAs as messages describe them (`struct xfrm_usersa_info`).

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::{Address, LifetimeConfig, UserSaInfo, XfrmAttrs};
use towpath_ipsec::{
    Config, Df, Direction, Dscp, Encapsulation, Lifetime, Limits, Mode, Replay, Sa, Selector,
    Tunnel, WINDOW_MIN,
};

use crate::algorithms::suite;
use crate::policies;
use crate::refused::{EPROTONOSUPPORT, Refused};

/// Outer destination address and SPI of an SA.
pub(crate) type Key = (IpAddr, u32);

/// The key of the SA in a message.
pub(crate) fn key(info: &UserSaInfo) -> Result<Key, Refused> {
    Ok((address(&info.id.daddr, info.family)?, info.id.spi))
}

/// An address of a family.
pub(crate) fn address(address: &Address, family: u16) -> Result<IpAddr, Refused> {
    match family {
        AF_INET => Ok(address.to_ipv4().into()),
        AF_INET6 => Ok(address.to_ipv6().into()),
        _ => Err(Refused::malformed(format!("{family} is no address family of an SA"))),
    }
}

/// Refuses protocols other than ESP.
pub(crate) fn check_protocol(protocol: u8) -> Result<(), Refused> {
    match protocol {
        IPPROTO_ESP => Ok(()),
        _ => Err(Refused::new(
            EPROTONOSUPPORT,
            format!("IP protocol {protocol} is not supported: only ESP is"),
        )),
    }
}

/// The SA that a message describes.
///
/// # Errors
///
/// The message asks for a feature that the accelerator doesn't have, or can't be.
pub(crate) fn config(
    info: &UserSaInfo,
    attributes: &[XfrmAttrs],
    direction: Direction,
) -> Result<Config, Refused> {
    check_protocol(info.id.proto)?;
    let (destination, spi) = key(info)?;
    let source = address(&info.saddr, info.family)?;
    let (suite, keys) = suite(attributes)?;
    let mut config = Config {
        direction,
        mode: mode(info)?,
        reqid: info.reqid,
        lifetime: lifetime(&info.lifetime_cfg)?,
        selector: selector(info)?,
        replay: Replay {
            window: info.replay_window.into(),
            esn: info.flags & XFRM_STATE_ESN != 0,
            last: 0,
        },
        ..Config::inbound(spi, source, destination, suite, keys)
    };
    for attribute in attributes {
        apply(&mut config, attribute)?;
    }
    config.replay.window = match (direction, config.replay.window) {
        // An outbound SA has none.
        (Direction::Outbound, _) | (_, 0) => 0,
        (Direction::Inbound, window) => window.max(WINDOW_MIN),
    };
    Ok(config)
}

fn mode(info: &UserSaInfo) -> Result<Mode, Refused> {
    let has = |flag| info.flags & flag != 0;
    match info.mode {
        XFRM_MODE_TRANSPORT => Ok(Mode::Transport),
        XFRM_MODE_TUNNEL => Ok(Mode::Tunnel(Tunnel {
            decap_dscp: has(XFRM_STATE_DECAP_DSCP),
            ecn: !has(XFRM_STATE_NOECN),
            df: if has(XFRM_STATE_NOPMTUDISC) { Df::Clear } else { Df::Copy },
            ..Tunnel::default()
        })),
        mode => Err(Refused::unsupported(&format!("mode {mode}: only tunnel and transport mode"))),
    }
}

/// The selector of the SA itself; one of all packets is none.
fn selector(info: &UserSaInfo) -> Result<Option<Selector>, Refused> {
    let it = &info.selector;
    let is_any = it.prefixlen_s == 0 && it.prefixlen_d == 0 && it.proto == 0;
    if it.family == AF_UNSPEC || is_any && it.sport_mask == 0 && it.dport_mask == 0 {
        return Ok(None);
    }
    policies::selector(it).map(Some)
}

/// Applies one attribute.
fn apply(config: &mut Config, attribute: &XfrmAttrs) -> Result<(), Refused> {
    match attribute {
        XfrmAttrs::EncapsulationTemplate(it) => {
            if it.encap_type != UDP_ENCAP_ESPINUDP {
                return Err(Refused::unsupported(&format!("encapsulation {}", it.encap_type)));
            }
            let (source_port, destination_port) = (it.encap_sport, it.encap_dport);
            config.encapsulation = Some(Encapsulation { source_port, destination_port });
        }
        XfrmAttrs::ReplayState(it) => {
            config.replay.last = match config.direction {
                Direction::Inbound => it.seq.into(),
                Direction::Outbound => it.oseq.into(),
            }
        }
        XfrmAttrs::ReplayStateEsn(it) => {
            if u64::from(it.replay_window) > 32 * u64::from(it.bmp_len) {
                return Err(Refused::malformed("the replay window is longer than its bitmap"));
            }
            config.replay.window = it.replay_window;
            let (high, low) = match config.direction {
                Direction::Inbound => (it.seq_hi, it.seq),
                Direction::Outbound => (it.oseq_hi, it.oseq),
            };
            config.replay.last = u64::from(high) << 32 | u64::from(low);
        }
        XfrmAttrs::TfcPadding(bytes) => {
            if let Mode::Tunnel(tunnel) = &mut config.mode {
                tunnel.tfc_padding = u16::try_from(*bytes).unwrap_or(u16::MAX);
            }
        }
        XfrmAttrs::ExtraFlags(flags) => {
            if let Mode::Tunnel(tunnel) = &mut config.mode
                && flags & XFRM_SA_XFLAG_DONT_ENCAP_DSCP != 0
            {
                tunnel.dscp = Dscp::Set(0);
            }
        }
        other => refuse(other)?,
    }
    Ok(())
}

/// Refuses attributes without which the SA would work on other packets, or otherwise.
pub(crate) fn refuse(attribute: &XfrmAttrs) -> Result<(), Refused> {
    match attribute {
        XfrmAttrs::Mark(it) if it.mask != 0 => Err(Refused::unsupported("a mark")),
        XfrmAttrs::MarkVal(mark) if *mark != 0 => Err(Refused::unsupported("a mark to set")),
        XfrmAttrs::IfId(id) if *id != 0 => Err(Refused::unsupported("an XFRM interface id")),
        XfrmAttrs::CompressionAlg(_) => Err(Refused::unsupported("IP compression")),
        XfrmAttrs::OffloadDevice(_) => Err(Refused::unsupported("offload to a network card")),
        XfrmAttrs::CareOfAddr(_) => Err(Refused::unsupported("a care-of address")),
        XfrmAttrs::SecurityContext(_) => Err(Refused::unsupported("a security context")),
        _ => Ok(()),
    }
}

fn lifetime(it: &LifetimeConfig) -> Result<Lifetime, Refused> {
    if it.soft_use_expires_seconds != 0 || it.hard_use_expires_seconds != 0 {
        return Err(Refused::unsupported("a limit of the time since the first use"));
    }
    let limit = |count: u64| (count != XFRM_INF && count != 0).then_some(count);
    let hard = Limits {
        bytes: limit(it.hard_byte_limit),
        packets: limit(it.hard_packet_limit),
        seconds: limit(it.hard_add_expires_seconds),
    };
    // The kernel takes soft limits that are not below the hard ones; they have no effect.
    let below =
        |soft: u64, hard: Option<u64>| limit(soft).filter(|&it| hard.is_none_or(|h| it < h));
    let soft = Limits {
        bytes: below(it.soft_byte_limit, hard.bytes),
        packets: below(it.soft_packet_limit, hard.packets),
        seconds: below(it.soft_add_expires_seconds, hard.seconds),
    };
    Ok(Lifetime { soft, hard })
}

/// The description with the present counters. `now` is in the table's seconds.
pub(crate) fn current(info: &UserSaInfo, sa: &Sa, now: u64) -> UserSaInfo {
    let statistics = sa.statistics();
    let mut info = *info;
    info.lifetime_cur.bytes = statistics.bytes;
    info.lifetime_cur.packets = statistics.packets;
    info.lifetime_cur.add_time = wall_time(statistics.added, now);
    info.lifetime_cur.use_time = wall_time(statistics.used, now);
    let clip = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    info.stats.replay = clip(statistics.refused.get(towpath_ipsec::Refusal::Replayed));
    info.stats.replay_window = clip(statistics.refused.get(towpath_ipsec::Refusal::OutsideWindow));
    info.stats.integrity_failed = clip(statistics.refused.get(towpath_ipsec::Refusal::BadIcv));
    info
}

/// The wall clock's seconds at a time of the table; 0 for 0, which is no time. `now` is in the
/// table's seconds.
pub(crate) fn wall_time(at: u64, now: u64) -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    if at == 0 { 0 } else { wall.as_secs().saturating_sub(now.saturating_sub(at)) }
}
