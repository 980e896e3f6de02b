//! `/v1/stats`

use super::types::StatsView;
use super::{Answer, Daemon, blocking};
use crate::view;

/// Counters of all ports, and what became of all frames.
#[utoipa::path(get, path = "/v1/stats", responses((status = 200, body = StatsView)))]
pub(super) async fn stats(control: Daemon) -> Answer<StatsView> {
    blocking(&control, |control| Ok(control.read(view::stats))).await
}
