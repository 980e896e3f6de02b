//! `/v1/bonds`

use towpath_bpf::suggest;

use super::answer::{Answer, Daemon, Part, blocking};
use super::error::ErrorBody;
use crate::doors::bonds;
use crate::model::messages::bonds::BondView;
use crate::model::refusal::Refusal;

/// Lists all bonds.
#[utoipa::path(get, path = "/v1/bonds", responses((status = 200, body = Vec<BondView>)))]
pub(super) async fn list(control: Daemon) -> Answer<Vec<BondView>> {
    blocking(&control, |control| Ok(control.read(bonds::all))).await
}

/// Shows a bond.
#[utoipa::path(get, path = "/v1/bonds/{name}", params(("name" = String, Path)),
    responses((status = 200, body = BondView), (status = 404, body = ErrorBody)))]
pub(super) async fn show(control: Daemon, Part(name): Part<String>) -> Answer<BondView> {
    blocking(&control, move |control| {
        let mut all = control.read(bonds::all);
        if let Some(place) = all.iter().position(|bond| bond.name == name) {
            return Ok(all.swap_remove(place));
        }
        let hint = suggest::among(&name, all.iter().map(|bond| bond.name.as_str()));
        Err(Refusal::missing(format!("no bond \"{name}\"{hint} (ENODEV)")))
    })
    .await
}
