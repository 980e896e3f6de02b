//! Construction of the layers around a port's device.

use std::path::Path;
use std::sync::Arc;

use towpath_engine::port::Device;
use towpath_ports::wrap::Wrapped;
use towpath_ports::wrap::hint::Hint;
use towpath_ports::wrap::limit::Limit;
use towpath_ports::wrap::record::{Record, Trace};

use crate::model::around::{HashState, LimitState, TimestampState, VlanState};
use crate::model::state::PortState;

/// Wraps a device into the layers of its port. Hints are innermost, as if the device reported them;
/// recordings are outermost, since they show the frames that the port's programs see.
pub(crate) fn wrap(
    port: &PortState,
    mut device: Box<dyn Device>,
) -> Result<Box<dyn Device>, String> {
    let hint = Hint {
        hash: port.rx_hash == Some(HashState::Toeplitz),
        timestamp: port.timestamp == Some(TimestampState::Software),
        vlan: port.rx_vlan == Some(VlanState::Strip),
    };
    if hint != Hint::default() {
        device = Box::new(Wrapped::new(device, Arc::new(hint)));
    }
    if let Some(fault) = &port.fault {
        device = Box::new(Wrapped::new(device, Arc::new(fault.layer())));
    }
    if let Some(LimitState { rx, tx, burst }) = port.limit {
        let limit = Limit { rx, tx, burst: burst.unwrap_or(BURST) };
        device = Box::new(Wrapped::new(device, Arc::new(limit)));
    }
    if let Some(path) = &port.record {
        let record = Record::create(Path::new(path)).map_err(|error| format!("record: {error}"))?;
        device = Box::new(Wrapped::new(device, Arc::new(record)));
    }
    if let Some(path) = &port.trace {
        let trace = Trace::create(&port.name, Path::new(path));
        let trace = trace.map_err(|error| format!("trace: {path}: {error}"))?;
        device = Box::new(Wrapped::new(device, Arc::new(trace)));
    }
    Ok(device)
}

/// Frames in a burst of the engine.
const BURST: u32 = towpath_engine::BURST as u32;
