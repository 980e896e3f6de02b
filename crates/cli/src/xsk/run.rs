//! `xsk echo`, `drop`, `count`, `send`: the jobs of xdpsock, on a port of the daemon.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use towpath_daemon::api::types::XskStatus;
use towpath_xsk_client::abi::USE_SG;
use towpath_xsk_client::{Action, Options, Socket};

use crate::args::XskRunArgs;
use crate::daemon::client;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::output::{Output, grouped};

/// Job of the socket.
pub(super) enum Job {
    Echo,
    Drop,
    Count,
    Send { size: u32 },
}

/// Counts of packets and bytes, and the duration.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Sum {
    packets: u64,
    bytes: u64,
    seconds: f64,
}

/// Opens a socket and runs the job until the end of its time.
pub(super) fn run(args: &XskRunArgs, job: &Job, output: &mut Output) -> Result<(), CliError> {
    let mut socket = open(args)?;
    let lost = |error: io::Error| said(args, &error);
    let start = Instant::now();
    let end = args.runs_for.map(|time| start + time);
    let most = args.count.unwrap_or(u64::MAX);
    let (mut sum, mut told, mut next) = (Sum::default(), Sum::default(), start + TELL_PERIOD);
    let interrupt = Interrupt::expect();
    let is_time = || end.is_none_or(|end| Instant::now() < end) && !interrupt.is_seen();
    while sum.packets < most && is_time() {
        let burst = BURST.min(usize::try_from(most - sum.packets).unwrap_or(BURST));
        let done = turn(&mut socket, job, burst, &mut sum);
        socket.kick().map_err(lost)?;
        let now = Instant::now();
        sum.seconds = now.duration_since(start).as_secs_f64();
        if matches!(job, Job::Count) && now >= next {
            tell(&since(&told, &sum), output)?;
            output.flush()?;
            (told, next) = (sum, next + TELL_PERIOD);
        }
        if done == 0 {
            let left = end.map_or(WAIT_MAX, |end| end.saturating_duration_since(now));
            match job {
                Job::Send { .. } => std::thread::sleep(FULL_PAUSE),
                _ => drop(socket.wait(left.min(WAIT_MAX)).map_err(lost)?),
            }
        }
    }
    let patience = Instant::now() + PATIENCE;
    while socket.unsent() > 0 && Instant::now() < patience {
        socket.kick().map_err(lost)?;
        std::thread::sleep(FULL_PAUSE);
    }
    if matches!(job, Job::Count) {
        output.note("in all:");
    }
    tell(&sum, output)
}

fn open(args: &XskRunArgs) -> Result<Socket, CliError> {
    let status: XskStatus = client(&args.daemon)?.get("/v1/xsk")?;
    let options = Options {
        path: status.socket.into(),
        steer: args.map.is_none(),
        flags: if args.frags { USE_SG } else { 0 },
        ..Options::new(&args.port, args.queue)
    };
    let socket = Socket::open(&options).map_err(|error| said(args, &error))?;
    if let Some(map) = &args.map {
        let key = args.key.unwrap_or(args.queue);
        socket.connection().insert(map, key).map_err(|error| {
            let message = format!("{}: {map}[{key}]: {error}", args.port);
            CliError::Daemon(format!("{message}: `towpath map show` lists maps of programs"))
        })?;
    }
    Ok(socket)
}

/// Processes one burst; gives the number of packets.
fn turn(socket: &mut Socket, job: &Job, burst: usize, sum: &mut Sum) -> usize {
    if let Job::Send { size } = job {
        let packet = packet(*size as usize);
        let count = (0..burst).take_while(|_| socket.send(&packet)).count();
        sum.packets += count as u64;
        sum.bytes += count as u64 * u64::from(*size);
        return count;
    }
    let echoes = matches!(job, Job::Echo);
    let (mut bytes, mut is_first) = (0, true);
    let count = socket.receive(burst, |piece, continues| {
        bytes += piece.len() as u64;
        if echoes && is_first {
            swap_addresses(piece);
        }
        is_first = !continues;
        if echoes { Action::Send } else { Action::Drop }
    });
    sum.packets += count as u64;
    sum.bytes += bytes;
    count
}

fn swap_addresses(packet: &mut [u8]) {
    if let Some((to, from)) = packet.get_mut(..12).map(|both| both.split_at_mut(6)) {
        to.swap_with_slice(from);
    }
}

/// A broadcast frame without a source, of a type for experiments (IEEE 802, 0x88b5).
fn packet(size: usize) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    packet.resize(size, 0);
    packet
}

fn since(before: &Sum, now: &Sum) -> Sum {
    Sum {
        packets: now.packets - before.packets,
        bytes: now.bytes - before.bytes,
        seconds: now.seconds - before.seconds,
    }
}

fn tell(sum: &Sum, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return output.json(sum);
    }
    let rate = (sum.packets as f64 / sum.seconds.max(1e-9)).round() as u64;
    let Sum { packets, bytes, seconds } = *sum;
    output.line(&format!(
        "{} packets, {} bytes in {seconds:.1} s: {}/s",
        grouped(packets),
        grouped(bytes),
        grouped(rate)
    ))
}

fn said(args: &XskRunArgs, error: &io::Error) -> CliError {
    let hint = match error.raw_os_error() {
        Some(19) => ": there is no such port (ENODEV); `towpath port` lists them",
        Some(22) => ": it has no such queue (EINVAL)",
        Some(16) => ": another socket has the queue (EBUSY); `towpath xsk show` lists them",
        _ => "",
    };
    CliError::Daemon(format!("port {}, queue {}: {error}{hint}", args.port, args.queue))
}

const BURST: usize = 64;
const TELL_PERIOD: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Time until a full ring is tried again.
const FULL_PAUSE: Duration = Duration::from_micros(50);
/// Longest time to wait at the end until all sent packets have left.
const PATIENCE: Duration = Duration::from_secs(1);
