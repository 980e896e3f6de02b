//! Rates of the last minutes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rates of the last minutes, one point per period.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// Time of the last point, in seconds since 1970; 0 without points.
    pub time: f64,
    /// Seconds between two points.
    pub period: f64,
    /// Number of points.
    pub points: usize,
    /// Ports by name.
    pub ports: BTreeMap<String, TrafficPast>,
    /// Frames per second that programs judged, by link id.
    pub links: BTreeMap<u32, Vec<f32>>,
    /// Workers by number.
    pub workers: Vec<WorkerPast>,
    /// Sums over ports, as `total` of `/v1/stats`.
    pub total: TrafficPast,
}

/// Rates of a port, in lists whose last element is the latest point. A list is shorter if the port
/// is younger than the history, and empty if all its points are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficPast {
    /// Frames received per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx: Vec<f32>,
    /// Bits received per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_bits: Vec<f32>,
    /// Frames sent per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tx: Vec<f32>,
    /// Bits sent per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tx_bits: Vec<f32>,
    /// Frames dropped per second, for any reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<f32>,
}

/// Load of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPast {
    /// Share of time in which the worker had work, 0 to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<f32>,
    /// Frames per second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<f32>,
}
