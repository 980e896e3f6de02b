//! Applications over the unix socket: shared memory and messages arrive, and whatever one
//! application does, the sockets of others keep working.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod c_library;
mod daemon;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use towpath_xsk::abi::*;
use towpath_xsk_client::{Action, Area, Connection, Options};

use daemon::Daemon;

/// Sends and receives that many packets.
#[track_caller]
fn exchange(socket: &mut towpath_xsk_client::Socket, count: u32) {
    let (mut sent, mut seen) = (0u32, 0u32);
    let end = Instant::now() + Duration::from_secs(20);
    while seen < count {
        let mut packet = [0; 60];
        packet[..4].copy_from_slice(&sent.to_ne_bytes());
        if sent < count && sent - seen < 32 && socket.send(&packet) {
            sent += 1;
        }
        socket.kick().unwrap();
        socket.receive(64, |packet, _| {
            assert_eq!((packet.len(), packet[..4].to_vec()), (60, seen.to_ne_bytes().to_vec()));
            seen += 1;
            Action::Drop
        });
        assert!(Instant::now() < end, "{seen} of {sent} came back");
    }
}

#[test]
fn an_application_gets_what_it_sends() {
    let daemon = Daemon::start("echo");
    let mut socket = towpath_xsk_client::Socket::open(&daemon.options(0)).unwrap();
    exchange(&mut socket, 2000);
    assert!(!socket.wait(Duration::from_millis(10)).unwrap(), "nothing is left");
    assert!(socket.send(&[3; 60]));
    assert!(socket.wait(Duration::from_secs(5)).unwrap(), "the bell rings");
    drop(socket);
    daemon.expect_sockets(0);
}

#[test]
fn errors_cross_the_socket() {
    let daemon = Daemon::start("errors");
    let code = |result: std::io::Result<()>| result.map_or_else(|e| e.raw_os_error(), |()| Some(0));
    let connection = Connection::open(&daemon.path).unwrap();
    assert_eq!(code(connection.ifindex("eth0").map(drop)), Some(19));
    assert_eq!(code(connection.set_option(99, &[0; 4], None)), Some(92));
    assert_eq!(code(connection.set_option(RX_RING, &[3, 0, 0, 0], None)), Some(22));
    assert_eq!(code(connection.get_option(99, 4).map(drop)), Some(95));
    let address = Address { family: AF_XDP, ifindex: 7, ..Address::default() };
    assert_eq!(code(connection.bind(&address, None)), Some(22), "no ring");
    connection.set_option(RX_RING, &[64, 0, 0, 0], None).unwrap();
    let shared = Address { flags: SHARED_UMEM, ..address };
    let other = Connection::open(&daemon.path).unwrap();
    let file = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(code(connection.bind(&shared, Some(file.as_fd()))), Some(88), "no socket");
    assert_eq!(code(connection.bind(&shared, Some(other.bell()))), Some(92), "another family");
    assert_eq!(code(connection.bind(&shared, Some(other.rings()))), Some(9), "not bound");
    let first = towpath_xsk_client::Socket::open(&daemon.options(1)).unwrap();
    let here = Address { queue: 1, ..shared };
    assert_eq!(code(connection.bind(&here, Some(first.connection().rings()))), Some(0));
    let busy = towpath_xsk_client::Socket::open(&daemon.options(1)).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(16));
}

/// Packet memory that the application makes shorter: sealed where that is possible, else reached
/// by system calls that fail.
#[test]
fn memory_that_shrinks_hurts_nobody() {
    let daemon = Daemon::start("shrink");
    let mut neighbour = towpath_xsk_client::Socket::open(&daemon.options(0)).unwrap();
    let plain = Path::new("/dev/shm").join(format!("xsk-plain-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&plain);
    let files: [OwnedFd; 2] =
        [memfd_create("umem", MemfdFlags::ALLOW_SEALING).unwrap(), OwnedFd::from(file.unwrap())];
    std::fs::remove_file(&plain).unwrap();
    for (number, file) in files.iter().enumerate() {
        ftruncate(file, 1 << 20).unwrap();
        let connection = Connection::open(&daemon.path).unwrap();
        let len = 1 << 20;
        let reg = UmemReg { len, chunk_size: 2048, ..UmemReg::default() };
        connection.set_option(UMEM_REG, &reg.to_bytes(), Some((file.as_fd(), 0))).unwrap();
        for name in [UMEM_FILL_RING, UMEM_COMPLETION_RING, RX_RING, TX_RING] {
            connection.set_option(name, &64u32.to_ne_bytes(), None).unwrap();
        }
        let mut tx = producer::<towpath_ring::Desc>(&connection, PGOFF_TX);
        let mut fill = producer::<u64>(&connection, PGOFF_FILL);
        (0..32).for_each(|chunk| fill.write(chunk * 2048));
        fill.submit();
        let queue = 2 + number as u32;
        let address = Address { family: AF_XDP, ifindex: 7, queue, ..Address::default() };
        connection.bind(&address, None).unwrap();
        let is_shorter = ftruncate(file, 0).is_ok();
        assert_eq!(is_shorter, number == 1, "the daemon seals what can be sealed");
        for chunk in 32..64 {
            tx.write(towpath_ring::Desc { addr: chunk * 2048, len: 60, options: 0 });
        }
        tx.submit();
        exchange(&mut neighbour, 500);
        let end = Instant::now() + Duration::from_secs(5);
        while tx.waiting() > 0 {
            assert!(Instant::now() < end, "the ring is read to its end");
        }
    }
}

fn producer<T: towpath_ring::Entry>(
    connection: &Connection,
    at: u64,
) -> towpath_ring::Producer<towpath_ring::Mapped<T>> {
    use towpath_ring::{Mapped, Memory, OFFSETS, Producer};
    let memory = Memory::map::<T>(connection.rings(), at, &OFFSETS, 64).unwrap();
    Producer::new(Mapped::new(&memory, &OFFSETS, 64).unwrap())
}

/// An application that is killed at any point: its socket goes, its queue is free again, and its
/// neighbour has not noticed.
#[test]
fn a_killed_application_leaves_nothing() {
    let daemon = Daemon::start("kill");
    let mut neighbour = towpath_xsk_client::Socket::open(&daemon.options(0)).unwrap();
    let mut random = Rng::with_seed(1);
    for round in 0..200 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_one_that_is_killed", "--nocapture"])
            .env("XSK_TEST_VICTIM", &daemon.path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(500..12_500)));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 10 == 0 {
            exchange(&mut neighbour, 50);
        }
        daemon.expect_sockets(1);
    }
    exchange(&mut neighbour, 1000);
    let mut again = towpath_xsk_client::Socket::open(&daemon.options(1)).unwrap();
    exchange(&mut again, 100);
}

/// Not a test of its own: what [`a_killed_application_leaves_nothing`] runs and kills.
#[test]
fn the_one_that_is_killed() {
    let Some(path) = std::env::var_os("XSK_TEST_VICTIM") else { return };
    let options =
        Options { path: path.into(), chunks: 256, entries: 64, ..Options::new("loop0", 1) };
    loop {
        let Ok(mut socket) = towpath_xsk_client::Socket::open(&options) else { continue };
        for _ in 0..50 {
            socket.send(&[5; 1000]);
            let _kicked = socket.kick();
            socket.receive(64, |_, _| Action::Send);
        }
    }
}

/// Requests that make no sense, and ends that close, one after another.
#[test]
fn nonsense_ends_the_connection() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let daemon = Daemon::start("nonsense");
    let mut neighbour = towpath_xsk_client::Socket::open(&daemon.options(0)).unwrap();
    for bytes in [&b""[..], b"hello", &[0; 16], &[255; 512], &[1; 2000]] {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let stream = rustix::net::socket_with(family, kind, flags, None).unwrap();
        rustix::net::connect(&stream, &SocketAddrUnix::new(&daemon.path).unwrap()).unwrap();
        towpath_xsk_client::wire::receive(&stream).unwrap();
        towpath_xsk_client::wire::send(stream.as_fd(), bytes, &[]).unwrap();
        let (answer, _) = towpath_xsk_client::wire::receive(&stream).unwrap();
        assert!(answer.is_empty(), "closed");
    }
    daemon.expect_sockets(1);
    exchange(&mut neighbour, 100);
    let area = Area::new(1 << 16).unwrap();
    let connection = Connection::open(&daemon.path).unwrap();
    let reg = UmemReg { len: 1 << 30, chunk_size: 4096, ..UmemReg::default() };
    let refused = connection.set_option(UMEM_REG, &reg.to_bytes(), Some((area.fd(), 0)));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(14), "longer than its file");
    let device = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
    let refused = connection.set_option(UMEM_REG, &reg.to_bytes(), Some((device.as_fd(), 0)));
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(95), "not in memory");
    daemon.sockets.unregister(7);
    assert!(neighbour.wait(Duration::from_secs(5)).is_err(), "its port is gone");
    assert_eq!(neighbour.connection().get_option(STATISTICS, 48).unwrap().len(), 48);
}
