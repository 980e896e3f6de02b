//! What is measured on our side: generators, alone or in a bond, and a program.

use std::time::Duration;

use towpath_bench::{attach, load, ns_per_frame};
use towpath_bpf::program::Linked;
use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};
use towpath_engine::{Engine, Mode, Options, PortId, PortOptions, WorkerOptions};
use towpath_ports::generator::{self, Change, Field, Generator};
use towpath_workload::small;

/// What the program does with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// `XDP_DROP`.
    Drop,
    /// Swaps addresses, `XDP_TX`.
    Tx,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Drop => "XDP_DROP",
            Action::Tx => "XDP_TX",
        }
    }

    fn program(self) -> Linked {
        match self {
            Action::Drop => small::returns(1),
            Action::Tx => small::reflect(),
        }
    }
}

/// One thing to measure.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) action: Action,
    /// Every frame has another source address.
    pub(crate) has_many_flows: bool,
    /// Ports that make frames.
    pub(crate) ports: usize,
    /// The bond they are in, if they are.
    pub(crate) bond: Option<BondOptions>,
    /// Workers. One port has a queue for each; several have a worker each, as far as there are any.
    pub(crate) workers: usize,
}

impl Setup {
    /// A worker that reflects frames of many flows.
    pub(crate) fn reflecting(ports: usize, bond: Option<BondOptions>) -> Setup {
        Setup { action: Action::Tx, has_many_flows: true, ports, bond, workers: 1 }
    }

    /// Nanoseconds of processor time for each frame.
    pub(crate) fn measure(&self, window: Duration) -> anyhow::Result<f64> {
        let engine = start(self.workers)?;
        let ports = self.build(&engine)?;
        std::thread::sleep(Duration::from_millis(20));
        let ns = ns_per_frame(&engine, &ports, window)?;
        engine.stop();
        let conservation = engine.conservation();
        anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
        Ok(ns)
    }

    fn build(&self, engine: &Engine) -> anyhow::Result<Vec<PortId>> {
        let program = load(self.action.program(), self.workers)?;
        let mut ports = Vec::new();
        for index in 0..self.ports {
            let options = PortOptions {
                // Polled by one worker each, or by all.
                workers: if self.ports > 1 { vec![index % self.workers] } else { Vec::new() },
                up: false,
                ..PortOptions::new(&format!("gen{index}"))
            };
            ports.push(engine.add_port(options, Box::new(self.generator()?))?);
        }
        engine.change(|config| {
            let mut carrier = ports[0];
            if let Some(options) = &self.bond {
                let bond = PortOptions::new("bond0");
                carrier = config.add_bond(bond, options.clone(), None)?;
                for &port in &ports {
                    config.enslave(carrier, port)?;
                }
            }
            attach(config, carrier, std::slice::from_ref(&program), self.workers, 0)?;
            ports.iter().try_for_each(|&port| config.set_up(port, true))
        })?;
        Ok(ports)
    }

    fn generator(&self) -> anyhow::Result<Generator> {
        let queues = if self.ports > 1 { 1 } else { self.workers as u32 };
        let flows = Field {
            offset: SOURCE_ADDRESS,
            width: 4,
            min: 0x0a01_0000,
            max: 0x0a01_ffff,
            change: Change::Count,
            checksum: None,
        };
        let fields = if self.has_many_flows { vec![flows] } else { Vec::new() };
        let options = generator::Options { queues, fields, ..generator::Options::new(packet()) };
        Ok(Generator::new(options)?)
    }
}

/// A bond of this mode and policy.
pub(crate) fn bond(mode: BondMode, policy: XmitPolicy) -> BondOptions {
    BondOptions { mode, policy, ..BondOptions::default() }
}

fn start(workers: usize) -> anyhow::Result<Engine> {
    let worker =
        |cpu| WorkerOptions { cpu: Some(cpu), mode: Mode::Busy, ..WorkerOptions::default() };
    // The last core first: the one that most machines interrupt least.
    let last = last_cpu()?;
    let workers = (0..workers).map(|number| worker(last.saturating_sub(number)));
    Ok(Engine::start(&Options { workers: workers.collect(), frames: 8192 })?)
}

/// The last core.
pub(crate) fn last_cpu() -> anyhow::Result<usize> {
    Ok(std::thread::available_parallelism()?.get() - 1)
}

/// 64 bytes: Ethernet, IPv4, UDP.
fn packet() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.extend([0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1]);
    packet.extend([0x10, 0, 0x10, 1, 0, 30, 0, 0]);
    packet.resize(64, 0);
    packet
}

/// Where a packet's IPv4 source address is.
const SOURCE_ADDRESS: usize = 26;
