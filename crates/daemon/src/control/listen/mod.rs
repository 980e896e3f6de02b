//! Output of running programs for listeners: printed lines, streams, records of ring buffers and
//! perf event arrays.
//!
//! Workers write to bounded memory and never wait. While there are listeners, separate threads read
//! that memory; a slow listener loses data, which is counted.

mod records;
mod streams;
mod trace;

pub(crate) use records::{Claim, Readers, RecordsWanted, start as records};
pub(crate) use streams::Follower;
pub(crate) use trace::Hub;

use serde::Serialize;

use crate::model::messages::LostView;

/// Appends a server-sent event.
pub(crate) fn event(out: &mut String, number: Option<u64>, kind: &str, data: &impl Serialize) {
    if let Some(number) = number {
        out.push_str(&format!("id: {number}\n"));
    }
    let json = serde_json::to_string(data).unwrap_or_default();
    out.push_str(&format!("event: {kind}\ndata: {json}\n\n"));
}

/// Appends the event that reports lost data.
pub(crate) fn lost(out: &mut String, count: u64, cpu: Option<u32>) {
    event(out, None, "lost", &LostView { lost: count, cpu });
}
