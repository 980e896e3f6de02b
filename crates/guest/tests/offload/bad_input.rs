//! Guests that send malformed messages, too many, too slowly, or are killed inside a message.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use towpath_bpf::program::MapType;
use towpath_guest::Limits;
use towpath_guest_client::wire::{
    Arrived, Command, Message, PAYLOAD_MAX, Receiver, Tag, Values, Writer,
};

use super::{Scene, map, wait_for};

/// A guest that sends any bytes.
struct Raw {
    stream: UnixStream,
    receiver: Receiver,
}

impl Raw {
    fn new(scene: &Scene) -> Raw {
        let stream = UnixStream::connect(&scene.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Raw { stream, receiver: Receiver::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn answer(&mut self) -> Message {
        let mut bytes = [0; 4096];
        loop {
            if let Some(Arrived::Message(message)) = self.receiver.next(Instant::now()) {
                return message;
            }
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the host hung up");
            self.receiver.push(&bytes[..count]);
        }
    }

    fn ask(&mut self, command: Command, session: u32, sequence: u32, values: Writer) -> u32 {
        self.send(&Message::request(command, session, sequence, values.finish()).encode());
        let answer = self.answer();
        assert_eq!((answer.header.session, answer.header.sequence), (session, sequence));
        answer.header.status
    }
}

const EBADMSG: u32 = 74;

#[test]
fn damaged_and_oversized_messages_are_told_off_and_the_next_one_is_answered() {
    let scene = Scene::new(Limits::default());
    let mut raw = Raw::new(&scene);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), 0);
    let good = |sequence| Message::request(Command::List, 1, sequence, Vec::new()).encode();
    let mut damaged = good(2);
    damaged[24] ^= 1;
    raw.send(&damaged);
    assert_eq!(raw.answer().header.status, EBADMSG);
    let mut oversized = good(3);
    oversized[8..12].copy_from_slice(&(PAYLOAD_MAX as u32 + 1).to_le_bytes());
    raw.send(&oversized);
    assert_eq!(raw.answer().header.status, 90, "EMSGSIZE");
    raw.send(b"noise that is no message");
    assert_eq!(raw.ask(Command::List, 1, 4, Writer::new()), 0);
    assert_eq!(scene.guest.status().damaged, 2);
}

#[test]
fn replayed_messages_are_refused() {
    let scene = Scene::new(Limits::default());
    let mut raw = Raw::new(&scene);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), 0);
    assert_eq!(raw.ask(Command::Reset, 1, 2, Writer::new()), 0);
    assert_eq!(raw.ask(Command::Reset, 1, 2, Writer::new()), EBADMSG);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), EBADMSG);
    assert_eq!(raw.ask(Command::Hello, 2, 1, Writer::new()), 0);
    assert_eq!(raw.ask(Command::Reset, 1, 3, Writer::new()), 116, "ESTALE");
}

#[test]
fn values_that_are_wrong_are_named() {
    let scene = Scene::new(Limits::default());
    let mut raw = Raw::new(&scene);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), 0);
    let cases = [
        (Writer::new(), "Handle is missing"),
        (Writer::new().with(Tag::Handle, b"abc"), "Handle has 3 bytes"),
    ];
    for (sequence, (values, text)) in (2..).zip(cases) {
        let request = Message::request(Command::MapLookup, 1, sequence, values.finish());
        raw.send(&request.encode());
        let answer = raw.answer();
        assert_eq!(answer.header.status, EBADMSG);
        assert_eq!(answer.values().text(Tag::Text), Ok(Some(text)));
    }
    let cut = Message::request(Command::MapLookup, 1, 9, vec![4, 0, 0, 0, 4, 0, 0, 0, 1]);
    raw.send(&cut.encode());
    assert_eq!(raw.answer().header.status, EBADMSG);
}

/// Each message, cut at each byte: the agent is gone, and another one of the guest connects.
#[test]
fn a_guest_may_be_killed_in_the_middle_of_each_message() {
    let scene = Scene::new(Limits { operations: 1_000_000, ..Limits::default() });
    let mut client = scene.client();
    let handle = client.create_map(&map(MapType::Hash, 4)).unwrap();
    drop(client);
    let mut session = 100;
    for &command in Command::ALL.iter().filter(|it| **it != Command::Reset) {
        let values = Writer::new().u32(Tag::Handle, handle).with(Tag::Key, &[1; 4]);
        let request = Message::request(command, session, 2, values.finish()).encode();
        for end in (1..request.len()).step_by(9) {
            session += 1;
            let mut raw = Raw::new(&scene);
            assert_eq!(raw.ask(Command::Hello, session, 1, Writer::new()), 0);
            raw.send(&request[..end]);
        }
    }
    let mut client = scene.client();
    assert_eq!(client.list().unwrap().len(), 1, "the map is still there, and nothing else");
}

/// On one stream, as behind a virtio-serial port, the next agent's messages follow the cut one.
#[test]
fn the_next_agent_is_heard_behind_a_message_that_does_not_end() {
    let scene = Scene::new(Limits::default());
    let mut raw = Raw::new(&scene);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), 0);
    let types = Writer::new().with(Tag::Types, &[0; 1000]).finish();
    let request = Message::request(Command::BtfLoad, 1, 2, types).encode();
    raw.send(&request[..500]);
    let start = Instant::now();
    raw.send(&Message::request(Command::Hello, 2, 1, Vec::new()).encode());
    loop {
        let answer = raw.answer();
        if answer.header.session == 2 {
            assert_eq!(answer.header.status, 0);
            break;
        }
    }
    assert!(start.elapsed() < Duration::from_secs(8), "a message has a few seconds");
}

/// Byte by byte is slow, but correct.
#[test]
fn a_slow_guest_is_answered() {
    let scene = Scene::new(Limits::default());
    let mut raw = Raw::new(&scene);
    for byte in Message::request(Command::Hello, 1, 1, Vec::new()).encode() {
        raw.send(&[byte]);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(raw.answer().header.status, 0);
}

/// A guest that keeps asking and reads nothing is disconnected; the next one is served.
#[test]
fn a_guest_that_does_not_read_is_hung_up_on() {
    let scene = Scene::new(Limits { operations: 1_000_000, ..Limits::default() });
    let mut raw = Raw::new(&scene);
    assert_eq!(raw.ask(Command::Hello, 1, 1, Writer::new()), 0);
    raw.stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut is_over = false;
    for sequence in 0..1_000_000u32 {
        let hello = Message::request(Command::Hello, 1000 + sequence, 1, Vec::new()).encode();
        if raw.stream.write_all(&hello).is_err() {
            is_over = true;
            break;
        }
    }
    assert!(is_over, "the host reads on and on");
    let mut client = scene.client();
    assert_eq!(client.list().unwrap(), []);
}

/// Any input causes at most an answer: no panic, no object, no hang.
#[test]
fn random_bytes_and_random_values_do_no_harm() {
    let scene = Scene::new(Limits { operations: 10_000_000, ..Limits::default() });
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let now = Instant::now();
    for session in 0..50u32 {
        let hello = Message::request(Command::Hello, session, 0, Vec::new());
        let _answer = scene.guest.answer(Arrived::Message(hello), now);
        for sequence in 1..200u32 {
            let command = Command::ALL[random() as usize % Command::ALL.len()];
            let mut values = Writer::new();
            for _ in 0..random() % 8 {
                let tag = Tag::ALL[random() as usize % Tag::ALL.len()];
                let number = if random().is_multiple_of(2) { random() % 5 } else { random() };
                match random() % 3 {
                    0 => values.put(tag, &(number as u32).to_le_bytes()),
                    1 => values.put(tag, &number.to_le_bytes()),
                    _ => values.put(tag, &number.to_le_bytes().repeat(random() as usize % 9)),
                }
            }
            let bytes = values.finish();
            assert!(Values::new(&bytes).check().is_ok());
            let request = Message::request(command, session, sequence, bytes);
            let _answer = scene.guest.answer(Arrived::Message(request), now);
        }
    }
    let status = scene.guest.status();
    assert!(status.requests >= 10_000, "{}", status.requests);
    wait_for("all of it can be let go", || {
        scene.guest.reset("the test is over");
        scene.guest.status().objects.is_empty()
    });
}
