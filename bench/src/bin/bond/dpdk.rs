//! DPDK's `net_bond` over two null devices, in testpmd.

use std::time::Duration;

use anyhow::Context as _;
use towpath_bench::testpmd::Testpmd;

/// A testpmd that makes frames of 64 bytes, of many flows, and sends them to one port.
pub(crate) struct Sender(Testpmd);

/// A bond's mode and hash policy as testpmd has them.
pub(crate) type Kind = (u8, Option<&'static str>);

impl Sender {
    /// To a bond of two, or to a null device.
    pub(crate) fn start(cpu: usize, kind: Option<Kind>) -> anyhow::Result<Sender> {
        let devices = ["net_null0,size=64", "net_null1,size=64"].map(str::to_owned);
        let options = ["--forward-mode=txonly", "--txonly-multi-flow"];
        let mut testpmd = Testpmd::start(cpu, &devices, &options)?;
        let port = match kind {
            None => 0,
            Some((mode, policy)) => {
                // As options of `--vdev`, its members would never count as started.
                testpmd.say("port stop all")?;
                testpmd.say(&format!("create bonded device {mode} 0"))?;
                testpmd.say("add bonding slave 0 2")?;
                testpmd.say("add bonding slave 1 2")?;
                if let Some(policy) = policy {
                    testpmd.say(&format!("set bonding balance_xmit_policy 2 {policy}"))?;
                }
                testpmd.say("port start 2")?;
                2
            }
        };
        testpmd.say(&format!("set portlist {port}"))?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Sender(testpmd))
    }

    /// Nanoseconds of processor time for each frame, from when it is made.
    pub(crate) fn measure(&mut self, window: Duration) -> anyhow::Result<f64> {
        let before = self.0.cpu_ns()?;
        self.0.take_output();
        self.0.say("start")?;
        std::thread::sleep(window);
        self.0.say("stop")?;
        let text = self.0.wait_for("Done.", Duration::from_secs(5))?;
        let total = text.rsplit("TX-packets:").next().and_then(|s| s.split_whitespace().next());
        let packets: u64 = total.context("TX-packets of testpmd")?.parse()?;
        anyhow::ensure!(packets > 0, "dpdk-testpmd sends nothing:\n{text}");
        Ok((self.0.cpu_ns()? - before) as f64 / packets as f64)
    }
}
