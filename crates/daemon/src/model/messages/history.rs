//! What the last minutes were like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rates of the last minutes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryView {
    /// Seconds since 1970 of the last point; 0 while there is none.
    pub time: f64,
    /// Seconds from one point to the next.
    pub period: f64,
    /// Points there are.
    pub points: usize,
    /// Ports by name.
    pub ports: BTreeMap<String, TrafficPast>,
    /// Frames a second that programs judged, by link.
    pub links: BTreeMap<u32, Vec<f32>>,
    /// Workers by number.
    pub workers: Vec<WorkerPast>,
    /// All ports together, as `total` of `/v1/stats`.
    pub total: TrafficPast,
}

/// Rates of a port. In each list the last point comes last; it is shorter where there was nothing
/// before, and empty when all of it is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficPast {
    /// Frames received a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx: Vec<f32>,
    /// Bits received a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rx_bits: Vec<f32>,
    /// Frames sent a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tx: Vec<f32>,
    /// Bits sent a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tx_bits: Vec<f32>,
    /// Frames dropped a second, for whatever reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<f32>,
}

/// What a worker did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerPast {
    /// Share of the time that it had something to do, 0 to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<f32>,
    /// Frames a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<f32>,
}
