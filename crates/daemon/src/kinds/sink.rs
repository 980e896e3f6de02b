//! `sink`: takes every frame and forgets it.

use std::time::Duration;

use towpath_ports::sink::Sink;

use super::{Comeback, Kind, no_peer};
use crate::problem::Problem;
use crate::state::PortState;

pub(super) static KIND: Kind = Kind {
    name: "sink",
    summary: "takes every frame and forgets it; nothing arrives",
    options: &[],
    check,
    open,
    peer: no_peer,
    comeback: Comeback::Never,
    is_shared: false,
};

fn check(port: &PortState) -> Result<(), Problem> {
    match port.options.keys().next() {
        Some(key) => Err(Problem::new(key.clone(), "a sink has no options")),
        None => Ok(()),
    }
}

fn open(_ports: &[&PortState], _patience: Duration) -> super::Opened {
    Ok(vec![Box::new(Sink)])
}
