//! A client at the far host and a server at the near one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use quinn::{Connection, Endpoint, EndpointConfig, TransportConfig};
use tokio::runtime::{Builder, Runtime};
use towpath_bench::hosts::{FAR, Hosts, NEAR, wait_until};
use towpath_bench::world::pin;

use crate::{Side, requests, tls};

/// Bytes of stream data in a full datagram at an MTU of 1500, about.
pub(crate) const PAYLOAD_BYTES: f64 = 1420.0;

/// The work of the hosts until they are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One connection moves bytes in one direction.
    Stream { near_sends: bool },
    /// Each of many connections has one request under way; the near host answers.
    Requests { connections: usize },
    /// One connection after the other is opened and closed, with pauses in which hosts fall idle.
    Handshakes,
}

/// Both ends, each in a thread of its own.
pub(crate) struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Bytes that the receiving end has read, or requests that were answered.
    count: AtomicU64,
    /// Durations of handshakes.
    handshakes: Mutex<Vec<Duration>>,
}

impl Running {
    /// Starts both ends.
    pub(crate) fn start(hosts: &Hosts, side: Side, work: Work) -> anyhow::Result<Running> {
        let (mut server, mut config) = tls::configs()?;
        let shared = Arc::<Shared>::default();
        let address = SocketAddr::from((NEAR, PORT));
        server.transport_config(transport(side));
        config.transport_config(transport(Side::Offloads));
        let socket = match side {
            Side::Towpath => Some(hosts.stack()?.bind(address)?),
            Side::Offloads | Side::NoSegmentation => None,
        };
        let near = End { shared: Arc::clone(&shared), work, is_server: true };
        let near = spawn("near", move || {
            near.run(|| match socket {
                Some(socket) => {
                    towpath_quinn::endpoint(socket, EndpointConfig::default(), Some(server))
                }
                None => Endpoint::server(server, address),
            })
        })?;
        let far_host = towpath_kernel::Namespace::open(&hosts.far.path())?;
        let far = End { shared: Arc::clone(&shared), work, is_server: false };
        let far = spawn("far", move || {
            far_host.enter()?;
            far.run(|| {
                let mut endpoint = Endpoint::client(SocketAddr::from((FAR, 0)))?;
                endpoint.set_default_client_config(config);
                Ok(endpoint)
            })
        })?;
        Ok(Running { shared, threads: vec![near, far] })
    }

    /// Waits until this number of bytes, or answers, has been received.
    pub(crate) fn wait_until_moving(&self, count: u64) -> anyhow::Result<()> {
        wait_until("progress", || self.count() > count)
    }

    /// Bytes or answers received so far.
    pub(crate) fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Durations of this number of handshakes.
    pub(crate) fn handshakes(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        wait_until("handshakes", || self.shared.handshakes.lock().len() >= count)?;
        Ok(self.shared.handshakes.lock()[..count].to_vec())
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_panicked| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(())
    }
}

fn spawn(
    name: &str,
    run: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(run)?)
}

/// A host's part of the work. The server is the near host, on the second core.
struct End {
    shared: Arc<Shared>,
    work: Work,
    is_server: bool,
}

impl End {
    fn run(self, open: impl FnOnce() -> std::io::Result<Endpoint>) -> anyhow::Result<()> {
        pin(if self.is_server { 1 } else { 0 });
        let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let endpoint = open()?;
            tokio::select! {
                // The other end may stop first.
                _ended = self.work(&endpoint) => {}
                () = self.stopped() => {}
            }
            endpoint.close(0u32.into(), b"");
            tokio::select! {
                () = endpoint.wait_idle() => {}
                () = tokio::time::sleep(Duration::from_millis(300)) => {}
            }
            Ok(())
        })
    }

    async fn work(&self, endpoint: &Endpoint) -> anyhow::Result<()> {
        match (self.work, self.is_server) {
            (Work::Stream { .. }, true) => {
                let connection = endpoint.accept().await.context("no client")?.await?;
                self.stream(&connection).await
            }
            (Work::Stream { .. }, false) => self.stream(&connect(endpoint).await?).await,
            (Work::Requests { .. } | Work::Handshakes, true) => requests::serve(endpoint).await,
            (Work::Requests { connections }, false) => {
                requests::ask(endpoint, connections, &self.shared.count).await
            }
            (Work::Handshakes, false) => {
                requests::shake_hands(endpoint, &self.shared.handshakes).await
            }
        }
    }

    /// Sends or receives without end.
    async fn stream(&self, connection: &Connection) -> anyhow::Result<()> {
        if self.work == (Work::Stream { near_sends: self.is_server }) {
            let mut stream = connection.open_uni().await?;
            let bytes = vec![7; 1 << 20];
            loop {
                stream.write_all(&bytes).await?;
            }
        }
        let mut stream = connection.accept_uni().await?;
        while let Some(chunk) = stream.read_chunk(1 << 20, true).await? {
            self.shared.count.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn stopped(&self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A connection to the near host.
pub(crate) async fn connect(endpoint: &Endpoint) -> anyhow::Result<Connection> {
    Ok(endpoint.connect((NEAR, PORT).into(), NAME)?.await?)
}

fn transport(side: Side) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window((64u32 << 20).into());
    transport.receive_window((64u32 << 20).into());
    transport.send_window(64 << 20);
    transport.enable_segmentation_offload(side != Side::NoSegmentation);
    Arc::new(transport)
}

const NAME: &str = "towpath.test";
const PORT: u16 = 4433;
