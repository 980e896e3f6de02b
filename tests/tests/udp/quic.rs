//! QUIC by quinn between Towpath's sockets and the kernel's.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use sha2::{Digest as _, Sha256};
use towpath_udp::UdpSocket;

use crate::lab::{FAR, Lab, NEAR, at, number};
use crate::tls;

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serves {
    Towpath,
    Kernel,
}

/// What the client does during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// It keeps its port.
    Never,
    /// It gets another port.
    Once,
}

#[test]
fn transfers_over_a_network_that_loses_and_reorders() {
    let Some(lab) = Lab::acquainted(FAULT) else { return };
    for _ in 0..number("TOWPATH_QUIC_TIMES", 1) {
        for (near, far) in [(NEAR[0], FAR[0]), (NEAR[2], FAR[2])] {
            for serves in [Serves::Towpath, Serves::Kernel] {
                let seen = transfer(&lab, (near, far), serves, Moves::Never, 16 << 20);
                assert!(seen.lost > 0, "{near}, {serves:?}: the network lost nothing");
            }
        }
    }
}

#[test]
fn large_transfers() {
    let Some(lab) = Lab::acquainted("") else { return };
    for serves in [Serves::Towpath, Serves::Kernel] {
        transfer(&lab, (NEAR[1], FAR[1]), serves, Moves::Never, 64 << 20);
    }
}

#[test]
fn a_client_that_changes_its_port_goes_on() {
    let Some(lab) = Lab::acquainted("") else { return };
    for (near, far) in [(NEAR[0], FAR[0]), (NEAR[2], FAR[2])] {
        for serves in [Serves::Towpath, Serves::Kernel] {
            transfer(&lab, (near, far), serves, Moves::Once, 16 << 20);
        }
    }
}

#[test]
fn marks_of_congestion_reach_the_sender() {
    let Some(lab) = Lab::acquainted("") else { return };
    // A queue at the far end that marks each packet that waits at all.
    let marks = lab.far.run("tc qdisc add dev far root fq_codel ce_threshold 1us");
    if let Err(error) = marks {
        return eprintln!("skipped: {error}");
    }
    let seen = transfer(&lab, (NEAR[0], FAR[0]), Serves::Towpath, Moves::Never, 16 << 20);
    let text = lab.far.run("tc -s qdisc show dev far").unwrap();
    let (_, marked) = text.split_once("ce_mark ").expect(&text);
    let marked: u64 = marked.split_whitespace().next().unwrap().parse().unwrap();
    assert!(marked > 0, "{text}");
    // The kernel's end is the client.
    assert!(seen.congestion_events > 0, "{marked} marked, {seen:?}");
}

/// What the client saw of its path.
#[derive(Debug)]
struct Seen {
    lost: u64,
    congestion_events: u64,
}

/// Sends `len` bytes from the client to the server, which gives their hash, and the same back.
fn transfer(
    lab: &Lab,
    (near, far): (&str, &str),
    serves: Serves,
    moves: Moves,
    len: usize,
) -> Seen {
    let len = number("TOWPATH_QUIC_MIB", len >> 20) << 20;
    let (server_config, client_config) = tls::configs().unwrap();
    let stack = lab.stack();
    let near_end = |server| Towpath(stack.bind(at(near, 0)).unwrap()).endpoint(server);
    let far_end = |server| kernel(lab.far_socket(&at(far, 0).to_string()), server);
    let (sender, receiver) = std::sync::mpsc::channel::<SocketAddr>();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            run(async {
                let config = Some(server_config);
                let endpoint = match serves {
                    Serves::Towpath => near_end(config),
                    Serves::Kernel => far_end(config),
                };
                sender.send(endpoint.local_addr().unwrap()).unwrap();
                serve(&endpoint, len).await;
                endpoint.wait_idle().await;
            });
        });
        let address = receiver.recv().unwrap();
        let seen = run(async {
            let endpoint = match serves {
                Serves::Towpath => far_end(None),
                Serves::Kernel => near_end(None),
            };
            let connecting = endpoint.connect_with(client_config, address, "towpath").unwrap();
            let connection = connecting.await.unwrap();
            let other_port = || match serves {
                Serves::Towpath => {
                    endpoint.rebind(lab.far_socket(&at(far, 0).to_string())).unwrap();
                }
                Serves::Kernel => {
                    let socket = stack.bind(at(near, 0)).unwrap();
                    let socket = towpath_quinn::Socket::new(socket).unwrap();
                    endpoint.rebind_abstract(Arc::new(socket)).unwrap();
                }
            };
            let moves = (moves == Moves::Once).then_some(&other_port as &dyn Fn());
            request(&connection, len, moves).await;
            let path = connection.stats().path;
            connection.close(0u32.into(), b"done");
            endpoint.wait_idle().await;
            Seen { lost: path.lost_packets, congestion_events: path.congestion_events }
        });
        server.join().unwrap();
        seen
    })
}

pub(crate) struct Towpath(pub(crate) UdpSocket);

impl Towpath {
    pub(crate) fn endpoint(self, server: Option<ServerConfig>) -> Endpoint {
        towpath_quinn::endpoint(self.0, EndpointConfig::default(), server).unwrap()
    }
}

pub(crate) fn kernel(socket: std::net::UdpSocket, server: Option<ServerConfig>) -> Endpoint {
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).unwrap()
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

pub(crate) async fn serve(endpoint: &Endpoint, len: usize) {
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    let (mut send, mut receive) = connection.accept_bi().await.unwrap();
    let mut hash = Sha256::new();
    while let Some(chunk) = receive.read_chunk(1 << 20, true).await.unwrap() {
        hash.update(&chunk.bytes);
    }
    send.write_all(&hash.finalize()).await.unwrap();
    let mut bytes = Bytes::new(2, len);
    while let Some(part) = bytes.next() {
        send.write_all(part).await.unwrap();
    }
    send.finish().unwrap();
    connection.closed().await;
}

pub(crate) async fn request(connection: &Connection, len: usize, mut moves: Option<&dyn Fn()>) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let (mut bytes, mut hash) = (Bytes::new(1, len), Sha256::new());
    while let Some(part) = bytes.next() {
        hash.update(part);
        send.write_all(part).await.unwrap();
        if bytes.left < len / 2
            && let Some(moves) = moves.take()
        {
            moves();
        }
    }
    send.finish().unwrap();
    let mut told = [0; 32];
    receive.read_exact(&mut told).await.unwrap();
    assert_eq!(told[..], hash.finalize()[..], "what the server received");
    let mut hash = Sha256::new();
    while let Some(chunk) = receive.read_chunk(1 << 20, true).await.unwrap() {
        hash.update(&chunk.bytes);
    }
    let (mut bytes, mut expected) = (Bytes::new(2, len), Sha256::new());
    while let Some(part) = bytes.next() {
        expected.update(part);
    }
    assert_eq!(hash.finalize(), expected.finalize(), "what the client received");
}

/// Random bytes, the same for a seed.
struct Bytes {
    rng: fastrand::Rng,
    buffer: Vec<u8>,
    left: usize,
}

impl Bytes {
    fn new(seed: u64, len: usize) -> Bytes {
        Bytes { rng: fastrand::Rng::with_seed(seed), buffer: vec![0; 1 << 16], left: len }
    }

    fn next(&mut self) -> Option<&[u8]> {
        let len = self.left.min(self.buffer.len());
        self.left -= len;
        self.rng.fill(&mut self.buffer[..len]);
        (len > 0).then_some(&self.buffer[..len])
    }
}

/// Frames are lost and overtake each other, in both directions.
const FAULT: &str = r#"fault = { on = "both", loss = 0.01, reorder = 0.01, seed = 34 }"#;
