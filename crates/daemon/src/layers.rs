//! What may be put around any port: faults, limits, hints, recordings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_document::Problem;
use towpath_engine::port::Device;
use towpath_ports::wrap::Wrapped;
use towpath_ports::wrap::fault::Fault;
use towpath_ports::wrap::hint::Hint;
use towpath_ports::wrap::limit::Limit;
use towpath_ports::wrap::record::{Record, Trace};
use utoipa::ToSchema;

use crate::state::PortState;

/// A bad wire. Shares are of 1.0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultState {
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames of which one bit is inverted.
    pub corrupt: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that overtake the one before.
    pub reorder: f64,
    /// Milliseconds that a frame is under way.
    pub delay_ms: f64,
    /// Up to so many milliseconds more.
    pub jitter_ms: f64,
    /// The same seed makes the same faults.
    pub seed: u64,
    /// Frames that are under way at a time; more are lost.
    pub limit: usize,
    /// Which way frames are hurt.
    pub on: Way,
}

/// Which way frames go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// What arrives.
    #[default]
    Rx,
    /// What leaves.
    Tx,
    /// Both.
    Both,
}

/// Frames a second, for each queue and each worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitState {
    /// On the way in: the rest waits in its queue.
    pub rx: Option<u64>,
    /// On the way out: the rest is dropped.
    pub tx: Option<u64>,
    /// Frames that may pass at once after a pause.
    pub burst: Option<u32>,
}

/// The hash of frames (`bpf_xdp_metadata_rx_hash`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashState {
    /// What the device tells.
    #[default]
    Off,
    /// As a NIC makes it, with Microsoft's published key.
    Toeplitz,
}

/// When frames arrived (`bpf_xdp_metadata_rx_timestamp`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimestampState {
    /// What the device tells.
    #[default]
    Off,
    /// When the worker took them, in nanoseconds of `CLOCK_TAI`.
    Software,
}

/// Outer VLAN tags (`bpf_xdp_metadata_rx_vlan_tag`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VlanState {
    /// They stay in the packet.
    #[default]
    Keep,
    /// They are taken off and told, as a NIC with `rxvlan on` does.
    Strip,
}

impl Default for FaultState {
    fn default() -> FaultState {
        let Fault { seed, limit, .. } = Fault::default();
        FaultState {
            loss: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay_ms: 0.0,
            jitter_ms: 0.0,
            seed,
            limit,
            on: Way::Rx,
        }
    }
}

impl FaultState {
    fn check(&self) -> Result<(), Problem> {
        let FaultState { loss, corrupt, duplicate, reorder, .. } = *self;
        let shares = [("loss", loss), ("corrupt", corrupt), ("duplicate", duplicate)];
        for (key, share) in shares.into_iter().chain([("reorder", reorder)]) {
            if !(0.0..=1.0).contains(&share) {
                let message = format!("{share} is no share: 0 is none, 1 is every frame");
                return Err(Problem::new(format!("fault.{key}"), message));
            }
        }
        for (key, ms) in [("delay_ms", self.delay_ms), ("jitter_ms", self.jitter_ms)] {
            if !(0.0..=DELAY_MS_MAX).contains(&ms) {
                let message = format!("{ms}: 0 to {DELAY_MS_MAX} milliseconds are possible");
                return Err(Problem::new(format!("fault.{key}"), message));
            }
        }
        Ok(())
    }

    fn layer(&self) -> Fault {
        let time = |ms: f64| Duration::from_secs_f64(ms / 1000.0);
        Fault {
            loss: self.loss,
            corrupt: self.corrupt,
            duplicate: self.duplicate,
            reorder: self.reorder,
            delay: time(self.delay_ms),
            jitter: time(self.jitter_ms),
            seed: self.seed,
            limit: self.limit,
            on_rx: self.on != Way::Tx,
            on_tx: self.on != Way::Rx,
        }
    }
}

/// Finds what is wrong with a port's layers.
pub(crate) fn check(port: &PortState) -> Result<(), Problem> {
    check_shadow(port)?;
    if let Some(offload) = &port.offload {
        offload.check().map_err(|problem| problem.inside("offload"))?;
    }
    port.fault.as_ref().map_or(Ok(()), FaultState::check)
}

/// A shadow is above its port, and gives it its number.
fn check_shadow(port: &PortState) -> Result<(), Problem> {
    let Some(name) = port.shadow() else { return Ok(()) };
    let taken = [("upper", port.upper.is_some()), ("ifindex", port.ifindex.is_some())];
    if let Some((key, _)) = taken.into_iter().find(|(_, is_there)| *is_there) {
        let message =
            format!("a port with a shadow gets its {key} from that: leave out one of both");
        return Err(Problem::new(key, message));
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > 15 || !name.bytes().all(is_allowed) {
        let message = format!("{name:?}: 1 to 15 letters, digits, '.', '_', '-' are possible");
        return Err(Problem::new("shadow", message));
    }
    Ok(())
}

/// Puts a port's layers around its device. Hints are innermost, as if the device told them;
/// recordings are outermost: they show what the port's programs see.
pub(crate) fn wrap(
    port: &PortState,
    mut device: Box<dyn Device>,
) -> Result<Box<dyn Device>, String> {
    let hint = Hint {
        hash: port.rx_hash == Some(HashState::Toeplitz),
        timestamp: port.timestamp == Some(TimestampState::Software),
        vlan: port.rx_vlan == Some(VlanState::Strip),
    };
    if hint != Hint::default() {
        device = Box::new(Wrapped::new(device, Arc::new(hint)));
    }
    if let Some(fault) = &port.fault {
        device = Box::new(Wrapped::new(device, Arc::new(fault.layer())));
    }
    if let Some(LimitState { rx, tx, burst }) = port.limit {
        let limit = Limit { rx, tx, burst: burst.unwrap_or(BURST) };
        device = Box::new(Wrapped::new(device, Arc::new(limit)));
    }
    if let Some(path) = &port.record {
        let record = Record::create(Path::new(path)).map_err(|error| format!("record: {error}"))?;
        device = Box::new(Wrapped::new(device, Arc::new(record)));
    }
    if let Some(path) = &port.trace {
        let trace = Trace::create(&port.name, Path::new(path));
        let trace = trace.map_err(|error| format!("trace: {path}: {error}"))?;
        device = Box::new(Wrapped::new(device, Arc::new(trace)));
    }
    Ok(device)
}

/// An hour: what is under way for longer is lost.
const DELAY_MS_MAX: f64 = 3_600_000.0;
/// A burst of the engine.
const BURST: u32 = 64;
