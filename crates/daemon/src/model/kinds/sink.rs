//! `sink`: accepts and discards every frame.

use std::time::Duration;

use towpath_document::Problem;
use towpath_ports::sink::Sink;

use super::kind::Kind;
use crate::model::state::PortState;

pub(super) static KIND: Kind =
    Kind::new("sink", "drops every frame that is sent to it, and receives none", &[], check, open);

fn check(port: &PortState) -> Result<(), Problem> {
    match port.options.keys().next() {
        Some(key) => Err(Problem::new(key.clone(), "a sink has no options")),
        None => Ok(()),
    }
}

fn open(_ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    Ok(vec![Box::new(Sink)])
}
