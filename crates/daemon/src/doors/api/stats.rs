//! `/v1/stats`

use serde::Deserialize;

use super::answer::{Answer, Asked, Daemon, blocking};
use crate::doors::view;
use crate::model::messages::StatsView;

/// Shows counters of all ports, and the accounting of all frames. With `zeros=false`, verdicts and
/// drop reasons that did not occur are left out.
#[utoipa::path(get, path = "/v1/stats", params(("zeros" = Option<bool>, Query)),
    responses((status = 200, body = StatsView)))]
pub(super) async fn stats(
    control: Daemon,
    Asked(StatsQuery { zeros }): Asked<StatsQuery>,
) -> Answer<StatsView> {
    blocking(&control, move |control| {
        let mut stats = control.read(view::stats);
        if !zeros {
            for port in stats.ports.values_mut() {
                for counts in [&mut port.verdicts, &mut port.drops, &mut port.tx_drops] {
                    counts.retain(|_, count| *count > 0);
                }
            }
        }
        Ok(stats)
    })
    .await
}

/// Parameters of the statistics.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StatsQuery {
    zeros: bool,
}

impl Default for StatsQuery {
    fn default() -> StatsQuery {
        StatsQuery { zeros: true }
    }
}
