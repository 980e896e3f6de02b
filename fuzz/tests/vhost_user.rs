//! No message of a monitor and nothing that a guest writes into its memory ends the process, leaves
//! a port hanging, or loses a frame.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use towpath_engine::{Engine, Hook, Link, Options, PortOptions, WorkerOptions};
use towpath_ports::vhost_user::{self, VhostUser};
use towpath_workload::small;
use towpath_workload::virtio::{Guest, GuestOptions, Layout};
use towpath_xdp::{LoadOptions, Program};

/// A step of a guest that knows the protocol and does not keep to it.
#[derive(Debug, Clone, bolero::TypeGenerator)]
enum Step {
    /// A message, with up to three copies of the memory's file.
    Message { request: u8, wants_answer: bool, payload: Vec<u8>, files: u8 },
    /// A word into a ring or what belongs to it: 0 for what it receives by, else what it sends by.
    Word { ring: bool, part: u8, at: u8, value: u16 },
    /// A descriptor that is made available, and a kick.
    Post { ring: bool, len: u16 },
    /// A frame, as a driver sends one.
    Send { header: [u8; 12], len: u8 },
}

#[test]
fn any_guest() {
    let workers = vec![WorkerOptions::default()];
    let engine = Engine::start(&Options { workers, frames: 2048 });
    let engine = AssertUnwindSafe(engine.expect("memory"));
    let path = std::env::temp_dir().join(format!("towpath-fuzz-vhost-{}", std::process::id()));
    let device = VhostUser::new(vhost_user::Options::new(&path)).expect("a socket");
    let port = engine.add_port(PortOptions::new("vm"), Box::new(device)).expect("a port");
    // What it sends comes back to it.
    let program = Program::from_linked(small::reflect(), &LoadOptions::default());
    let link = Link::new(program.expect("it loads"), 1, 1);
    engine.change(|config| config.set_links(port, Hook::Rx, vec![link])).expect("it is there");
    let checked = bolero::check!().with_type::<(u8, Vec<Step>)>();
    checked.for_each(|(kind, steps)| {
        let layout = [Layout::Single, Layout::Chained, Layout::Indirect][*kind as usize / 2 % 3];
        let packed = kind & 1 != 0;
        let features = if kind & 8 != 0 { u64::MAX >> 1 & !(1 << 34) } else { 1 << 15 };
        let options = GuestOptions { size: 8, packed, layout, features, ..GuestOptions::default() };
        let Ok(mut guest) = Guest::connect(&path, options) else {
            panic!("the port takes nobody any more");
        };
        for step in steps.iter().take(40) {
            // It may have ended the connection: the rest is for the memory alone.
            take(&mut guest, step);
        }
        drop(guest);
        // The next one finds the port as it was.
        let mut good = Guest::connect(&path, GuestOptions::default()).expect("the port is there");
        assert!(good.send(0, &[0; 12], &[7; 60]));
        let conservation = engine.conservation();
        assert!(good.wait_for(0).is_some(), "frames still come: {conservation:?}");
    });
    engine.stop();
    assert_eq!(engine.conservation().missing(), 0, "{:?}", engine.conservation());
}

fn take(guest: &mut Guest, step: &Step) {
    match step {
        Step::Message { request, wants_answer, payload, files } => {
            let files: Vec<_> = (0..files % 4).map(|_| guest.memory.file()).collect();
            let flags = u32::from(*wants_answer) << 3;
            let payload = &payload[..payload.len().min(300)];
            let _gone = guest.front.send(u32::from(*request), flags, payload, &files);
        }
        Step::Word { ring, part, at, value } => {
            let queue = if *ring { &guest.tx[0] } else { &guest.rx[0] };
            let starts = [0, 16 << 10, 20 << 10, 32 << 10, 64 << 10];
            let at = queue.places()[0] + starts[*part as usize % 5] + usize::from(*at) * 2;
            guest.memory.store16(at, *value);
        }
        Step::Post { ring, len } => {
            let queue = if *ring { &mut guest.tx[0] } else { &mut guest.rx[0] };
            queue.post_again(u32::from(*len).max(12));
            queue.publish();
            guest.kick(u32::from(*ring));
        }
        Step::Send { header, len } => {
            let queue = &mut guest.tx[0];
            let at = queue.buffer(queue.next_buffer());
            queue.memory.write(at, header);
            queue.post_again(12 + u32::from(*len));
            queue.publish();
            guest.kick(1);
        }
    }
}

/// Bytes that are no messages end their connection, and the port takes the next one.
#[test]
fn any_bytes() {
    use std::io::Write as _;
    let path = std::env::temp_dir().join(format!("towpath-fuzz-bytes-{}", std::process::id()));
    let device = VhostUser::new(vhost_user::Options::new(&path)).expect("a socket");
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let mut stream = UnixStream::connect(&path).expect("the port is there");
        let _refused = stream.write_all(bytes);
        let _ended = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let mut answers = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answers) {
            let is_over = error.kind() == std::io::ErrorKind::ConnectionReset;
            assert!(is_over, "the port does not let go: {error}");
        }
    });
    drop(device);
}
