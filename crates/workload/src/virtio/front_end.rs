//! The front end of a vhost-user socket: a monitor that passes a guest's memory and queues.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{GUEST_BASE, GuestMemory, Queue, USER_BASE};

/// A connection to a back end.
#[derive(Debug)]
pub struct FrontEnd {
    stream: UnixStream,
    /// Whether messages are acknowledged.
    acknowledges: bool,
}

impl FrontEnd {
    /// A front end over a connected socket.
    pub fn new(stream: UnixStream) -> FrontEnd {
        FrontEnd { stream, acknowledges: false }
    }

    /// Sends a request without changes.
    pub fn send(
        &self,
        request: u32,
        flags: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for word in [request, VERSION | flags, payload.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let parts = [IoSlice::new(&bytes)];
        sendmsg(&self.stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The payload of an answer to this request.
    pub fn answer(&mut self, request: u32) -> io::Result<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header)?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if (word(0), word(4)) != (request, VERSION | REPLY) || word(8) > 4096 {
            return Err(io::Error::other(format!("{header:?} is no answer to {request}")));
        }
        let mut payload = vec![0; word(8) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }

    /// Asks for a 64-bit number.
    pub fn ask(&mut self, request: u32) -> io::Result<u64> {
        self.send(request, 0, &[], &[])?;
        number(&self.answer(request)?)
    }

    /// Sends a message, and waits for its acknowledgement if that was negotiated. Fails if the
    /// message is refused.
    pub fn say(
        &mut self,
        request: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let flags = if self.acknowledges { NEED_REPLY } else { 0 };
        self.send(request, flags, payload, files)?;
        if self.acknowledges && number(&self.answer(request)?)? != 0 {
            return Err(io::Error::other(format!("request {request} is refused")));
        }
        Ok(())
    }

    /// Negotiates features; gives those of `wanted` that are offered.
    pub fn negotiate(&mut self, wanted: u64) -> io::Result<u64> {
        let features = self.ask(GET_FEATURES)? & (wanted | 1 << PROTOCOL_FEATURES);
        if features & 1 << PROTOCOL_FEATURES != 0 {
            let protocol = self.ask(GET_PROTOCOL_FEATURES)?;
            self.say(SET_PROTOCOL_FEATURES, &protocol.to_ne_bytes(), &[])?;
            self.acknowledges = protocol & 1 << REPLY_ACK != 0;
        }
        self.say(SET_OWNER, &[], &[])?;
        self.say(SET_FEATURES, &features.to_ne_bytes(), &[])?;
        Ok(features)
    }

    /// Passes all of a guest's memory as one region.
    pub fn pass_memory(&mut self, memory: &GuestMemory) -> io::Result<()> {
        let mut payload = Vec::new();
        payload.extend([1u32, 0].map(u32::to_ne_bytes).concat());
        let region = [GUEST_BASE, memory.len() as u64, USER_BASE, 0];
        payload.extend(region.map(u64::to_ne_bytes).concat());
        self.say(SET_MEM_TABLE, &payload, &[memory.file()])
    }

    /// Asks for a region for the in-flight state; gives it, with its description.
    pub fn make_inflight(&mut self, queues: u16, size: u16) -> io::Result<Inflight> {
        let mut payload = vec![0; 16];
        payload.extend([queues, size].map(u16::to_ne_bytes).concat());
        self.send(GET_INFLIGHT_FD, 0, &payload, &[])?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut answer = vec![0; 12 + payload.len()];
        let mut parts = [IoSliceMut::new(&mut answer)];
        recvmsg(&self.stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let file = file.ok_or_else(|| io::Error::other("no region comes"))?;
        Ok(Inflight { file, description: answer.split_off(12) })
    }

    /// Passes the region that was kept.
    pub fn pass_inflight(&mut self, inflight: &Inflight) -> io::Result<()> {
        self.say(SET_INFLIGHT_FD, &inflight.description, &[inflight.file.as_fd()])
    }

    /// Describes a queue and starts it at position `base`; gives the event file descriptor to kick.
    pub fn start_queue(&mut self, index: u32, queue: &Queue, base: u32) -> io::Result<OwnedFd> {
        self.say(SET_VRING_NUM, &state(index, u32::from(queue.shape.size)), &[])?;
        self.say(SET_VRING_BASE, &state(index, base), &[])?;
        let [descriptors, available, used] = queue.addresses();
        let mut payload = state(index, 0);
        let words = [descriptors, used, available, 0];
        payload.extend(words.map(u64::to_ne_bytes).concat());
        self.say(SET_VRING_ADDR, &payload, &[])?;
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.say(SET_VRING_KICK, &u64::from(index).to_ne_bytes(), &[kick.as_fd()])?;
        Ok(kick)
    }

    /// Enables or disables a queue.
    pub fn enable(&mut self, index: u32, is_on: bool) -> io::Result<()> {
        self.say(SET_VRING_ENABLE, &state(index, u32::from(is_on)), &[])
    }

    /// Stops a queue; gives its position.
    pub fn stop_queue(&mut self, index: u32) -> io::Result<u32> {
        self.send(GET_VRING_BASE, 0, &state(index, 0), &[])?;
        let answer = self.answer(GET_VRING_BASE)?;
        Ok((number(&answer)? >> 32) as u32)
    }
}

/// A region in which back ends record requests in flight.
#[derive(Debug)]
pub struct Inflight {
    /// File of the region's memory.
    pub file: OwnedFd,
    /// Description of the region (`struct VhostUserInflight`).
    pub description: Vec<u8>,
}

/// Bytes of a `struct vhost_vring_state`.
pub fn state(index: u32, number: u32) -> Vec<u8> {
    [index, number].map(u32::to_ne_bytes).concat()
}

fn number(payload: &[u8]) -> io::Result<u64> {
    let bytes = payload.first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(u64::from_ne_bytes(*bytes))
}

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
/// Flag that asks for an acknowledgement.
pub const NEED_REPLY: u32 = 1 << 3;
const PROTOCOL_FEATURES: u32 = 30;
const REPLY_ACK: u32 = 3;
const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
