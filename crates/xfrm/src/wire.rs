//! Netlink messages: taking datagrams apart, and putting answers together.

use netlink_packet_core::{DecodeError, Emitable, Nla, ParseableParametrized};
use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::{
    XFRM_ASYNC_EVENT_ID_LEN, XFRM_USER_POLICY_ID_LEN, XFRM_USER_POLICY_INFO_LEN,
    XFRM_USER_SA_ID_LEN, XFRM_USER_SA_INFO_LEN, XFRM_USER_SPI_INFO_LEN, XfrmMessage,
};
use zeroize::Zeroizing;

use crate::refused::{EOPNOTSUPP, Refused};

/// A request with the header's fields (`struct nlmsghdr`) that answers need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) pid: u32,
    pub(crate) payload: &'a [u8],
}

impl Request<'_> {
    /// Whether all entries are asked for.
    pub(crate) fn is_dump(&self) -> bool {
        self.flags & NLM_F_DUMP == NLM_F_DUMP
    }

    /// The message in it.
    ///
    /// # Errors
    ///
    /// The kind is unknown, or the message is too short for its kind or malformed.
    pub(crate) fn message(&self) -> Result<XfrmMessage, Refused> {
        let least = least_len(self.kind).ok_or_else(|| {
            Refused::new(EOPNOTSUPP, format!("messages of kind {:#x} are not supported", self.kind))
        })?;
        // The parser takes the fixed part of each kind without asking for its length.
        if self.payload.len() < least {
            let has = self.payload.len();
            return Err(Refused::malformed(format!(
                "a message of kind {:#x} has at least {least} bytes, not {has}",
                self.kind
            )));
        }
        XfrmMessage::parse_with_param(self.payload, self.kind)
            .map_err(|error: DecodeError| Refused::malformed(error.to_string()))
    }

    /// The attributes behind the fixed part of the message.
    pub(crate) fn attributes(&self) -> &[u8] {
        least_len(self.kind).and_then(|least| self.payload.get(least..)).unwrap_or_default()
    }
}

/// Bytes of the fixed part of a message that is supported (`xfrm_msg_min` in the kernel).
fn least_len(kind: u16) -> Option<usize> {
    Some(match kind {
        XFRM_MSG_NEWSA | XFRM_MSG_UPDSA => XFRM_USER_SA_INFO_LEN,
        XFRM_MSG_DELSA | XFRM_MSG_GETSA => XFRM_USER_SA_ID_LEN,
        XFRM_MSG_ALLOCSPI => XFRM_USER_SPI_INFO_LEN,
        XFRM_MSG_FLUSHSA => 1,
        XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY => XFRM_USER_POLICY_INFO_LEN,
        XFRM_MSG_DELPOLICY | XFRM_MSG_GETPOLICY => XFRM_USER_POLICY_ID_LEN,
        XFRM_MSG_FLUSHPOLICY => 0,
        XFRM_MSG_GETSPDINFO => 4,
        XFRM_MSG_GETAE => XFRM_ASYNC_EVENT_ID_LEN,
        _ => return None,
    })
}

/// The requests of a datagram, up to bytes that are none.
pub(crate) fn requests(mut datagram: &[u8]) -> impl Iterator<Item = Request<'_>> {
    std::iter::from_fn(move || {
        let (request, rest) = first_request(datagram)?;
        datagram = rest;
        Some(request)
    })
}

fn first_request(bytes: &[u8]) -> Option<(Request<'_>, &[u8])> {
    let field = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let len = field(0)? as usize;
    let request = Request {
        kind: half(4)?,
        flags: half(6)?,
        sequence: field(8)?,
        pid: field(12)?,
        payload: bytes.get(HEADER_LEN..len)?,
    };
    let behind = bytes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    Some((request, behind))
}

/// A message with a header. Its bytes may have keys, so they are overwritten when dropped.
pub(crate) fn message(
    to: &Request<'_>,
    kind: u16,
    flags: u16,
    parts: &[&[u8]],
) -> Zeroizing<Vec<u8>> {
    let len = HEADER_LEN + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = Zeroizing::new(Vec::with_capacity(len));
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(to.sequence.to_ne_bytes());
    bytes.extend(to.pid.to_ne_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// A notification: no request has caused it.
pub(crate) fn notification(kind: u16, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let nobody = Request { kind, flags: 0, sequence: 0, pid: 0, payload: &[] };
    message(&nobody, kind, 0, parts)
}

/// An acknowledgement or an error: `NLMSG_ERROR` with the request's header. `errno` is positive, or
/// 0 for success.
pub(crate) fn acknowledge(to: &Request<'_>, errno: i32) -> Zeroizing<Vec<u8>> {
    let code = (-errno).to_ne_bytes();
    let len = ((HEADER_LEN + to.payload.len()) as u32).to_ne_bytes();
    let (kind, flags) = (to.kind.to_ne_bytes(), to.flags.to_ne_bytes());
    let (sequence, pid) = (to.sequence.to_ne_bytes(), to.pid.to_ne_bytes());
    // Without the request's payload (NLM_F_CAPPED): it may have keys.
    message(to, NLMSG_ERROR, NLM_F_CAPPED, &[&code, &len, &kind, &flags, &sequence, &pid])
}

/// The end of a dump.
pub(crate) fn done(to: &Request<'_>) -> Zeroizing<Vec<u8>> {
    message(to, NLMSG_DONE, NLM_F_MULTI, &[&0i32.to_ne_bytes()])
}

/// The bytes of a fixed part.
pub(crate) fn bytes(part: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; part.buffer_len()];
    part.emit(&mut bytes);
    bytes
}

/// The bytes of attributes.
pub(crate) fn attributes<N: Nla>(list: &[N]) -> Vec<u8> {
    let mut bytes = vec![0; list.buffer_len()];
    list.emit(&mut bytes);
    bytes
}

pub(crate) const NLMSG_NOOP: u16 = 1;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLM_F_MULTI: u16 = 2;
pub(crate) const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CAPPED: u16 = 0x100;

const HEADER_LEN: usize = 16;
const ALIGNMENT: usize = 4;
