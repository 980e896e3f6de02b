//! Who is compared, and what each is asked to do.

use std::time::Duration;

use towpath_bench::testpmd::Testpmd;
use towpath_bench::{attach, load, received as engine_received};
use towpath_bpf::program::Linked;
use towpath_engine::port::Device;
use towpath_engine::{Engine, Mode, Options, PortOptions, WorkerOptions};
use towpath_kernel::AttachMode;
use towpath_ports::afxdp::{self, Afxdp, Attach, Transmit};
use towpath_ports::packet::{self, Packet};
use towpath_workload::small;

use crate::testpmd::{self, Driver};
use towpath_bench::world::{WORKER_CPU, World, index, rate, received};

/// What is done to each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Drop,
    Tx,
    Redirect,
}

impl Case {
    pub(crate) const ALL: [Case; 3] = [Case::Drop, Case::Tx, Case::Redirect];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Drop => "drop",
            Case::Tx => "tx",
            Case::Redirect => "redirect",
        }
    }

    /// The program, the same for the kernel and for us.
    fn program(self) -> anyhow::Result<Linked> {
        Ok(match self {
            Case::Drop => small::returns(1),
            Case::Tx => small::reflect(),
            Case::Redirect => small::redirect(index("out")?),
        })
    }

    /// Where its frames end, to be counted there.
    fn end(self) -> &'static str {
        match self {
            Case::Drop => "near",
            Case::Tx => "far",
            Case::Redirect => "end",
        }
    }
}

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Kernel(AttachMode),
    Afxdp { attach: Attach, mode: Mode, busy_poll: bool, transmit: Transmit },
    Packet,
    Testpmd(Driver),
}

impl Side {
    pub(crate) fn all(_case: Case) -> impl Iterator<Item = Side> {
        let transmit = Transmit::Auto;
        let afxdp = |attach, mode, busy_poll| Side::Afxdp { attach, mode, busy_poll, transmit };
        [
            Side::Kernel(AttachMode::Native),
            Side::Kernel(AttachMode::Generic),
            afxdp(Attach::Native, Mode::Adaptive, false),
            Side::Afxdp {
                attach: Attach::Native,
                mode: Mode::Adaptive,
                busy_poll: false,
                transmit: Transmit::Socket,
            },
            afxdp(Attach::Native, Mode::Busy, false),
            afxdp(Attach::Native, Mode::Busy, true),
            afxdp(Attach::Generic, Mode::Adaptive, false),
            Side::Packet,
            Side::Testpmd(Driver::AfXdp { busy_budget: None }),
            Side::Testpmd(Driver::AfXdp { busy_budget: Some(0) }),
            Side::Testpmd(Driver::AfPacket),
        ]
        .into_iter()
        .filter(|side| !matches!(side, Side::Testpmd(_) if !Testpmd::is_installed()))
    }

    pub(crate) fn name(self) -> String {
        match self {
            Side::Kernel(AttachMode::Native) => "kernel native".to_owned(),
            Side::Kernel(AttachMode::Generic) => "kernel generic".to_owned(),
            Side::Packet => "packet".to_owned(),
            Side::Afxdp { attach, mode, busy_poll, transmit } => {
                let attach = if attach == Attach::Generic { "generic" } else { "native" };
                let mode = if mode == Mode::Busy { ", busy" } else { "" };
                let poll = if busy_poll { " poll" } else { "" };
                let socket = if transmit == Transmit::Socket { ", by socket" } else { "" };
                format!("afxdp {attach}{mode}{poll}{socket}")
            }
            Side::Testpmd(driver) => driver.name().to_owned(),
        }
    }

    /// Frames a second that reach their end.
    pub(crate) fn rate(self, case: Case, world: &World, window: Duration) -> anyhow::Result<f64> {
        // A native program at the end: counts as fast as it goes, and makes the end take frames.
        let sink = small::returns(1);
        let ends = ["far", "end"].map(|end| world.attach(end, &sink, AttachMode::Native));
        let _ends = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
        let at_the_end = || received(case.end());
        match self {
            Side::Kernel(mode) => {
                let _out = world.attach("out", &small::returns(2), AttachMode::Native)?;
                let _link = world.attach("near", &case.program()?, mode)?;
                let _sender = world.sender()?;
                rate(window, at_the_end)
            }
            Side::Testpmd(driver) => {
                let mut testpmd = testpmd::start(driver, case)?;
                let _sender = world.sender()?;
                match case {
                    Case::Drop => testpmd::receive_rate(&mut testpmd, window),
                    _ => rate(window, at_the_end),
                }
            }
            Side::Afxdp { attach, mode, busy_poll, transmit } => {
                let busy_poll = busy_poll.then_some(20);
                let open = |name: &str| -> anyhow::Result<Box<dyn Device>> {
                    let usual = afxdp::Options::new(name);
                    let options = afxdp::Options { attach, busy_poll, transmit, ..usual };
                    Ok(Box::new(Afxdp::new(&options)?))
                };
                ours(case, open, mode, world, window)
            }
            Side::Packet => {
                let open = |name: &str| -> anyhow::Result<Box<dyn Device>> {
                    Ok(Box::new(Packet::new(&packet::Options::new(name))?))
                };
                ours(case, open, Mode::Adaptive, world, window)
            }
        }
    }
}

fn ours(
    case: Case,
    open: impl Fn(&str) -> anyhow::Result<Box<dyn Device>>,
    mode: Mode,
    world: &World,
    window: Duration,
) -> anyhow::Result<f64> {
    let workers = vec![WorkerOptions { cpu: Some(WORKER_CPU), mode, ..WorkerOptions::default() }];
    let engine = Engine::start(&Options { workers, ..Options::default() })?;
    let near = engine.add_port(PortOptions::new("near"), open("near")?)?;
    if case == Case::Redirect {
        engine.add_port(PortOptions::new("out"), open("out")?)?;
    }
    let program = load(case.program()?, 1)?;
    engine.change(|config| attach(config, near, &[program], 1, 0))?;
    let sender = world.sender()?;
    let rate = match case {
        Case::Drop => rate(window, || Ok(engine_received(&engine, near))),
        _ => rate(window, || received(case.end())),
    };
    drop(sender);
    engine.stop();
    let conservation = engine.conservation();
    anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
    rate
}
