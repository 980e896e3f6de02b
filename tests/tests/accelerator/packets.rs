//! Peers, their SAs, and packets that can be told from all others.

use std::net::IpAddr;
use std::sync::Arc;

use towpath_ipsec::{
    Action, Aead, Cipher, Config, Direction, Encapsulation, Hmac, Keys, Lifetime, Limits, Policy,
    Prefix, Sa, Selector, Suite,
};

/// Number of peers. Peers from here on have neither SAs nor policies.
pub(crate) const PEERS: u8 = 8;

/// The peer whose suite does not encrypt.
const PLAIN: u8 = 3;

/// A text in each packet that must be encrypted.
const TEXT: &[u8] = b"this must be encrypted";

/// A text in the packets of [`PLAIN`].
const OPEN: &[u8] = b"everybody may read it!";

/// An IPv4 packet in Ethernet for or from this peer. Its bytes depend on the arguments only.
pub(crate) fn packet(peer: u8, number: u32) -> Vec<u8> {
    let text = if peer == PLAIN { OPEN } else { TEXT };
    let len = 20 + 8 + text.len() * (1 + number as usize % 50);
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend((len as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 253, 0, 0, 10, peer, 0, 1, 10, peer, 0, 2]);
    packet.extend([0, 0, 0, peer]);
    packet.extend(number.to_be_bytes());
    while packet.len() < 14 + len {
        packet.extend(text);
    }
    let sum: u32 =
        packet[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Whether this is a packet that a peer sent. Traffic class and checksum may differ, because a
/// tunnel's outer header marks congestion.
pub(crate) fn was_sent(frame: &[u8]) -> bool {
    let Some(&[_, _, _, peer, a, b, c, d]) = frame.get(34..42).and_then(<[u8]>::as_array) else {
        return false;
    };
    let sent = packet(peer, u32::from_be_bytes([a, b, c, d]));
    let masked = |frame: &[u8]| {
        let mut ip = frame[14..].to_vec();
        ip[1] = 0;
        ip[10..12].fill(0);
        ip
    };
    frame.len() == sent.len() && masked(frame) == masked(&sent)
}

/// Whether there is a text that must be encrypted.
pub(crate) fn has_text(bytes: &[u8]) -> bool {
    bytes.windows(TEXT.len()).any(|it| it == TEXT)
}

/// The SA between us and a peer. Both directions have the same SPI and keys.
pub(crate) fn config(peer: u8, direction: Direction, ends: [IpAddr; 2]) -> Config {
    let suite = match peer {
        0 | 4 => Suite::Aead(Aead::Aes128Gcm),
        1 => Suite::Aead(Aead::ChaCha20Poly1305),
        PLAIN => Suite::CipherThenHmac(Cipher::Null, Hmac::Sha256_128),
        2 | 5 => Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96),
        _ => Suite::CipherThenHmac(Cipher::Aes256Cbc, Hmac::Sha512_256),
    };
    let keys =
        Keys::new(vec![peer; suite.encryption_key_len()], vec![peer; suite.integrity_key_len()]);
    let mut config = Config::outbound(spi(peer), ends[0], ends[1], suite, keys);
    config.direction = direction;
    config.reqid = u32::from(peer) + 1;
    config.replay.esn = peer % 3 == 1;
    if peer >= 4 {
        config.encapsulation = Some(Encapsulation { source_port: 4500, destination_port: 4500 });
    }
    config
}

fn spi(peer: u8) -> u32 {
    0x1000 + u32::from(peer)
}

/// The SA with which a peer sends to us.
pub(crate) fn sender(peer: u8) -> Arc<Sa> {
    Arc::new(Sa::new(1, config(peer, Direction::Outbound, [far(peer), NEAR]), 0).unwrap())
}

/// The SA with which we receive from a peer.
pub(crate) fn inbound(peer: u8) -> Config {
    config(peer, Direction::Inbound, [far(peer), NEAR])
}

/// The SA with which we send to a peer. It ends soon.
pub(crate) fn outbound(peer: u8) -> Config {
    let hard = Limits { packets: Some(20_000), ..Limits::default() };
    let lifetime = Lifetime { soft: Limits::default(), hard };
    Config { lifetime, ..config(peer, Direction::Outbound, [NEAR, far(peer)]) }
}

pub(crate) fn policy(peer: u8) -> Policy {
    let prefix = Prefix { address: IpAddr::from([10, peer, 0, 0]), len: 16 };
    let selector = Selector::between(prefix, prefix);
    Policy { selector, priority: 1, action: Action::Protect(u32::from(peer) + 1) }
}

pub(crate) fn far(peer: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, 10 + peer])
}

pub(crate) const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
