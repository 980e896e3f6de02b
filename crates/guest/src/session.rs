//! Sessions of a guest's agent: tells new requests from repeated ones.
//!
//! `Guest::reset` and `Guest::note_connection` (`guest.rs`) decide when the guest's programs and
//! maps are removed, and when they stay.

use std::collections::VecDeque;

use towpath_bpf::Errno;
use towpath_guest_client::wire::{Command, Header, VERSION};

use crate::refusal::Refusal;

/// The current session, and earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Session {
    current: Option<u32>,
    before: VecDeque<u32>,
    /// Number of the last request of the current session.
    sequence: u32,
    /// Boot id of the guest, which stays the same until it reboots.
    pub(crate) boot: Vec<u8>,
}

impl Session {
    /// Accepts a request if it is a new one, in the current session or a new one.
    pub(crate) fn admit(&mut self, header: &Header) -> Result<Command, Refusal> {
        let refuse = |errno, text: String| Err(Refusal::new(errno, text));
        if header.is_reply() || header.status != 0 {
            return refuse(Errno::EBADMSG, "this is not a request".to_owned());
        }
        if header.version != VERSION {
            let text = format!("version {} is not spoken here, {VERSION} is", header.version);
            return refuse(Errno::EPROTONOSUPPORT, text);
        }
        let Some(command) = header.command() else {
            return refuse(Errno::EOPNOTSUPP, format!("there is no command {}", header.command));
        };
        if command == Command::Hello {
            return self.begin(header).map(|()| command);
        }
        if self.current != Some(header.session) {
            let text = "another dialogue is under way: Hello begins a new one".to_owned();
            return refuse(Errno::ESTALE, text);
        }
        if header.sequence <= self.sequence {
            let text = format!("request {} came before", header.sequence);
            return refuse(Errno::EBADMSG, text);
        }
        self.sequence = header.sequence;
        Ok(command)
    }

    fn begin(&mut self, header: &Header) -> Result<(), Refusal> {
        let session = header.session;
        if self.current == Some(session) || self.before.contains(&session) {
            let text = format!("dialogue {session} was begun before: each has a number of its own");
            return Err(Refusal::new(Errno::EBADMSG, text));
        }
        if let Some(ended) = self.current.replace(session) {
            self.before.truncate(REMEMBERED - 1);
            self.before.push_front(ended);
        }
        self.sequence = header.sequence;
        Ok(())
    }
}

/// Number of earlier sessions that are remembered.
const REMEMBERED: usize = 1024;

#[cfg(test)]
mod tests {
    use towpath_guest_client::wire::{Message, REPLY};

    use super::*;

    fn header(command: Command, session: u32, sequence: u32) -> Header {
        Message::request(command, session, sequence, Vec::new()).header
    }

    #[test]
    fn what_came_before_is_refused() {
        let mut session = Session::default();
        let (hello, list) = (Command::Hello, Command::List);
        assert_eq!(session.admit(&header(list, 1, 1)).map_err(|it| it.errno), Err(Errno::ESTALE));
        assert_eq!(session.admit(&header(hello, 1, 1)), Ok(hello));
        assert_eq!(session.admit(&header(list, 1, 2)), Ok(list));
        for old in [header(list, 1, 2), header(list, 1, 1), header(hello, 1, 9)] {
            assert_eq!(session.admit(&old).map_err(|it| it.errno), Err(Errno::EBADMSG), "{old:?}");
        }
        assert_eq!(session.admit(&header(hello, 2, 1)), Ok(hello));
        assert_eq!(session.admit(&header(list, 1, 3)).map_err(|it| it.errno), Err(Errno::ESTALE));
        let again = session.admit(&header(hello, 1, 1));
        assert_eq!(again.map_err(|it| it.errno), Err(Errno::EBADMSG));
    }

    #[test]
    fn only_requests_of_this_version_are_requests() {
        let mut session = Session::default();
        let of = |change: fn(&mut Header)| {
            let mut header = header(Command::Hello, 1, 1);
            change(&mut header);
            header
        };
        let cases = [
            (of(|it| it.command |= REPLY), Errno::EBADMSG),
            (of(|it| it.status = 1), Errno::EBADMSG),
            (of(|it| it.version = 2), Errno::EPROTONOSUPPORT),
            (of(|it| it.command = 0x7f), Errno::EOPNOTSUPP),
        ];
        for (header, errno) in cases {
            assert_eq!(session.admit(&header).map_err(|it| it.errno), Err(errno), "{header:?}");
        }
    }
}
