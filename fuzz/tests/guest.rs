//! No bytes of a guest's agent make its host panic or hang, and what is taken in pieces is taken as
//! in one piece.

use std::sync::Arc;
use std::time::Instant;

use bolero::TypeGenerator;
use towpath_guest::{Edge, Guest, Limits, Target};
use towpath_guest_client::wire::{
    Arrived, Command, Counters, Direction, Message, Receiver, Tag, Values, Writer,
};
use towpath_xdp::Program;

/// An edge that does what it is told.
#[derive(Debug)]
struct Nowhere;

impl Edge for Nowhere {
    fn set_program(&self, _direction: Direction, _program: Option<&Program>) -> Result<(), String> {
        Ok(())
    }

    fn counters(&self, _direction: Direction) -> Option<Counters> {
        None
    }

    fn targets(&self) -> Vec<Target> {
        Vec::new()
    }

    fn restarts(&self) -> u64 {
        0
    }

    fn tell(&self, _text: &str) {}
}

/// A request: values by the number of their tag.
#[derive(Debug, TypeGenerator)]
struct Request {
    command: u8,
    values: Vec<(u8, Value)>,
}

#[derive(Debug, TypeGenerator)]
enum Value {
    /// A handle, a kind, a size.
    Small(u8),
    Number(u32),
    Long(u64),
    Bytes(Vec<u8>),
}

fn guest() -> Guest {
    let limits = Limits { entries: 1000, bytes: 1 << 20, ..Limits::default() };
    Guest::new("vm", 1, limits, Arc::new(Nowhere))
}

#[test]
fn any_request() {
    bolero::check!().with_type::<Vec<Request>>().for_each(|requests| {
        let (guest, now) = (guest(), Instant::now());
        let hello = Message::request(Command::Hello, 1, 0, Vec::new());
        assert!(guest.answer(Arrived::Message(hello), now).1);
        for (sequence, request) in (1..).zip(requests.iter().take(40)) {
            let command = Command::ALL[usize::from(request.command) % Command::ALL.len()];
            let mut writer = Writer::new();
            for (tag, value) in request.values.iter().take(12) {
                let tag = Tag::ALL[usize::from(*tag) % Tag::ALL.len()];
                match value {
                    Value::Small(number) => writer.put(tag, &u32::from(*number).to_le_bytes()),
                    Value::Number(number) => writer.put(tag, &number.to_le_bytes()),
                    Value::Long(number) => writer.put(tag, &number.to_le_bytes()),
                    Value::Bytes(bytes) => writer.put(tag, bytes),
                }
            }
            let request = Message::request(command, 1, sequence, writer.finish());
            let (answer, is_done) = guest.answer(Arrived::Message(request), now);
            assert_eq!(answer.header.status == 0, is_done);
            assert!(answer.values().check().is_ok(), "the answer is well-formed");
        }
        let saved = guest.save();
        guest.reset("again");
        assert!(guest.restore(&saved).is_ok(), "what was saved can be restored");
    });
}

#[test]
fn any_bytes() {
    bolero::check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, size)| {
        let now = Instant::now();
        let _checked = Values::new(bytes).check();
        let _refused = guest().restore(bytes);
        let all = |size: usize| {
            let (mut receiver, mut found) = (Receiver::new(), Vec::new());
            for piece in bytes.chunks(size.max(1)) {
                receiver.push(piece);
                found.extend(std::iter::from_fn(|| receiver.next(now)));
            }
            found
        };
        assert_eq!(all(usize::from(*size)), all(bytes.len()));
    });
}
