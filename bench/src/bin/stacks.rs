//! `bench/stacks`: TCP between two hosts through two ports and one program, beside the same hosts
//! joined by the kernel's own bridge.
//!
//! iperf3 between two network namespaces; the sides take turns. Needs root and
//! `scripts/install-deps.sh net`. One worker, so one core for both directions, as the bridge's
//! softirq has one for a flow.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use towpath_bench::{attach, load, median};
use towpath_engine::{Engine, Options, PortId, PortOptions, UpperName};
use towpath_kernel::Namespace;
use towpath_ports::packet::{self, Packet};
use towpath_ports::tap::{self, Tap};
use towpath_workload::small;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Largest payload of a frame.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
}

/// How two hosts are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Veths and a bridge: the kernel alone.
    Bridge,
    /// Taps; the program sees frames as they are.
    Taps,
    /// Taps; frames are made linear for the program.
    TapsLinear,
    /// Packet sockets on veths.
    Packet,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Bridge, "Linux bridge, veths"),
    (Way::Taps, "two taps, a program"),
    (Way::TapsLinear, "the same, linearized"),
    (Way::Packet, "two packet ports on veths, a program"),
];

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!(
        "iperf3 TCP, MTU {}, {} s, one flow; Gbit/s: median (least .. most)\n",
        args.mtu, args.seconds
    );
    let mut figures = vec![Vec::new(); WAYS.len()];
    for _ in 0..args.rounds {
        for ((way, _), figures) in WAYS.iter().zip(&mut figures) {
            figures.push(measure(*way, &args)?);
        }
    }
    let (bridge, ..) = median(&figures[0]);
    for ((_, name), figures) in WAYS.iter().zip(&figures) {
        let (rate, least, most) = median(figures);
        println!("  {name:38} {rate:6.2} ({least:.2} .. {most:.2})   {:.2}x", rate / bridge);
    }
    Ok(())
}

/// Joins two hosts and sends; gives Gbit/s.
fn measure(way: Way, args: &Args) -> anyhow::Result<f64> {
    let hosts = [Namespace::new()?, Namespace::new()?];
    let wires = Namespace::new()?;
    // What is opened from now on is there, and its threads.
    wires.enter()?;
    let engine = match way {
        Way::Bridge => {
            wires.run("ip link add br0 type bridge")?;
            wires.run("ip link set br0 up")?;
            for (number, host) in hosts.iter().enumerate() {
                let other = veth(host, &wires, number, args.mtu)?;
                wires.run(&format!("ip link set {other} master br0"))?;
            }
            None
        }
        _ => Some(join(way, &hosts, &wires, args.mtu)?),
    };
    for (number, host) in hosts.iter().enumerate() {
        host.run(&format!("ip addr add 10.0.0.{}/24 dev h{number}", number + 1))?;
    }
    let _server = hosts[1].start("iperf3 -s")?;
    let end = Instant::now() + Duration::from_secs(5);
    while !hosts[1].run("ss -Hltn sport = :5201")?.contains("5201") {
        ensure!(Instant::now() < end, "iperf3 does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = hosts[0].run(&format!("iperf3 -J -c 10.0.0.2 -t {}", args.seconds))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    drop(engine);
    Ok(rate.context("iperf3 reports a rate")? / 1e9)
}

/// Two ports whose frames go to each other; a program judges what comes from the first.
fn join(way: Way, hosts: &[Namespace; 2], wires: &Namespace, mtu: u32) -> anyhow::Result<Engine> {
    let engine = Engine::start(&Options::default())?;
    let mut ports: Vec<PortId> = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let options = PortOptions::new(&format!("p{number}"));
        let port = if way == Way::Packet {
            let name = veth(host, wires, number, mtu)?;
            engine.add_port(options, Box::new(Packet::new(&packet::Options::new(&name))?))?
        } else {
            let name = format!("h{number}");
            let tap = tap::Options { mtu, netns: Some(host.path()), ..tap::Options::new(&name) };
            engine.add_port(options, Box::new(Tap::new(&tap)?))?
        };
        ports.push(port);
    }
    let program = load(small::returns(2), 1)?;
    engine.change(|config| {
        for (number, &port) in ports.iter().enumerate() {
            config.set_upper(port, UpperName::Named(format!("p{}", 1 - number)))?;
            config.set_linearize(port, way == Way::TapsLinear)?;
        }
        attach(config, ports[0], std::slice::from_ref(&program), 1, 0)
    })?;
    Ok(engine)
}

/// A veth from a host to the middle; gives the name of the end there.
fn veth(host: &Namespace, wires: &Namespace, number: usize, mtu: u32) -> anyhow::Result<String> {
    let other = format!("w{number}");
    host.run(&format!(
        "ip link add h{number} mtu {mtu} type veth peer name {other} mtu {mtu} netns {}",
        wires.path()
    ))?;
    host.run(&format!("ip link set h{number} up"))?;
    wires.run(&format!("ip link set {other} up"))?;
    Ok(other)
}
