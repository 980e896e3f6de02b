//! A host of the demo: a namespace with the kernel's stack, and the tools that run in it.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value as Json;
use towpath_kernel::{Background, Namespace};

use crate::error::CliError;

/// A host, which vanishes at the latest when this process ends.
pub(super) struct Host {
    pub(super) namespace: Namespace,
    number: u32,
}

/// Measurement of iperf3.
#[derive(Debug, Serialize)]
pub(super) struct Load {
    /// Rate at the receiver.
    pub(super) bits_per_second: f64,
    pub(super) retransmits: u64,
}

/// An iperf3 that runs; killed if dropped before its end.
pub(super) struct Running(Option<Child>);

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "10.77.0.{}", self.number)
    }
}

impl Host {
    /// A host without an interface.
    pub(super) fn new(number: u32) -> Result<Host, CliError> {
        let namespace = Namespace::new()
            .map_err(|error| CliError::Daemon(format!("a network namespace: {error}")))?;
        // No host may send before both are joined, which IPv6 would do by itself. A kernel without
        // IPv6 has no such switch.
        let _quiet = namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        Ok(Host { namespace, number })
    }

    /// Name of the host's port and of its interface.
    pub(super) fn port(&self) -> String {
        format!("host{}", self.number)
    }

    /// Sets the address of its interface, and enables the interface.
    pub(super) fn up(&self) -> Result<(), CliError> {
        let port = self.port();
        self.run(&format!("ip addr add {self}/24 dev {port}"))?;
        self.run(&format!("ip link set {port} up"))?;
        Ok(())
    }

    /// Pings another host; gives the number of answers.
    pub(super) fn ping(&self, other: &Host, count: u32) -> Result<u32, CliError> {
        let line = format!("ping -n -q -i 0.05 -W 2 -c {count} {other}");
        let output = command(&mut self.namespace.command(&line), "ping", Command::output)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // "5 packets transmitted, 5 received, 0% packet loss"
        let received = text.split(", ").find_map(|part| part.strip_suffix(" received"));
        received.and_then(|number| number.parse().ok()).ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            CliError::Daemon(format!("ping: {}", why.trim()))
        })
    }

    /// Sends datagrams to another host, which sends them back; gives the number that came back.
    pub(super) fn echo(&self, other: &Host, count: u32) -> Result<u32, CliError> {
        let failed =
            |error: io::Error| CliError::Daemon(format!("an exchange of datagrams: {error}"));
        let answers = other.socket(&format!("{other}:{ECHO_PORT}")).map_err(failed)?;
        let asks = self.socket(&format!("{self}:0")).map_err(failed)?;
        let to = format!("{other}:{ECHO_PORT}");
        let (mut answered, mut bytes) = (0, [0; 64]);
        for number in 0..count {
            asks.send_to(&number.to_ne_bytes(), &to).map_err(failed)?;
            if let Ok((length, from)) = answers.recv_from(&mut bytes) {
                answers.send_to(&bytes[..length], from).map_err(failed)?;
                answered += u32::from(asks.recv_from(&mut bytes).is_ok());
            }
        }
        Ok(answered)
    }

    /// A UDP socket of this host; reads wait for two seconds at most.
    fn socket(&self, address: &str) -> io::Result<UdpSocket> {
        // A socket belongs to the namespace in which it is made, a thread to the one that it
        // entered.
        let made = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                self.namespace.enter()?;
                UdpSocket::bind(address)
            });
            made.join().unwrap_or_else(|_panicked| Err(io::Error::other("it panicked")))
        })?;
        made.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(made)
    }

    /// Starts an iperf3 server that other hosts can reach.
    pub(super) fn listen(&self) -> Result<Background, CliError> {
        let server = self.namespace.start(&format!("iperf3 -s -B {self} -p {PORT}"));
        let server = server.map_err(|error| CliError::Daemon(format!("iperf3: {error}")))?;
        let start = Instant::now();
        while !self.run("cat /proc/net/tcp")?.contains(&format!(":{PORT:04X} ")) {
            if start.elapsed() > Duration::from_secs(5) {
                return Err(CliError::Daemon("iperf3 does not listen".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Sends to another host for this time.
    pub(super) fn load(&self, other: &Host, seconds: u64) -> Result<Running, CliError> {
        // Without intervals the report fits into a pipe that is not read until the end.
        let line = format!("iperf3 -J -i 0 -t {seconds} -c {other} -p {PORT}");
        let mut iperf = self.namespace.command(&line);
        iperf.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Running(Some(command(&mut iperf, "iperf3", Command::spawn)?)))
    }

    fn run(&self, line: &str) -> Result<String, CliError> {
        self.namespace.run(line).map_err(|error| CliError::Daemon(error.to_string()))
    }
}

impl Running {
    /// Whether iperf3 has ended.
    pub(super) fn has_ended(&mut self) -> Result<bool, CliError> {
        let Some(child) = &mut self.0 else { return Ok(true) };
        let status = child.try_wait();
        status.map(|it| it.is_some()).map_err(|error| CliError::Daemon(format!("iperf3: {error}")))
    }

    /// Waits for the result.
    pub(super) fn result(mut self) -> Result<Load, CliError> {
        let failed = |why: &str| CliError::Daemon(format!("iperf3: {why}"));
        let child = self.0.take().ok_or_else(|| failed("it was asked twice"))?;
        let output = child.wait_with_output().map_err(|error| failed(&error.to_string()))?;
        let report: Json = serde_json::from_slice(&output.stdout)
            .map_err(|_no_json| failed(&format!("no report ({})", output.status)))?;
        if let Some(error) = report["error"].as_str() {
            return Err(failed(error));
        }
        let end = &report["end"];
        let rate = end["sum_received"]["bits_per_second"].as_f64();
        Ok(Load {
            bits_per_second: rate.ok_or_else(|| failed("a report without a rate"))?,
            retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The process may have ended already.
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}

fn command<T>(
    command: &mut Command,
    what: &str,
    run: impl FnOnce(&mut Command) -> io::Result<T>,
) -> Result<T, CliError> {
    run(command).map_err(|error| CliError::Daemon(format!("{what}: {error}")))
}

const ECHO_PORT: u16 = 7;
const PORT: u16 = 5201;
