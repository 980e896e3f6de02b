//! Transfers by QUIC in both directions, and what they cost.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use quinn::{
    Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig, TokioRuntime,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use towpath_udp::UdpSocket as TowpathSocket;

use super::{failed, tls};
use crate::error::CliError;

/// A socket of the near host.
pub(super) enum Near {
    Kernel(UdpSocket),
    Towpath(TowpathSocket),
}

/// Rate and cost of a transfer in one direction.
#[derive(Debug, Serialize)]
pub(super) struct Rate {
    pub(super) bits_per_second: f64,
    pub(super) datagrams: u64,
    /// Processor time of this process: both ends, and the daemon.
    pub(super) processor_ns_per_datagram: f64,
}

/// Transfers to the near host and from it.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    pub(super) received: Rate,
    pub(super) sent: Rate,
}

/// Sends `len` bytes from the far host to the near one, and as many back.
pub(super) fn measure(near: Near, far: UdpSocket, len: u64) -> Result<Rates, CliError> {
    let (server_config, client_config) = tls::configs().map_err(failed)?;
    let (sender, receiver) = channel::<SocketAddr>();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            run(async {
                let endpoint = near.endpoint(server_config)?;
                let address = endpoint.local_addr().map_err(failed)?;
                // Without a client nobody waits for the address.
                let _sent = sender.send(address);
                serve(&endpoint).await
            })
        });
        let rates = receiver.recv().map_err(failed).and_then(|address| {
            run(async {
                let endpoint = kernel_endpoint(far, None)?;
                let connecting = endpoint.connect_with(client_config, address, NAME);
                let connection = connecting.map_err(failed)?.await.map_err(failed)?;
                let rates = both_ways(&connection, len).await;
                connection.close(0u32.into(), b"");
                endpoint.wait_idle().await;
                rates
            })
        });
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The server's error says more than that the client lost it.
        served.and(rates)
    })
}

impl Near {
    fn endpoint(self, config: ServerConfig) -> Result<Endpoint, CliError> {
        match self {
            Near::Kernel(socket) => kernel_endpoint(socket, Some(config)),
            Near::Towpath(socket) => {
                let endpoint = EndpointConfig::default();
                towpath_quinn::endpoint(socket, endpoint, Some(config)).map_err(failed)
            }
        }
    }
}

fn kernel_endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Result<Endpoint, CliError> {
    let config = EndpointConfig::default();
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).map_err(failed)
}

fn run<T>(future: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(future)
}

/// Receives and sends as the client of one connection asks, until it closes the connection.
async fn serve(endpoint: &Endpoint) -> Result<(), CliError> {
    let incoming = tokio::time::timeout(PATIENCE, endpoint.accept()).await.map_err(failed)?;
    let connection = incoming.ok_or_else(|| failed("the endpoint is closed"))?;
    let connection = connection.await.map_err(failed)?;
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let mut request = [0; 8];
        receive.read_exact(&mut request).await.map_err(failed)?;
        let len = u64::from_le_bytes(request);
        if len > 0 {
            send_bytes(&mut send, len).await?;
        } else {
            let len = receive_bytes(&mut receive).await?;
            send.write_all(&len.to_le_bytes()).await.map_err(failed)?;
        }
        send.finish().map_err(failed)?;
    }
    endpoint.wait_idle().await;
    Ok(())
}

async fn both_ways(connection: &Connection, len: u64) -> Result<Rates, CliError> {
    // The first part finds the path's MTU and rate.
    upload(connection, len / 8).await?;
    download(connection, len / 8).await?;
    let (start, before) = (Cost::now()?, connection.stats().udp_tx.datagrams);
    upload(connection, len).await?;
    let received = start.rate(len, connection.stats().udp_tx.datagrams - before)?;
    let (start, before) = (Cost::now()?, connection.stats().udp_rx.datagrams);
    download(connection, len).await?;
    let sent = start.rate(len, connection.stats().udp_rx.datagrams - before)?;
    Ok(Rates { received, sent })
}

async fn upload(connection: &Connection, len: u64) -> Result<(), CliError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(failed)?;
    send.write_all(&[0; 8]).await.map_err(failed)?;
    send_bytes(&mut send, len).await?;
    send.finish().map_err(failed)?;
    let mut received = [0; 8];
    receive.read_exact(&mut received).await.map_err(failed)?;
    all(u64::from_le_bytes(received), len)
}

async fn download(connection: &Connection, len: u64) -> Result<(), CliError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(failed)?;
    send.write_all(&len.to_le_bytes()).await.map_err(failed)?;
    send.finish().map_err(failed)?;
    all(receive_bytes(&mut receive).await?, len)
}

fn all(received: u64, len: u64) -> Result<(), CliError> {
    if received == len { Ok(()) } else { Err(failed("bytes are missing")) }
}

async fn send_bytes(stream: &mut SendStream, len: u64) -> Result<(), CliError> {
    let block = block();
    let mut left = len;
    while left > 0 {
        let part = left.min(BLOCK) as usize;
        stream.write_all(&block[..part]).await.map_err(failed)?;
        left -= part as u64;
    }
    Ok(())
}

/// Receives a stream and compares it with what was sent; returns its length.
async fn receive_bytes(stream: &mut RecvStream) -> Result<u64, CliError> {
    let block = block();
    let mut len = 0;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await.map_err(failed)? {
        let mut bytes = &chunk.bytes[..];
        while !bytes.is_empty() {
            let expected = &block[(len % BLOCK) as usize..];
            let (part, rest) = bytes.split_at(expected.len().min(bytes.len()));
            if part != &expected[..part.len()] {
                return Err(failed("a byte arrives changed"));
            }
            len += part.len() as u64;
            bytes = rest;
        }
    }
    Ok(len)
}

/// The bytes that are sent over and over.
fn block() -> Vec<u8> {
    let mut state = 1u32;
    let byte = |_| {
        // A linear congruential generator, whose high bits look random.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..BLOCK).map(byte).collect()
}

/// Time and processor time.
struct Cost {
    start: Instant,
    processor: Duration,
}

impl Cost {
    fn now() -> Result<Cost, CliError> {
        let processor = clock_gettime(ClockId::ProcessCPUTime);
        let processor = Duration::try_from(processor).map_err(failed)?;
        Ok(Cost { start: Instant::now(), processor })
    }

    /// The rate since then.
    fn rate(&self, len: u64, datagrams: u64) -> Result<Rate, CliError> {
        let seconds = self.start.elapsed().as_secs_f64();
        let processor = Cost::now()?.processor.saturating_sub(self.processor);
        Ok(Rate {
            bits_per_second: len as f64 * 8.0 / seconds,
            datagrams,
            processor_ns_per_datagram: processor.as_nanos() as f64 / datagrams.max(1) as f64,
        })
    }
}

/// Bytes of a block: a prime, so that blocks begin at all places of datagrams.
const BLOCK: u64 = 65_521;
const NAME: &str = "towpath";
const PATIENCE: Duration = Duration::from_secs(20);
