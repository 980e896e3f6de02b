//! The rate of both gateways on one core.

use std::time::Duration;

use serde::Serialize;
use towpath_engine::{Engine, PortId};
use towpath_ports::generator::{self, Generator};
use towpath_ports::sink::Sink;

use super::packets::datagram;
use super::tunnel::{Ends, Tunnel};
use crate::error::CliError;

/// Rates in seconds of the worker's processor time.
#[derive(Debug, Serialize)]
pub(super) struct Speed {
    /// Length of the packets as Ethernet frames, before encryption.
    pub(super) packet_bytes: usize,
    pub(super) packets_per_second: f64,
    pub(super) bits_per_second: f64,
}

/// Sends packets of one length as fast as both gateways take them, on one worker. Also returns the
/// number of lost frames.
pub(super) fn measure(blocked: [u16; 2]) -> Result<(Speed, i64), CliError> {
    let packet = datagram(1, &[b'.'; PAYLOAD]);
    let packet_bytes = packet.len();
    let generator = Generator::new(generator::Options::new(packet))
        .map_err(|error| CliError::Daemon(error.to_string()))?;
    let ends = Ends { first: Box::new(generator), wire: None, last: Box::new(Sink) };
    let tunnel = Tunnel::start(ends, blocked)?;
    tunnel.add_sa(SPI)?;
    std::thread::sleep(WARM_UP);
    let (start, before) = (processor_ns(&tunnel.engine)?, sent(&tunnel.engine, tunnel.last));
    std::thread::sleep(WINDOW);
    let (end, after) = (processor_ns(&tunnel.engine)?, sent(&tunnel.engine, tunnel.last));
    tunnel.engine.stop();
    if after == before || end == start {
        return Err(CliError::Daemon("nothing arrives".to_owned()));
    }
    let refused = tunnel.refused();
    // Packets that came before there was an SA were refused by gateway A.
    if !refused.is_empty() {
        return Err(CliError::Daemon(format!("gateway b refuses packets: {refused:?}")));
    }
    let packets_per_second = (after - before) as f64 * 1e9 / (end - start) as f64;
    let bits_per_second = packets_per_second * packet_bytes as f64 * 8.0;
    let missing = tunnel.engine.conservation().missing();
    Ok((Speed { packet_bytes, packets_per_second, bits_per_second }, missing))
}

/// Frames that a port has sent so far.
fn sent(engine: &Engine, port: PortId) -> u64 {
    let port = engine.port(port);
    port.map_or(0, |port| port.opened.counters.iter().map(|it| it.tx_packets.get()).sum())
}

/// Processor time of the workers, in nanoseconds.
fn processor_ns(engine: &Engine) -> Result<u64, CliError> {
    let mut total = 0;
    for thread in engine.threads() {
        let path = format!("/proc/self/task/{thread}/schedstat");
        let text = std::fs::read_to_string(&path)
            .map_err(|source| CliError::File { path: path.into(), source })?;
        total += text.split(' ').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

const SPI: u32 = 0x2001;
/// Bytes of UDP payload.
const PAYLOAD: usize = 1386;
const WARM_UP: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_millis(500);
