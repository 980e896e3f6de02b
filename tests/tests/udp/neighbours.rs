//! Neighbours that are unknown, silent, or change their Ethernet address.

use std::time::Duration;

use rustix::io::Errno;
use towpath_udp::TxDatagram;

use crate::lab::{FAR, Lab, NEAR, at, errno, receive, send_all, wait_for};

#[test]
fn the_first_datagram_to_an_unknown_neighbour_arrives() {
    let Some(lab) = Lab::new() else { return };
    for (near, far) in [(NEAR[0], FAR[0]), (NEAR[2], FAR[2])] {
        let there = lab.kernel(&at(far, 0).to_string());
        for _ in 0..5 {
            lab.near.run("ip neigh flush all").unwrap();
            // A new application knows no routes.
            let stack = lab.stack();
            let socket = stack.bind(at(near, 0)).unwrap();
            let to = at(far, there.port());
            send_all(&socket, &[TxDatagram::new(b"hello", to)]);
            let seen = there.receive(1);
            assert_eq!(
                (&seen[0].payload[..], seen[0].source),
                (&b"hello"[..], socket.local_addr())
            );
        }
    }
}

#[test]
fn a_silent_neighbour_is_unreachable_and_disturbs_nobody() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let socket = stack.bind(at(NEAR[0], 6200)).unwrap();
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let silent = TxDatagram::new(b"is anybody there?", at("10.77.0.99", 9));
    let (mut failed, mut number) = (false, 0u32);
    wait_for("error", || {
        match socket.send_batch(&[silent]) {
            Ok(1) => {}
            Ok(count) => panic!("{count} taken"),
            Err(error) => {
                assert_eq!(errno(&error), Errno::HOSTUNREACH);
                failed = true;
            }
        }
        // Each of these arrives meanwhile, both ways.
        number += 1;
        let payload = number.to_ne_bytes();
        send_all(&socket, &[TxDatagram::new(&payload, at(FAR[0], there.port()))]);
        assert_eq!(there.receive(1)[0].payload, payload);
        there.send_to(&payload, socket.local_addr());
        assert_eq!(receive(&socket, 1)[0].payload, payload);
        failed
    });
    // One that comes later is found.
    lab.far.run("ip addr add 10.77.0.99/24 dev far").unwrap();
    let late = lab.kernel("10.77.0.99:9");
    wait_for("answer of the neighbour", || {
        let _error = socket.send_batch(&[silent]);
        std::thread::sleep(Duration::from_millis(10));
        !late.received().is_empty()
    });
}

#[test]
fn a_flow_goes_on_when_the_neighbour_changes_its_address() {
    let Some(lab) = Lab::acquainted("") else { return };
    // The kernel then tells its neighbours.
    lab.far.run("sysctl -qw net.ipv4.conf.far.arp_notify=1").unwrap();
    let stack = lab.stack();
    let socket = stack.bind(at(NEAR[0], 6300)).unwrap();
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let to = at(FAR[0], there.port());
    for (number, mac) in (0u8..).zip(["02:00:00:00:77:01", "02:00:00:00:77:02"]) {
        send_all(&socket, &[TxDatagram::new(&[number], to)]);
        assert_eq!(there.receive(1)[0].payload, [number]);
        lab.far.run(&format!("ip link set far address {mac}")).unwrap();
        wait_for("datagram to the new address", || {
            send_all(&socket, &[TxDatagram::new(b"still there?", to)]);
            std::thread::sleep(Duration::from_millis(10));
            !there.received().is_empty()
        });
        there.send_to(b"yes", socket.local_addr());
        assert_eq!(receive(&socket, 1)[0].payload, b"yes");
        // Nothing that is under way may be taken for one of the next round.
        let last = [b'l', number];
        send_all(&socket, &[TxDatagram::new(&last, to)]);
        wait_for("last datagram", || there.received().iter().any(|it| it.payload == last));
    }
}
