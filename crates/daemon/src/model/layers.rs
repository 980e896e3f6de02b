//! Checks of the layers around a port: faults, shadow, offload.

use towpath_document::Problem;

use crate::model::around::FaultState;
use crate::model::state::PortState;

/// Checks a port's layers.
pub(crate) fn check(port: &PortState) -> Result<(), Problem> {
    check_shadow(port)?;
    if let Some(offload) = &port.offload {
        offload.check().map_err(|problem| problem.inside("offload"))?;
    }
    port.fault.as_ref().map_or(Ok(()), FaultState::check)
}

/// Checks a port's shadow, which is above the port and determines its ifindex.
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
