//! Front ends of virtual machines that say what no driver would: messages of vhost-user in any
//! order, with any numbers, cut, and with descriptors of any kind.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use fastrand::Rng;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Says some of it; gives the connection, if it stays.
pub(crate) fn say_nonsense(path: &Path, rng: &mut Rng) -> Option<UnixStream> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_nonblocking(true).ok()?;
    // SET_OWNER and GET_FEATURES, as all of them begin.
    for request in [3, 1] {
        send(&stream, &message(request, &[]), &[]);
    }
    for _ in 0..rng.usize(..12) {
        let (message, count) = any_message(rng);
        let descriptors: Vec<OwnedFd> = (0..count).filter_map(|_| descriptor(rng)).collect();
        send(&stream, &message, &descriptors);
    }
    rng.bool().then_some(stream)
}

/// A message with its payload, and how many descriptors come with it.
fn any_message(rng: &mut Rng) -> (Vec<u8>, usize) {
    let request = rng.u32(1..45);
    let len = [0, 8, 8, 12, 40, 72, 264][rng.usize(..7)];
    let small = rng.bool();
    let mut payload: Vec<u8> =
        (0..len).map(|_| if small { rng.u8(..3) } else { rng.u8(..) }).collect();
    // Numbers of queues are small.
    if payload.len() >= 8 && rng.bool() {
        payload[..8].copy_from_slice(&u64::from(rng.u32(..4)).to_le_bytes());
    }
    let mut bytes = message(request, &payload);
    match rng.u8(..10) {
        // It says another length than it has.
        0 => bytes[8..12].copy_from_slice(&rng.u32(..).to_le_bytes()),
        1 => bytes.truncate(rng.usize(..bytes.len())),
        2 => bytes[4..8].copy_from_slice(&rng.u32(..).to_le_bytes()),
        _ => {}
    }
    (bytes, [0, 0, 1, 1, 2, 8][rng.usize(..6)])
}

/// A header of vhost-user (its version is 1), and what follows.
fn message(request: u32, payload: &[u8]) -> Vec<u8> {
    let head = [request, 1, payload.len() as u32].map(u32::to_le_bytes);
    [head.as_flattened(), payload].concat()
}

fn descriptor(rng: &mut Rng) -> Option<OwnedFd> {
    match rng.u8(..4) {
        0 => {
            let memory = memfd_create("guest", MemfdFlags::CLOEXEC).ok()?;
            ftruncate(&memory, rng.u64(..1 << 22)).ok()?;
            Some(memory)
        }
        // Blocking ones, too.
        1 => eventfd(rng.u32(..2), EventfdFlags::empty()).ok(),
        2 => Some(std::fs::File::open("/dev/zero").ok()?.into()),
        _ => Some(UnixStream::pair().ok()?.0.into()),
    }
}

fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[OwnedFd]) {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(|it| it.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    // Whoever listens may have had enough.
    let _gone = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
