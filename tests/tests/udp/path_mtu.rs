//! Paths whose MTU is smaller than the port's: a router tells the host's stack.

use rustix::io::Errno;
use towpath_kernel::Namespace;
use towpath_udp::TxDatagram;

use crate::kernel::Kernel;
use crate::lab::{FAR, Lab, NEAR, at, errno, send_all, socket_in, wait_for};

#[test]
fn the_mtu_that_a_router_reports_is_the_limit() {
    let Some(lab) = Lab::acquainted("") else { return };
    let beyond = Namespace::new().unwrap();
    let far = |line: &str| drop(lab.far.run(line).unwrap());
    far(&format!("ip link add narrow mtu 1400 type veth peer name end netns {}", beyond.path()));
    far("ip link set narrow up");
    far("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for line in ["ip link set end mtu 1400", "ip link set end up"] {
        beyond.run(line).unwrap();
    }
    for (router, end, length, gateway, near) in [
        ("10.78.0.1", "10.78.0.2", 24, FAR[0], NEAR[0]),
        ("2001:db8:78::1", "2001:db8:78::2", 64, FAR[2], NEAR[2]),
    ] {
        let nodad = if length == 64 { "nodad" } else { "" };
        far(&format!("ip addr add {router}/{length} dev narrow {nodad}"));
        beyond.run(&format!("ip addr add {end}/{length} dev end {nodad}")).unwrap();
        beyond.run(&format!("ip route add default via {router}")).unwrap();
        lab.near.run(&format!("ip route add {end} via {gateway} dev stack0")).unwrap();
        let socket = lab.stack().bind(at(near, 0)).unwrap();
        let to = at(end, 9);
        let headers = if length == 64 { 48 } else { 28 };
        wait_for("route", || socket.max_payload(to) == Some(1500 - headers));
        // The first is lost, as in every kind of path MTU discovery.
        send_all(&socket, &[TxDatagram::new(&[7; 1500 - 48], to)]);
        wait_for("smaller MTU", || {
            // A destination that is not in use is not asked for.
            let _sent = socket.send_batch(&[TxDatagram::new(b"", at(end, 8))]);
            socket.max_payload(to) == Some(1400 - headers)
        });
        let large = vec![7; 1400 - headers + 1];
        let there = Kernel::new(socket_in(&beyond, &to.to_string()));
        let refused = socket.send_batch(&[TxDatagram::new(&large, to)]).unwrap_err();
        assert_eq!(errno(&refused), Errno::MSGSIZE);
        send_all(&socket, &[TxDatagram::new(&large[1..], to)]);
        assert!(there.receive(1)[0].payload == large[1..]);
    }
}
