//! Errors of sending and of binding.

use std::net::UdpSocket;

use rustix::io::Errno;
use towpath_udp::TxDatagram;

use crate::lab::{FAR, Lab, NEAR, at, errno, receive, wait_for};

#[test]
fn what_cannot_be_sent_is_refused() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let bytes = vec![7; 65 * 1500];
    for (near, far, headers) in [(NEAR[0], FAR[0], 28), (NEAR[2], FAR[2], 48)] {
        let socket = stack.bind(at(near, 0)).unwrap();
        let there = lab.kernel(&at(far, 0).to_string());
        let to = at(far, there.port());
        let send = |len: usize, size: Option<usize>| {
            let run = TxDatagram { segment_size: size, ..TxDatagram::new(&bytes[..len], to) };
            socket.send_batch(&[run]).map_err(|error| errno(&error))
        };
        // The first one makes the route known.
        assert_eq!(send(1, None), Ok(1));
        wait_for("route", || socket.max_payload(to) == Some(1500 - headers));
        there.receive(1);
        assert_eq!(send(100, Some(0)), Err(Errno::INVAL), "segments of 0 bytes");
        assert_eq!(send(0, Some(0)), Err(Errno::INVAL), "segments of 0 bytes");
        assert_eq!(send(65, Some(1)), Err(Errno::INVAL), "65 segments");
        assert_eq!(send(65 * 1500, Some(1000)), Err(Errno::INVAL), "98 segments");
        assert_eq!(send(3000, Some(1500 - headers + 1)), Err(Errno::MSGSIZE));
        assert_eq!(send(1500 - headers + 1, None), Err(Errno::MSGSIZE));
        assert_eq!(send(65 * 1500, None), Err(Errno::MSGSIZE));
        let send_to = |to| {
            let sent = socket.send_batch(&[TxDatagram::new(&[1], to)]);
            sent.map_err(|error| errno(&error))
        };
        assert_eq!(send_to(at(far, 0)), Err(Errno::INVAL), "port 0");
        let other = if to.is_ipv4() { FAR[2] } else { FAR[0] };
        assert_eq!(send_to(at(other, 1)), Err(Errno::AFNOSUPPORT));
        // An error behind taken datagrams is told by the next call.
        let good = TxDatagram::new(&bytes[..2], to);
        let bad = TxDatagram::new(&bytes[..2000], to);
        assert_eq!(socket.send_batch(&[good, good, bad, good]).unwrap(), 2);
        assert_eq!(socket.send_batch(&[bad, good]).map_err(|it| errno(&it)), Err(Errno::MSGSIZE));
        assert_eq!(send(1500 - headers, None), Ok(1));
        let lens: Vec<_> = there.receive(3).iter().map(|it| it.payload.len()).collect();
        assert_eq!(lens, [2, 2, 1500 - headers], "nothing else was sent");
    }
}

#[test]
fn a_destination_without_a_route_is_unreachable() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    for (wildcard, destination) in [("0.0.0.0", "192.0.2.1"), ("::", "2001:db8:99::1")] {
        let socket = stack.bind(at(wildcard, 0)).unwrap();
        let datagram = TxDatagram::new(b"lost", at(destination, 9));
        let mut last = None;
        wait_for("error", || {
            last = socket.send_batch(&[datagram]).err();
            last.is_some()
        });
        assert_eq!(last.map(|error| errno(&error)), Some(Errno::NETUNREACH));
    }
    // A route that comes later is found.
    lab.near.run("ip route add 192.0.2.0/24 via 10.77.0.1").unwrap();
    lab.far.run("ip addr add 192.0.2.1/32 dev far").unwrap();
    let there = lab.kernel("192.0.2.1:9");
    let socket = stack.bind(at(NEAR[1], 0)).unwrap();
    wait_for("datagram by the new route", || {
        let _error = socket.send_batch(&[TxDatagram::new(b"found", at("192.0.2.1", 9))]);
        there
            .received()
            .iter()
            .any(|it| it.payload == b"found" && it.source.ip() == at(NEAR[1], 0).ip())
    });
}

#[test]
fn one_application_has_an_address_and_port() {
    let Some(lab) = Lab::acquainted("") else { return };
    let (one, two) = (lab.stack(), lab.stack());
    let refusal = |result: std::io::Result<towpath_udp::UdpSocket>| errno(&result.err().unwrap());
    for (near, other, wildcard) in [(NEAR[0], NEAR[1], "0.0.0.0"), (NEAR[2], NEAR[3], "::")] {
        let bound = one.bind(at(near, 6000)).unwrap();
        assert_eq!(refusal(one.bind(at(near, 6000))), Errno::ADDRINUSE);
        assert_eq!(refusal(two.bind(at(near, 6000))), Errno::ADDRINUSE);
        assert_eq!(refusal(two.bind(at(wildcard, 6000))), Errno::ADDRINUSE);
        assert_eq!(refusal(two.bind_shared(at(near, 6000))), Errno::ADDRINUSE);
        let _another = two.bind(at(other, 6000)).unwrap();
        // The host's applications can't have it either.
        let host = |address: &str, port| UdpSocket::bind(at(address, port));
        let error = host(near, 6000).err().map(|error| errno(&error));
        assert_eq!(error, Some(Errno::ADDRINUSE), "Towpath has {near}");
        let _free = host(near, 6001).unwrap();
        // And the other way round.
        assert_eq!(refusal(two.bind(at(near, 6001))), Errno::ADDRINUSE, "the host has {near}");
        assert_eq!(refusal(two.bind(at(wildcard, 6001))), Errno::ADDRINUSE);
        drop(bound);
        let _again = two.bind(at(near, 6000)).unwrap();
        assert_eq!(refusal(one.bind(at(FAR[0], 6000))), Errno::ADDRNOTAVAIL);
    }
}

#[test]
fn applications_share_a_port_if_both_want_to() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stacks = [lab.stack(), lab.stack()];
    let sockets = stacks.each_ref().map(|stack| stack.bind_shared(at(NEAR[0], 6100)).unwrap());
    let flows: Vec<_> = (0..32).map(|_| lab.kernel(&at(FAR[0], 0).to_string())).collect();
    let mut owners = vec![None; flows.len()];
    for _ in 0..10 {
        for (flow, owner) in flows.iter().zip(&mut owners) {
            flow.send_to(b"whose?", at(NEAR[0], 6100));
            let mut seen = [0; 2];
            wait_for("datagram", || {
                for (socket, seen) in sockets.iter().zip(&mut seen) {
                    *seen += socket.recv_batch(64, |it| assert_eq!(it.source.port(), flow.port()));
                }
                seen != [0; 2]
            });
            assert_eq!(*owner.get_or_insert(seen), seen, "a flow has one owner");
        }
    }
    assert!(owners.iter().any(|owner| *owner != owners[0]), "both have flows");
    // One that goes leaves the port to the other.
    let [gone, left] = sockets;
    drop(gone);
    flows.iter().for_each(|flow| flow.send_to(b"all yours", at(NEAR[0], 6100)));
    assert_eq!(receive(&left, flows.len()).len(), flows.len());
}
