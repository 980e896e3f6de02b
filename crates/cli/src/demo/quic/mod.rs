//! `demo quic`: a file by QUIC between two hosts, over the kernel's sockets and over Towpath's.

mod hosts;
mod tls;
mod transfer;

use serde::Serialize;

use self::hosts::{FAR, Hosts, NEAR};
use self::transfer::{Near, Rate, Rates, measure};
use super::joint::Joint;
use super::{finished, say, unavailable};
use crate::error::CliError;
use crate::output::{Align, Output, Table, in_bytes};

/// Results of the demonstration.
#[derive(Debug, Serialize)]
struct Seen {
    /// Bytes of each transfer.
    bytes: u64,
    /// Both hosts have the kernel's sockets, whose large packets cross the veth whole.
    kernel_whole: Rates,
    /// The same, with packets that are cut before the veth.
    kernel: Rates,
    /// The near host has Towpath's sockets.
    towpath: Rates,
}

/// Runs the demonstration. Its namespaces and daemon live in this process, and end with it.
pub(super) fn quic(output: &mut Output) -> Result<(), CliError> {
    if let Some(why) = unavailable(&["ip", "ethtool", "nsenter", "setpriv"]) {
        return Err(CliError::Daemon(why));
    }
    // Dropped last: ports go before their namespaces.
    let hosts = Hosts::new()?;
    let joint = Joint::start(output.verbose)?;
    let result = show(&hosts, &joint, output);
    finished(joint, result)?;
    say(output, "namespaces, the veth and the daemon are gone again")
}

fn show(hosts: &Hosts, joint: &Joint, output: &mut Output) -> Result<(), CliError> {
    say(output, &format!("two hosts, joined by a veth; {FAR} has the kernel's sockets"))?;
    let size = in_bytes(BYTES);
    let text = format!("{NEAR} receives {size} by QUIC and sends them back, with either's sockets");
    say(output, &text)?;
    let kernel = || measure(Near::Kernel(hosts.near_socket()?), hosts.far_socket()?, BYTES);
    let kernel_whole = kernel()?;
    hosts.cut_packets()?;
    let cut = kernel()?;
    let stack = hosts.attach(joint)?;
    let socket = stack.bind((NEAR, 0).into()).map_err(failed)?;
    let towpath = measure(Near::Towpath(socket), hosts.far_socket()?, BYTES)?;
    let seen = Seen { bytes: BYTES, kernel_whole, kernel: cut, towpath };
    if output.json { output.json(&seen) } else { tell(&seen, output) }
}

fn tell(seen: &Seen, output: &mut Output) -> Result<(), CliError> {
    let sockets = format!("sockets of {NEAR}");
    let columns = [
        (&sockets[..], Align::Left),
        ("receives", Align::Right),
        ("a datagram", Align::Right),
        ("sends", Align::Right),
        ("a datagram", Align::Right),
    ];
    let mut table = Table::new(&columns);
    let Seen { kernel_whole, kernel, towpath, .. } = seen;
    for (what, rates) in [("kernel", kernel), ("Towpath", towpath), ("kernel, uncut", kernel_whole)]
    {
        let cells = [&rates.received, &rates.sent].into_iter().flat_map(cells);
        table.row([what.to_owned()].into_iter().chain(cells).collect());
    }
    output.line("")?;
    output.table(&table)?;
    output.line("")?;
    let build = if cfg!(debug_assertions) { " (debug build)" } else { "" };
    for line in [
        &format!("Rates are in Gbit/s{build}. \"A datagram\" is the processor time of each:"),
        "of both ends, of the kernel on their behalf, and of the daemon. All bytes",
        "arrived as they were sent.",
        "The sender's kernel cuts large packets, as for most network cards. Through a",
        "veth they can pass uncut, as in the last row, but on no wire.",
        "",
    ] {
        output.line(line)?;
    }
    Ok(())
}

fn cells(rate: &Rate) -> [String; 2] {
    let gigabits = rate.bits_per_second / 1e9;
    let microseconds = rate.processor_ns_per_datagram / 1e3;
    [format!("{gigabits:.2}"), format!("{microseconds:.2} us")]
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Daemon(error.to_string())
}

/// Bytes of each transfer: a second or less at usual rates.
const BYTES: u64 = if cfg!(debug_assertions) { 16 << 20 } else { 256 << 20 };
