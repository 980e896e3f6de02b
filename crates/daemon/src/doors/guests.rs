//! Guests and their programs, as the API shows them.

use towpath_guest::Guest;

use crate::control::Inner;
use crate::model::messages::{GuestLimitView, GuestObjectView, GuestProgramView, GuestView};

/// All guests in their current state.
pub(crate) fn all(inner: &Inner) -> Vec<GuestView> {
    inner.live.guests.iter().map(|(port, guest)| view(port, guest)).collect()
}

/// A guest in its current state.
pub(crate) fn view(port: &str, guest: &Guest) -> GuestView {
    let status = guest.status();
    let programs = status.attached.into_iter().map(|it| GuestProgramView {
        direction: it.direction.word().to_owned(),
        handle: it.handle,
        name: it.name,
        tag: it.tag,
        runs: it.counters.runs,
        actions: it.counters.actions,
        faults: it.counters.faults,
        halted: it.halted,
    });
    let objects = status.objects.into_iter().map(|it| GuestObjectView {
        handle: it.handle,
        kind: it.what.word().to_owned(),
        name: it.name,
        bytes: it.bytes,
    });
    let limits = status.limits.into_iter().map(|it| GuestLimitView {
        name: it.name,
        limit: it.limit,
        used: it.used,
    });
    GuestView {
        port: port.to_owned(),
        connected: status.is_connected,
        programs: programs.collect(),
        objects: objects.collect(),
        limits: limits.collect(),
        requests: status.requests,
        refused: status.refused,
        damaged: status.damaged,
        resets: status.resets,
        refusal: status.refusal,
    }
}
