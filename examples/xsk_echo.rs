//! Sends back every packet of a port's queue, with source and destination exchanged.
//!
//! usage: xsk_echo PORT [QUEUE [PACKETS]]    the daemon's socket: TOWPATH_XSK

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use towpath_xsk_client::{Action, Options, Socket};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(port) = arguments.next() else {
        eprintln!("usage: xsk_echo PORT [QUEUE [PACKETS]]");
        return ExitCode::from(2);
    };
    let queue = arguments.next().and_then(|queue| queue.parse().ok()).unwrap_or(0);
    let packets = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(u64::MAX);
    match echo(&port, queue, packets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xsk_echo: {port}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn echo(port: &str, queue: u32, packets: u64) -> std::io::Result<()> {
    let mut socket = Socket::open(&Options::new(port, queue))?;
    println!("ready");
    let mut count = 0;
    while count < packets {
        let mut is_first = true;
        count += socket.receive(64, |piece, continues| {
            if is_first && let Some((addresses, _)) = piece.split_first_chunk_mut::<12>() {
                let (to, from) = addresses.split_at_mut(6);
                to.swap_with_slice(from);
            }
            is_first = !continues;
            Action::Send
        }) as u64;
        socket.kick()?;
        socket.wait(Duration::from_secs(1))?;
    }
    // What is in the ring leaves before the socket goes.
    while socket.unsent() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{count} packets");
    Ok(())
}
