//! QUIC servers that share an address and port: packets find their server by its connection IDs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig};
use tokio::sync::oneshot;
use towpath_udp::{ServerId, UdpSocket};

use crate::kernel::Kernel;
use crate::lab::{FAR, Lab, NEAR, PATIENCE, at, errno, number};
use crate::quic::{kernel, run};
use crate::tls;

/// Four sockets on two queues that two workers serve. Each packet of a connection comes from
/// another port, and so by either queue.
#[test]
fn packets_of_a_connection_reach_one_server_from_any_port() {
    let Some(lab) = Lab::acquainted_with_queues(2, WORKERS) else { return };
    let clients: Vec<Kernel> = (0..64).map(|_| lab.kernel(&at(FAR[0], 0).to_string())).collect();
    let servers: Vec<UdpSocket> =
        (0..4).map(|_| lab.stack().bind_quic(at(NEAR[0], 7100), None).unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let count = number("TOWPATH_QUIC_CONNECTIONS", 4096) as u32;
    let (mut used, mut queues) = ([0; 4], BTreeSet::new());
    let mut send = |packet: &[u8]| {
        clients[random.usize(..clients.len())].send_to(packet, at(NEAR[0], 7100));
    };
    for first in (0..count).step_by(AT_ONCE) {
        let connections: Vec<u32> = (first..count.min(first + AT_ONCE as u32)).collect();
        for connection in &connections {
            let chosen = chosen_id(*connection);
            (0..2).for_each(|_| send(&packet(INITIAL, &chosen, *connection)));
        }
        let homes = receive_all(&servers, &connections, 2, &mut queues);
        for connection in &connections {
            let home = homes[connection];
            used[home] += 1;
            let id = server_id(&servers[home], *connection);
            send(&packet(HANDSHAKE, &id, *connection));
            (0..3).for_each(|_| send(&packet(SHORT, &id, *connection)));
        }
        assert_eq!(receive_all(&servers, &connections, 4, &mut queues), homes);
    }
    let least = count / 8;
    assert!(used.iter().all(|used| *used > least), "{used:?} of {count} connections");
    assert_eq!(queues.len(), 2, "{queues:?}");
    for server in servers {
        assert_eq!(server.stack().statistics().without_socket, 0);
    }
}

/// The server of each connection, each of which gets this number of packets; `queues` are those by
/// which they came.
fn receive_all(
    servers: &[UdpSocket],
    connections: &[u32],
    times: usize,
    queues: &mut BTreeSet<u32>,
) -> BTreeMap<u32, usize> {
    let mut seen = BTreeMap::<u32, Vec<usize>>::new();
    let start = std::time::Instant::now();
    let expected = connections.len() * times;
    let mut count = 0;
    while count < expected {
        for (number, server) in servers.iter().enumerate() {
            count += server.recv_batch(64, |datagram| {
                queues.insert(datagram.queue);
                let connection = datagram.payload.last_chunk().copied().unwrap();
                seen.entry(u32::from_le_bytes(connection)).or_default().push(number);
            });
        }
        assert!(start.elapsed() < PATIENCE, "{count} of {expected}");
    }
    let only = |(connection, homes): (u32, Vec<usize>)| {
        assert!(homes.iter().all(|home| *home == homes[0]), "{connection}: {homes:?}");
        assert_eq!(homes.len(), times, "{connection}");
        (connection, homes[0])
    };
    seen.into_iter().map(only).collect()
}

/// A QUIC packet with a destination connection ID, and the number of its connection at its end.
fn packet(first: u8, id: &[u8], connection: u32) -> Vec<u8> {
    let mut packet = vec![first];
    if first & LONG_HEADER != 0 {
        packet.extend([0, 0, 0, 1, id.len() as u8]);
    }
    packet.extend(id);
    packet.extend([0; 16]);
    packet.extend(connection.to_le_bytes());
    packet
}

/// An ID of 8 to 20 bytes, as clients choose them.
fn chosen_id(connection: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(connection.into());
    std::iter::repeat_with(|| random.u8(..)).take(8 + connection as usize % 13).collect()
}

/// An ID that a server chooses.
fn server_id(server: &UdpSocket, connection: u32) -> Vec<u8> {
    let mut id = server.server_id().unwrap().prefix().to_vec();
    id.extend(connection.to_le_bytes());
    id.push(0);
    id
}

/// Clients of four servers move to another port all the time.
#[test]
fn connections_survive_changes_of_port() {
    let Some(lab) = Lab::acquainted_with_queues(2, WORKERS) else { return };
    let (server_config, client_config) = tls::configs().unwrap();
    std::thread::scope(|scope| {
        let servers: Vec<Server<'_>> =
            (0..4).map(|tag| Server::start(scope, &lab, tag, server_config.clone())).collect();
        run(async {
            let mut clients = Clients::new(&lab, &client_config);
            clients.connect(64).await;
            for _ in 0..20 {
                clients.move_and_echo().await;
            }
            assert!(clients.tags().len() > 1, "one server has all connections");
        });
        drop(servers);
    });
}

/// A server that is replaced keeps its connections to their end, and no new one fails meanwhile.
#[test]
fn a_server_is_replaced_without_breaking_connections() {
    let Some(lab) = Lab::acquainted_with_queues(2, WORKERS) else { return };
    let (server_config, client_config) = tls::configs().unwrap();
    std::thread::scope(|scope| {
        let mut old = Server::start(scope, &lab, 0, server_config.clone());
        run(async {
            let mut clients = Clients::new(&lab, &client_config);
            clients.connect(32).await;
            clients.move_and_echo().await;
            let new = Server::start(scope, &lab, 1, server_config.clone());
            clients.connect(16).await;
            clients.move_and_echo().await;
            old.drain.take().unwrap().send(()).unwrap();
            let before = clients.connections.len();
            clients.connect(32).await;
            assert!(clients.connections[before..].iter().all(|(tag, _)| *tag == 1));
            for _ in 0..5 {
                clients.move_and_echo().await;
            }
            // The old one ends when its last connection does.
            clients.close(0);
            old.has_ended().await;
            clients.move_and_echo().await;
            clients.connect(16).await;
            assert!(clients.connections.iter().all(|(tag, _)| *tag == 1));
            drop(new);
        });
    });
}

#[test]
fn a_server_id_is_taken_once() {
    let Some(lab) = Lab::acquainted("") else { return };
    let address = at(NEAR[0], 7300);
    let (one, other) = (lab.stack(), lab.stack());
    let id = ServerId::new(3, 700);
    let socket = one.bind_quic(address, id).unwrap();
    assert_eq!(socket.server_id(), id);
    let taken = other.bind_quic(address, id).unwrap_err();
    assert_eq!(errno(&taken), rustix::io::Errno::EXIST);
    assert_eq!(errno(&other.bind(address).unwrap_err()), rustix::io::Errno::ADDRINUSE);
    let plain = other.bind_shared(address).unwrap();
    assert_eq!(errno(&plain.drain().unwrap_err()), rustix::io::Errno::INVAL);
    drop(socket);
    let again = one.bind_quic(address, id).unwrap();
    again.drain().unwrap();
}

/// A server in a thread of its own. It ends when it is dropped, or drained and without connections.
struct Server<'scope> {
    drain: Option<oneshot::Sender<()>>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Server<'scope> {
    /// A server that answers each request with its tag.
    fn start<'lab: 'scope>(
        scope: &'scope Scope<'scope, 'lab>,
        lab: &'lab Lab,
        tag: u8,
        config: ServerConfig,
    ) -> Server<'scope> {
        let (drain, drained) = oneshot::channel();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let thread = scope.spawn(move || {
            run(async {
                let socket = Arc::new(lab.stack().bind_quic(at(NEAR[0], 7200), None).unwrap());
                let endpoint = towpath_quinn::endpoint(
                    Arc::clone(&socket),
                    EndpointConfig::default(),
                    Some(config),
                );
                let endpoint = endpoint.unwrap();
                bound.send(()).unwrap();
                tokio::select! {
                    () = accept_all(&endpoint, tag) => {}
                    _ = drained => {}
                }
                socket.drain().unwrap();
                endpoint.wait_idle().await;
            });
        });
        is_bound.recv().unwrap();
        Server { drain: Some(drain), thread }
    }

    /// Waits for the end of its thread, while the caller's other tasks go on.
    async fn has_ended(&self) {
        let end = async {
            while !self.thread.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("an end");
    }
}

async fn accept_all(endpoint: &Endpoint, tag: u8) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            // A client that went away is no failure of the server's.
            let Ok(connection) = incoming.await else { return };
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let request = receive.read_to_end(REQUEST_BYTES).await.unwrap();
                send.write_all(&[&[tag], &request[..]].concat()).await.unwrap();
                send.finish().unwrap();
            }
        });
    }
}

/// Clients at the far end, with their connections and the tags of the servers.
struct Clients<'lab> {
    lab: &'lab Lab,
    endpoints: Vec<Endpoint>,
    connections: Vec<(u8, Connection)>,
}

impl Clients<'_> {
    fn new<'lab>(lab: &'lab Lab, config: &ClientConfig) -> Clients<'lab> {
        let socket = || lab.far_socket(&at(FAR[0], 0).to_string());
        let mut endpoints: Vec<Endpoint> = (0..4).map(|_| kernel(socket(), None)).collect();
        for endpoint in &mut endpoints {
            endpoint.set_default_client_config(config.clone());
        }
        Clients { lab, endpoints, connections: Vec::new() }
    }

    /// Opens this number of connections, one after the other.
    async fn connect(&mut self, count: usize) {
        for number in 0..count {
            let endpoint = &self.endpoints[number % self.endpoints.len()];
            let connection = endpoint.connect(at(NEAR[0], 7200), "towpath").unwrap().await.unwrap();
            self.connections.push((echo(&connection).await, connection));
        }
    }

    /// Moves each client to another port, and then uses each connection.
    async fn move_and_echo(&self) {
        for endpoint in &self.endpoints {
            endpoint.rebind(self.lab.far_socket(&at(FAR[0], 0).to_string())).unwrap();
        }
        for (tag, connection) in &self.connections {
            assert_eq!(echo(connection).await, *tag);
        }
    }

    /// Closes the connections to one server.
    fn close(&mut self, server: u8) {
        for (_, connection) in self.connections.extract_if(.., |(tag, _)| *tag == server) {
            connection.close(0u32.into(), b"done");
        }
    }

    /// The servers of the connections.
    fn tags(&self) -> BTreeSet<u8> {
        self.connections.iter().map(|(tag, _)| *tag).collect()
    }
}

/// Sends a request, and gives the tag of the server that answers.
async fn echo(connection: &Connection) -> u8 {
    let exchange = async {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(b"request").await.unwrap();
        send.finish().unwrap();
        receive.read_to_end(REQUEST_BYTES).await.unwrap()
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer");
    let (tag, request) = answer.split_first().unwrap();
    assert_eq!(request, b"request");
    *tag
}

const WORKERS: &str = "[engine]\nworkers = 2\n";
/// Connections whose packets are under way at the same time.
const AT_ONCE: usize = 64;
const REQUEST_BYTES: usize = 64;
const LONG_HEADER: u8 = 0x80;
const INITIAL: u8 = 0xc0;
const HANDSHAKE: u8 = 0xe0;
const SHORT: u8 = 0x40;
