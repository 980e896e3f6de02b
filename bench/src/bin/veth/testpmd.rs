//! DPDK's testpmd on the same veths.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::sides::Case;
use crate::world::WORKER_CPU;

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

    pub(crate) fn is_installed(self) -> bool {
        Command::new("dpdk-testpmd").arg("--version").output().is_ok()
    }

    fn device(self, number: usize, interface: &str) -> String {
        match self {
            Driver::AfXdp { busy_budget: None } => {
                format!("--vdev=net_af_xdp{number},iface={interface},force_copy=1")
            }
            Driver::AfXdp { busy_budget: Some(budget) } => format!(
                "--vdev=net_af_xdp{number},iface={interface},force_copy=1,busy_budget={budget}"
            ),
            Driver::AfPacket => format!("--vdev=net_af_packet{number},iface={interface}"),
        }
    }
}

/// A running testpmd; ends when dropped.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
}

impl Testpmd {
    /// Starts it and its forwarding.
    pub(crate) fn start(driver: Driver, case: Case) -> anyhow::Result<Testpmd> {
        let mut command = Command::new("stdbuf");
        // Into a pipe it would keep what it prints until there is a lot of it.
        command.args(["-oL", "dpdk-testpmd"]);
        command.arg("--lcores").arg(format!("(0,1)@{WORKER_CPU}"));
        command.args(["--main-lcore", "0", "-n", "1", "--no-pci", "--no-huge", "-m", "256"]);
        command.args(["--file-prefix", "afxdp-bench", "--log-level", "error"]);
        command.arg(driver.device(0, "near"));
        if case == Case::Redirect {
            command.arg(driver.device(1, "out"));
        }
        let forward = match case {
            Case::Drop => "rxonly",
            Case::Tx => "macswap",
            Case::Redirect => "io",
        };
        command.args(["--", "-i", "--nb-cores=1", "--rxd=1024", "--txd=1024", "--burst=64"]);
        command.args(["--total-num-mbufs=16384", "--no-mlockall"]);
        command.arg(format!("--forward-mode={forward}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("dpdk-testpmd")?;
        let input = child.stdin.take().context("its input")?;
        let mut pipe = child.stdout.take().context("its output")?;
        let output = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut testpmd = Testpmd { child, input, output };
        testpmd.wait_for("testpmd>", Duration::from_secs(20))?;
        testpmd.say("start")?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(testpmd)
    }

    /// Frames a second that its first port receives.
    pub(crate) fn receive_rate(&mut self, window: Duration) -> anyhow::Result<f64> {
        std::thread::sleep(Duration::from_millis(200));
        self.say("clear port stats 0")?;
        let start = Instant::now();
        std::thread::sleep(window);
        self.take_output();
        self.say("show port stats 0")?;
        let elapsed = start.elapsed();
        let text = self.wait_for("RX-bytes", Duration::from_secs(5))?;
        let number = text.split("RX-packets:").nth(1).and_then(|s| s.split_whitespace().next());
        let packets: u64 = number.context("RX-packets of testpmd")?.parse()?;
        Ok(packets as f64 / elapsed.as_secs_f64())
    }

    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").context("dpdk-testpmd ended")
    }

    fn take_output(&self) -> String {
        std::mem::take(&mut self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wait_for(&mut self, what: &str, timeout: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + timeout;
        loop {
            let text = self.output.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if text.contains(what) {
                return Ok(text);
            }
            anyhow::ensure!(Instant::now() < until, "dpdk-testpmd does not say {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ended = self.say("quit");
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _killed = self.child.kill();
        let _status = self.child.wait();
    }
}
