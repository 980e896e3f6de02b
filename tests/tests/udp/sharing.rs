//! Applications that end, by themselves or by force, and others on the same queue.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use towpath_udp::{Options, TxDatagram, UdpSocket, UdpStack};

use crate::kernel::Kernel;
use crate::lab::{FAR, Lab, NEAR, at, receive, send_all, wait_for};

#[test]
fn an_application_that_goes_frees_its_port() {
    let Some(lab) = Lab::acquainted("") else { return };
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let other = lab.stack();
    let neighbour = other.bind(at(NEAR[0], 6400)).unwrap();
    let mut flow = Flow { socket: &neighbour, there: &there, number: 0 };
    for _ in 0..20 {
        let stack = lab.stack();
        let socket = stack.bind(at(NEAR[0], 6401)).unwrap();
        // It goes with datagrams in both directions under way.
        let unsent = TxDatagram::new(b"bye", at(FAR[0], 9));
        send_all(&socket, &[unsent; 20]);
        for _ in 0..20 {
            there.send_to(b"too late", socket.local_addr());
        }
        flow.exchange(10);
        drop((socket, stack));
        wait_for("port", || {
            flow.exchange(1);
            other.bind(at(NEAR[0], 6401)).is_ok()
        });
        flow.exchange(10);
    }
}

#[test]
fn an_application_that_is_killed_frees_its_port() {
    let Some(lab) = Lab::acquainted("") else { return };
    let there = lab.kernel(&at(FAR[0], 6500).to_string());
    let ready = lab.kernel(&at(FAR[0], 6501).to_string());
    let other = lab.stack();
    let neighbour = other.bind(at(NEAR[0], 6502)).unwrap();
    let mut flow = Flow { socket: &neighbour, there: &there, number: 0 };
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["sharing::a_victim", "--exact", "--nocapture"])
            .env(VICTIM, &lab.options().path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let hello = ready.receive(1);
        assert_eq!(hello[0].source, at(NEAR[0], 6503));
        assert!(other.bind(at(NEAR[0], 6503)).is_err(), "the child has it");
        for _ in 0..100 {
            there.send_to(b"for the victim", at(NEAR[0], 6503));
            flow.exchange(1);
        }
        child.kill().unwrap();
        wait_for("port", || {
            flow.exchange(1);
            other.bind(at(NEAR[0], 6503)).is_ok()
        });
        flow.exchange(100);
        child.wait().unwrap();
        ready.received();
    }
}

/// The application that is killed, in a process of its own; no test otherwise.
#[test]
fn a_victim() {
    let Some(path) = std::env::var_os(VICTIM) else { return };
    let options = Options { path: PathBuf::from(path), ..Options::new("p0") };
    let stack = UdpStack::open(&options).unwrap();
    let socket = stack.bind(at(NEAR[0], 6503)).unwrap();
    // Of what is sent before, the first is forgotten.
    wait_for("way", || socket.max_payload(at(FAR[0], 6501)).is_some());
    send_all(&socket, &[TxDatagram::new(b"ready", at(FAR[0], 6501))]);
    // Its datagrams are never received, and it never stops to send.
    let full = TxDatagram { segment_size: Some(1), ..TxDatagram::new(&[0; 64], at(FAR[0], 9)) };
    while socket.wait_send(None).is_ok() {
        let _full = socket.send_batch(&[full]);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A flow of numbered datagrams, of which none may be lost.
struct Flow<'a> {
    socket: &'a UdpSocket,
    there: &'a Kernel,
    number: u32,
}

impl Flow<'_> {
    fn exchange(&mut self, count: usize) {
        for _ in 0..count {
            self.number += 1;
            let payload = self.number.to_ne_bytes();
            self.there.send_to(&payload, self.socket.local_addr());
            assert_eq!(receive(self.socket, 1)[0].payload, payload);
            let answer = TxDatagram::new(&payload, at(FAR[0], self.there.port()));
            send_all(self.socket, &[answer]);
            assert_eq!(self.there.receive(1)[0].payload, payload);
        }
    }
}

#[test]
fn a_socket_that_does_not_receive_does_not_stop_others() {
    let Some(lab) = Lab::acquainted("") else { return };
    let stack = lab.stack();
    let [busy, idle] = [6600, 6601].map(|port| stack.bind(at(NEAR[0], port)).unwrap());
    let there = lab.kernel(&at(FAR[0], 0).to_string());
    let mut sent = 0u32;
    while sent < 3000 {
        for _ in 0..16 {
            there.send_to(&sent.to_ne_bytes(), idle.local_addr());
            sent += 1;
        }
        there.send_to(b"go on", busy.local_addr());
        assert_eq!(receive(&busy, 1)[0].payload, b"go on");
    }
    let full = stack.statistics().socket_full;
    // As many as the queue keeps for one socket, the oldest ones.
    let kept = receive(&idle, (u64::from(sent) - full) as usize);
    assert!(full > 0 && kept.len() >= 1000, "{full} of {sent} lost, {} kept", kept.len());
    for (number, datagram) in (0u32..).zip(&kept) {
        assert_eq!(datagram.payload, number.to_ne_bytes());
    }
    assert_eq!(idle.recv_batch(64, |_| {}), 0);
    // Its memory is free again.
    for _ in 0..3 {
        there.send_to(b"again", idle.local_addr());
        assert_eq!(receive(&idle, 1)[0].payload, b"again");
    }
    assert_eq!(stack.statistics().socket_full, full);
}

const VICTIM: &str = "TOWPATH_UDP_VICTIM";
