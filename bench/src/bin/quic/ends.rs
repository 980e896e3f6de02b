//! A client at the far host and a server at the near one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use quinn::{Connection, Endpoint, EndpointConfig, TransportConfig};
use tokio::runtime::{Builder, Runtime};
use towpath_bench::hosts::{FAR, Hosts, NEAR, wait_until};
use towpath_bench::world::pin;

use crate::{Side, tls};

/// Bytes of stream data in a full datagram at an MTU of 1500, about.
pub(crate) const PAYLOAD_BYTES: f64 = 1420.0;

/// Both ends, each in a thread of its own.
pub(crate) struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Bytes that the receiving end has read.
    received: AtomicU64,
}

impl Running {
    /// Starts both ends; one sends without end.
    pub(crate) fn start(hosts: &Hosts, side: Side, near_sends: bool) -> anyhow::Result<Running> {
        let (mut server, mut config) = tls::configs()?;
        let shared = Arc::<Shared>::default();
        let address = SocketAddr::from((NEAR, PORT));
        server.transport_config(transport(side));
        config.transport_config(transport(Side::Offloads));
        let socket = match side {
            Side::Towpath => Some(hosts.stack()?.bind(address)?),
            Side::Offloads | Side::NoSegmentation => None,
        };
        let near = End { shared: Arc::clone(&shared), sends: near_sends, cpu: 1 };
        let near = spawn("near", move || {
            near.run(|| match socket {
                Some(socket) => {
                    towpath_quinn::endpoint(socket, EndpointConfig::default(), Some(server))
                }
                None => Endpoint::server(server, address),
            })
        })?;
        let far_host = towpath_kernel::Namespace::open(&hosts.far.path())?;
        let far = End { shared: Arc::clone(&shared), sends: !near_sends, cpu: 0 };
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

    pub(crate) fn wait_until_moving(&self) -> anyhow::Result<()> {
        wait_until("bytes", || self.received() > 1 << 20)
    }

    pub(crate) fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
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

/// An end of the connection: the direction of its bytes, and the core of its thread.
struct End {
    shared: Arc<Shared>,
    sends: bool,
    cpu: usize,
}

impl End {
    fn run(self, open: impl FnOnce() -> std::io::Result<Endpoint>) -> anyhow::Result<()> {
        pin(self.cpu);
        let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let endpoint = open()?;
            let is_server = self.cpu == 1;
            let connection = if is_server {
                endpoint.accept().await.context("no client")?.await?
            } else {
                endpoint.connect((NEAR, PORT).into(), NAME)?.await?
            };
            tokio::select! {
                // The other end may stop first.
                _ended = self.work(&connection) => {}
                () = self.stopped() => {}
            }
            connection.close(0u32.into(), b"");
            tokio::select! {
                () = endpoint.wait_idle() => {}
                () = tokio::time::sleep(Duration::from_millis(300)) => {}
            }
            Ok(())
        })
    }

    async fn work(&self, connection: &Connection) -> anyhow::Result<()> {
        if self.sends {
            let mut stream = connection.open_uni().await?;
            let bytes = vec![7; 1 << 20];
            loop {
                stream.write_all(&bytes).await?;
            }
        }
        let mut stream = connection.accept_uni().await?;
        while let Some(chunk) = stream.read_chunk(1 << 20, true).await? {
            self.shared.received.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn stopped(&self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
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
