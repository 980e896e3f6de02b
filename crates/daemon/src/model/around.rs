//! Layers that configuration may put around any port: faults, limits, receive hints.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use towpath_document::Problem;
use towpath_ports::wrap::fault::Fault;
use utoipa::ToSchema;

/// Faults of a bad wire. Shares are fractions of 1.0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultState {
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames in which one bit is inverted.
    pub corrupt: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that overtake the frame before them.
    pub reorder: f64,
    /// Delay of each frame, in milliseconds.
    pub delay_ms: f64,
    /// Upper bound of the random additional delay, in milliseconds.
    pub jitter_ms: f64,
    /// Seed of the random numbers: the same seed makes the same faults.
    pub seed: u64,
    /// Frames that may be delayed at a time; frames beyond that are lost.
    pub limit: usize,
    /// Directions in which faults are applied.
    pub on: Way,
}

/// Directions of traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Received frames.
    #[default]
    Rx,
    /// Transmitted frames.
    Tx,
    /// Both directions.
    Both,
}

/// Rate limits in frames per second, for each queue and each worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitState {
    /// Limit on reception: frames beyond it wait in the receive queue.
    pub rx: Option<u64>,
    /// Limit on transmission: frames beyond it are dropped.
    pub tx: Option<u64>,
    /// Frames that may pass at once after a pause.
    pub burst: Option<u32>,
}

/// Source of a frame's hash (`bpf_xdp_metadata_rx_hash`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashState {
    /// The hash that the device reports, if any.
    #[default]
    Off,
    /// A Toeplitz hash as NICs compute it, with Microsoft's published key.
    Toeplitz,
}

/// Source of a frame's arrival time (`bpf_xdp_metadata_rx_timestamp`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimestampState {
    /// The time that the device reports, if any.
    #[default]
    Off,
    /// The time at which the worker received the frame, in nanoseconds of `CLOCK_TAI`.
    Software,
}

/// Handling of outer VLAN tags (`bpf_xdp_metadata_rx_vlan_tag`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VlanState {
    /// Tags stay in the packet.
    #[default]
    Keep,
    /// Tags are removed from the packet and reported as a hint, like a NIC with `rxvlan on`.
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
                let message = format!("{share} is not a share: 0 is none, 1 is every frame");
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

/// One hour: the longest delay that configuration may ask for.
const DELAY_MS_MAX: f64 = 3_600_000.0;
