//! DPDK's testpmd on the same veths.

use std::time::{Duration, Instant};

use towpath_bench::testpmd::Testpmd;

use crate::sides::Case;
use towpath_bench::world::WORKER_CPU;

/// Its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `net_af_xdp`, which on a veth copies; `busy_budget` 0 is without busy polling.
    AfXdp { busy_budget: Option<u32> },
    /// `net_af_packet`.
    AfPacket,
}

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Driver::AfXdp { busy_budget: None } => "testpmd af_xdp",
            Driver::AfXdp { .. } => "testpmd af_xdp, budget 0",
            Driver::AfPacket => "testpmd af_packet",
        }
    }

    fn device(self, number: usize, interface: &str) -> String {
        match self {
            Driver::AfXdp { busy_budget: None } => {
                format!("net_af_xdp{number},iface={interface},force_copy=1")
            }
            Driver::AfXdp { busy_budget: Some(budget) } => {
                format!("net_af_xdp{number},iface={interface},force_copy=1,busy_budget={budget}")
            }
            Driver::AfPacket => format!("net_af_packet{number},iface={interface}"),
        }
    }
}

/// Starts it and its forwarding.
pub(crate) fn start(driver: Driver, case: Case) -> anyhow::Result<Testpmd> {
    let mut devices = vec![driver.device(0, "near")];
    if case == Case::Redirect {
        devices.push(driver.device(1, "out"));
    }
    let forward = match case {
        Case::Drop => "--forward-mode=rxonly",
        Case::Tx => "--forward-mode=macswap",
        Case::Redirect => "--forward-mode=io",
    };
    let mut testpmd = Testpmd::start(WORKER_CPU, &devices, &[forward])?;
    testpmd.say("start")?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(testpmd)
}

/// Frames a second that its first port receives.
pub(crate) fn receive_rate(testpmd: &mut Testpmd, window: Duration) -> anyhow::Result<f64> {
    std::thread::sleep(Duration::from_millis(200));
    let before = testpmd.received()?;
    let start = Instant::now();
    std::thread::sleep(window);
    let packets = testpmd.received()? - before;
    let elapsed = start.elapsed();
    Ok(packets as f64 / elapsed.as_secs_f64())
}
