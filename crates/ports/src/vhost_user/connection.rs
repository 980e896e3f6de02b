//! A connection to a front end: reads messages, writes answers, and can be stopped at any time.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::message::{FILES_MAX, HEADER_BYTES, Header, Message, Refused};
use super::session::{Answer, Session};

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the front end is gone")]
    Gone,
    #[error("the port is being closed")]
    Stopped,
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("{0}: {1}")]
    Refused(&'static str, #[source] Refused),
}

/// Serves one front end until either side ends the connection. `stop` becomes readable when the
/// port does.
pub(super) fn serve(
    stream: &UnixStream,
    stop: &OwnedFd,
    session: &mut Session,
) -> Result<(), Ended> {
    stream.set_nonblocking(true)?;
    loop {
        let message = read_message(stream, stop)?;
        let (request, needs_ack) = (message.request, message.needs_ack && session.acknowledges());
        let answer = session.handle(message);
        let mut file = None;
        let reply = match answer {
            Ok(Answer::Payload(payload)) => payload,
            Ok(Answer::File(payload, fd)) => {
                file = Some(fd);
                payload
            }
            Ok(Answer::Done) if needs_ack => 0u64.to_ne_bytes().to_vec(),
            Ok(Answer::Done) => continue,
            Err(why) => {
                let name = super::message::request::name(request);
                session.note_refusal(name, &why);
                if needs_ack {
                    1u64.to_ne_bytes().to_vec()
                } else if matches!(why, Refused::Unknown) {
                    continue;
                } else {
                    return Err(Ended::Refused(name, why));
                }
            }
        };
        let header = Header::reply(request, reply.len());
        send(stream, stop, &[&header, &reply[..]].concat(), file.as_ref())?;
    }
}

fn read_message(stream: &UnixStream, stop: &OwnedFd) -> Result<Message, Ended> {
    let refused = |why| Ended::Refused("a message", why);
    let mut files = Vec::new();
    let mut header = [0; HEADER_BYTES];
    let mut done = 0;
    while done < HEADER_BYTES {
        wait(stream, PollFlags::IN, stop)?;
        done += receive(stream, &mut header[done..], &mut files)?;
    }
    let header = Header::parse(&header).map_err(refused)?;
    let mut payload = vec![0; header.size as usize];
    let mut done = 0;
    while done < payload.len() {
        wait(stream, PollFlags::IN, stop)?;
        match rustix::io::read(stream, &mut payload[done..]) {
            Ok(0) | Err(Errno::CONNRESET) => return Err(Ended::Gone),
            Ok(count) => done += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    if files.len() > FILES_MAX {
        return Err(refused(Refused::Files(files.len(), FILES_MAX)));
    }
    Ok(Message { request: header.request, needs_ack: header.needs_ack(), payload, files })
}

/// Receives some bytes, and the descriptors attached to them.
fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> Result<usize, Ended> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(bytes)];
    let got = match recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
        Err(Errno::CONNRESET) => return Err(Ended::Gone),
        Err(errno) => return Err(io::Error::from(errno).into()),
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Ended::Refused("a message", Refused::Files(FILES_MAX + 1, FILES_MAX)));
    }
    if got.bytes == 0 { Err(Ended::Gone) } else { Ok(got.bytes) }
}

/// Sends bytes, with a descriptor attached to the first of them.
fn send(
    stream: &UnixStream,
    stop: &OwnedFd,
    bytes: &[u8],
    mut file: Option<&OwnedFd>,
) -> Result<(), Ended> {
    let mut left = bytes;
    while !left.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(files));
            assert!(fits, "there is room for one");
        }
        match sendmsg(stream, &[IoSlice::new(left)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => (left, file) = (&left[count..], None),
            Err(Errno::AGAIN) => wait(stream, PollFlags::OUT, stop)?,
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Ended::Gone),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
    Ok(())
}

/// Waits until a descriptor is ready, or the port stops.
pub(super) fn wait(fd: impl AsFd, what: PollFlags, stop: &OwnedFd) -> Result<(), Ended> {
    loop {
        let mut fds = [PollFd::new(&fd, what), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => return Err(Ended::Stopped),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
}

/// Waits for a time, or until the port stops.
pub(super) fn pause(time: std::time::Duration, stop: &OwnedFd) -> Result<(), Ended> {
    let mut fds = [PollFd::new(stop, PollFlags::IN)];
    let time = Timespec::try_from(time).ok();
    let stopped = poll(&mut fds, time.as_ref()).is_ok_and(|count| count > 0);
    if stopped { Err(Ended::Stopped) } else { Ok(()) }
}
