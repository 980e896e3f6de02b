//! What may be put around any port, as configuration says it: faults, limits, hints.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_document::Problem;
use towpath_ports::wrap::fault::Fault;
use utoipa::ToSchema;

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
    pub(crate) fn check(&self) -> Result<(), Problem> {
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

    pub(crate) fn layer(&self) -> Fault {
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

/// An hour: what is under way for longer is lost.
const DELAY_MS_MAX: f64 = 3_600_000.0;
