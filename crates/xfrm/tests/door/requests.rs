//! Requests as an IKE daemon makes them, and their answers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use netlink_packet_core::{Emitable, NetlinkHeader};
use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::{
    Address, AlgAead, Id, LifetimeConfig, Selector, UserPolicyId, UserPolicyInfo, UserSaId,
    UserSaInfo, UserSpiInfo, UserTemplate, XfrmAttrs,
};
use towpath_ipsec::{Buffer as _, Direct, Engine as _, Esp, Job, OwnedBuffer, Refusal, Sa, finish};

/// Outer addresses of this side and of the peer's.
pub(crate) const NEAR: [u8; 4] = [192, 0, 2, 1];
pub(crate) const FAR: [u8; 4] = [192, 0, 2, 2];
pub(crate) const KEY: [u8; 20] = [7; 20];

/// A datagram, and what it asks for.
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    fn new(name: &str, kind: u16, flags: u16, parts: &[&[u8]]) -> Request {
        let mut header = NetlinkHeader::default();
        header.length = 16 + parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        header.message_type = kind;
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = 77;
        let mut bytes = emitted(&header);
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Request { name: name.to_owned(), bytes }
    }

    pub(crate) fn flush_sas() -> Request {
        Request::new("flush SAs", XFRM_MSG_FLUSHSA, NLM_F_ACK, &[&[IPPROTO_ESP, 0, 0, 0]])
    }

    /// The same without its last bytes.
    fn cut(self, len: usize) -> Request {
        let mut bytes = self.bytes;
        bytes.truncate(len);
        bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        Request { name: format!("{} cut to {len} bytes", self.name), bytes }
    }
}

fn emitted(part: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; part.buffer_len()];
    part.emit(&mut bytes);
    bytes
}

fn address(bytes: [u8; 4]) -> Address {
    Address::from_ipv4(&Ipv4Addr::from(bytes))
}

/// Source and destination of a direction.
fn ends(is_inbound: bool) -> (Address, Address) {
    let (near, far) = (address(NEAR), address(FAR));
    if is_inbound { (far, near) } else { (near, far) }
}

fn info(spi: u32, is_inbound: bool) -> UserSaInfo {
    let (saddr, daddr) = ends(is_inbound);
    let none = XFRM_INF;
    UserSaInfo {
        id: Id { daddr, spi, proto: IPPROTO_ESP },
        saddr,
        lifetime_cfg: LifetimeConfig {
            soft_byte_limit: none,
            hard_byte_limit: none,
            soft_packet_limit: none,
            hard_packet_limit: none,
            ..LifetimeConfig::default()
        },
        reqid: 7,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        replay_window: 32,
        flags: XFRM_STATE_AF_UNSPEC,
        ..UserSaInfo::default()
    }
}

/// A tunnel's SA with AES-GCM.
pub(crate) fn sa(kind: u16, spi: u32, is_inbound: bool) -> Request {
    let mut alg_name = [0; 64];
    alg_name[..17].copy_from_slice(b"rfc4106(gcm(aes))");
    let alg = AlgAead { alg_name, alg_key_len: 160, alg_icv_len: 128, alg_key: KEY.to_vec() };
    let attributes = emitted(&[XfrmAttrs::EncryptionAlgAead(alg)].as_slice());
    let name = if kind == XFRM_MSG_NEWSA { "add an SA" } else { "complete an SA" };
    Request::new(name, kind, NLM_F_ACK, &[&emitted(&info(spi, is_inbound)), &attributes])
}

/// An SPI of a range for an inbound SA.
pub(crate) fn spi_request(min: u32, max: u32) -> Request {
    let it = UserSpiInfo { info: info(0, true), min, max };
    Request::new(&format!("an SPI of {min}..={max}"), XFRM_MSG_ALLOCSPI, 0, &[&emitted(&it)])
}

pub(crate) fn sa_id(kind: u16, spi: u32, is_inbound: bool) -> Request {
    let (_, daddr) = ends(is_inbound);
    let it = UserSaId { daddr, spi, family: AF_INET, proto: IPPROTO_ESP };
    let flags = if kind == XFRM_MSG_GETSA { 0 } else { NLM_F_ACK };
    Request::new(&format!("SA {spi}: kind {kind:#x}"), kind, flags, &[&emitted(&it)])
}

fn selector(direction: u8) -> Selector {
    let (source, destination) = ([10, 1, 0, 0], [10, 2, 0, 0]);
    let is_sent = direction == XFRM_POLICY_OUT;
    let (saddr, daddr) = if is_sent { (source, destination) } else { (destination, source) };
    Selector {
        saddr: address(saddr),
        daddr: address(daddr),
        family: AF_INET,
        prefixlen_s: 24,
        prefixlen_d: 24,
        ..Selector::default()
    }
}

/// A policy that protects packets by SAs of reqid 7.
pub(crate) fn policy(kind: u16, direction: u8) -> Request {
    policy_by(kind, direction, 0)
}

/// A policy that protects packets by the SA of reqid 7 with this SPI; 0: by any of them.
pub(crate) fn policy_by(kind: u16, direction: u8, spi: u32) -> Request {
    let (saddr, daddr) = ends(direction != XFRM_POLICY_OUT);
    let template = UserTemplate {
        id: Id { daddr, spi, proto: IPPROTO_ESP },
        family: AF_INET,
        saddr,
        reqid: 7,
        mode: XFRM_MODE_TUNNEL,
        aalgos: u32::MAX,
        ealgos: u32::MAX,
        calgos: u32::MAX,
        ..UserTemplate::default()
    };
    let info = UserPolicyInfo {
        selector: selector(direction),
        lifetime_cfg: info(0, true).lifetime_cfg,
        priority: 1000,
        direction,
        ..UserPolicyInfo::default()
    };
    let attributes = emitted(&[XfrmAttrs::Template(vec![template])].as_slice());
    let name = format!("policy of direction {direction}: kind {kind:#x}");
    Request::new(&name, kind, NLM_F_ACK, &[&emitted(&info), &attributes])
}

pub(crate) fn policy_id(kind: u16, direction: u8) -> Request {
    let it = UserPolicyId { selector: selector(direction), index: 0, direction };
    let flags = if kind == XFRM_MSG_GETPOLICY { 0 } else { NLM_F_ACK };
    let name = format!("policy of direction {direction}: kind {kind:#x}");
    Request::new(&name, kind, flags, &[&emitted(&it)])
}

/// Requests that the kernel answers also where it has no ESP, in an order that matters.
pub(crate) fn script() -> Vec<Request> {
    let dump = |kind| Request::new("dump", kind, NLM_F_DUMP, &[&[0; 24]]);
    let (out, inward) = (XFRM_POLICY_OUT, XFRM_POLICY_IN);
    vec![
        sa_id(XFRM_MSG_GETSA, 0x1234, true),
        sa_id(XFRM_MSG_DELSA, 0x1234, true),
        sa_id(XFRM_MSG_GETSA, 0x1234, true).cut(30),
        sa(XFRM_MSG_NEWSA, 0x1234, true).cut(100),
        spi_request(500, 499),
        spi_request(500, 500),
        // The only SPI is taken now.
        spi_request(500, 500),
        sa_id(XFRM_MSG_GETSA, 500, true),
        sa_id(XFRM_MSG_DELSA, 500, true),
        sa_id(XFRM_MSG_DELSA, 500, true),
        spi_request(500, 500),
        spi_request(500, 600).cut(40),
        Request::flush_sas(),
        sa_id(XFRM_MSG_GETSA, 500, true),
        policy_id(XFRM_MSG_GETPOLICY, out),
        policy_id(XFRM_MSG_DELPOLICY, out),
        policy(XFRM_MSG_NEWPOLICY, out),
        policy(XFRM_MSG_NEWPOLICY, out),
        policy(XFRM_MSG_UPDPOLICY, out),
        policy(XFRM_MSG_UPDPOLICY, inward),
        policy(XFRM_MSG_NEWPOLICY, 3),
        policy(XFRM_MSG_NEWPOLICY, out).cut(120),
        policy_id(XFRM_MSG_GETPOLICY, out),
        policy_id(XFRM_MSG_GETPOLICY, inward),
        dump(XFRM_MSG_GETPOLICY),
        policy_id(XFRM_MSG_DELPOLICY, out),
        policy_id(XFRM_MSG_GETPOLICY, out),
        Request::new("flush policies", XFRM_MSG_FLUSHPOLICY, NLM_F_ACK, &[]),
        policy_id(XFRM_MSG_GETPOLICY, inward),
        dump(XFRM_MSG_GETPOLICY),
        Request::new("numbers of policies", XFRM_MSG_GETSPDINFO, 0, &[&[0; 4]]),
        Request::new("the same cut", XFRM_MSG_GETSPDINFO, 0, &[&[0; 2]]),
        dump(XFRM_MSG_GETSA),
    ]
}

/// A netlink message of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: u16,
    /// The positive error number of an acknowledgement, 0 for success.
    pub(crate) errno: Option<i32>,
    is_part: bool,
    payload: Vec<u8>,
}

impl Answer {
    /// Whether no message follows.
    pub(crate) fn ends(&self) -> bool {
        self.kind == NLMSG_DONE || !self.is_part
    }

    /// The SPI of an SA.
    pub(crate) fn spi(&self) -> u32 {
        let at = 56 + 16;
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("it is an SA"))
    }

    /// The time of a policy's last packet (`curlft.use_time`), in seconds of the wall clock.
    pub(crate) fn use_time(&self) -> u64 {
        let at = 56 + 64 + 24;
        u64::from_ne_bytes(self.payload[at..at + 8].try_into().expect("it is a policy"))
    }
}

/// The messages of a datagram.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut all = Vec::new();
    while bytes.len() >= 16 {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two"));
        let (len, kind, flags) = (word(0) as usize, half(4), half(6));
        let errno = (kind == NLMSG_ERROR).then(|| -word(16).cast_signed());
        let payload = bytes[16..len].to_vec();
        all.push(Answer { kind, errno, is_part: flags & NLM_F_MULTI != 0, payload });
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Sends a packet of 10.2.0.x, or from another network, by the peer's SA through an inbound one.
pub(crate) fn through(
    peer: &Arc<Sa>,
    sa: &Arc<Sa>,
    source: [u8; 4],
    now: u64,
) -> Result<(), Refusal> {
    let mut engine = Direct::new(8);
    let mut run = |jobs: &mut Vec<Job<OwnedBuffer>>| {
        engine.submit(jobs);
        engine.complete(jobs);
        finish(jobs.remove(0), now).map_err(|refused| refused.reason)
    };
    let mut jobs = Vec::new();
    peer.lock(now).encap(OwnedBuffer::new(&packet(source)), &mut jobs).expect("it can be sent");
    let sent = run(&mut jobs)?.buffer;
    let esp = Esp::of_frame(sent.bytes())?;
    sa.lock(now).decap(sent, &esp, &mut jobs).map_err(|refused| refused.reason)?;
    run(&mut jobs).map(drop)
}

/// UDP to 10.1.0.5.
fn packet(source: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![2; 12];
    packet.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(source);
    packet.extend([10, 1, 0, 5, 0x30, 0x39, 0, 53, 0, 8, 0, 0]);
    let words = packet[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
