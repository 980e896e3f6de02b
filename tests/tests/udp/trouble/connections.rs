//! QUIC connections whose daemon, or port, goes.

use std::time::{Duration, Instant};

use quinn::ConnectionError;
use rustix::process::Signal;
use towpath_udp::UdpStack;

use super::owners::Owner;
use super::traffic::Ends;
use super::world::World;
use crate::lab::{FAR, NEAR, PATIENCE, at};
use crate::quic::{self, Towpath};
use crate::tls;

#[test]
fn connections_end_with_the_daemon() {
    let Some(mut world) = World::new(Owner::Afxdp(1)) else { return };
    // Applications can bind.
    drop(Ends::new(&world));
    for signal in [Signal::KILL, Signal::TERM] {
        let took = disturbed(&world, |world| world.daemon().signal(signal));
        println!("{signal:?}: the connection failed after {took:?}");
        world.daemon.take().unwrap().wait();
        world.start();
        world.settle();
        drop(Ends::new(&world));
    }
    world.config.has_port = false;
    let took = disturbed(&world, |world| {
        world.write();
        world.daemon().signal(Signal::HUP);
    });
    println!("the port is gone: the connection failed after {took:?}");
}

/// Has something happen in the middle of an endless transfer from Towpath's endpoint; gives the
/// time until both its tasks, of which one sends and one receives, have got an error.
fn disturbed(world: &World, event: impl FnOnce(&World)) -> Duration {
    let (server_config, client_config) = tls::configs().unwrap();
    let stack = UdpStack::open(&world.options()).unwrap();
    let near = stack.bind(at(NEAR[0], 0)).unwrap();
    let far = world.far_socket(&at(FAR[0], 0).to_string());
    let address = far.local_addr().unwrap();
    quic::run(async move {
        let server = quic::kernel(far, Some(server_config));
        let serving = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            // It ends when its client is silent for long.
            while let Ok(Some(chunk)) = receive.read_chunk(1 << 16, true).await {
                if send.write_all(&chunk.bytes).await.is_err() {
                    return;
                }
            }
        });
        let client = Towpath(near).endpoint(None);
        let connecting = client.connect_with(client_config, address, "towpath").unwrap();
        let connection = connecting.await.unwrap();
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let sending =
            tokio::spawn(async move { while send.write_all(&[7; 1 << 14]).await.is_ok() {} });
        // It runs.
        for _ in 0..100 {
            receive.read_chunk(1 << 16, true).await.unwrap();
        }
        event(world);
        let start = Instant::now();
        let over = async {
            while receive.read_chunk(1 << 16, true).await.is_ok() {}
            sending.await.unwrap();
            connection.closed().await
        };
        let why = tokio::time::timeout(PATIENCE, over).await.expect("it does not hang");
        assert!(!matches!(why, ConnectionError::LocallyClosed), "{why:?}");
        eprintln!("{why}");
        serving.abort();
        start.elapsed()
    })
}
