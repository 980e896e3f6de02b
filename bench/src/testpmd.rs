//! DPDK's testpmd as a process that is told what to do.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;

/// A running testpmd; ends when dropped.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<String>>,
}

impl Testpmd {
    /// Whether there is one.
    pub fn is_installed() -> bool {
        Command::new("dpdk-testpmd").arg("--version").output().is_ok()
    }

    /// Starts one whose forwarding and control share a CPU, with these devices (`--vdev`) and
    /// further options of testpmd. It does not forward yet.
    pub fn start(cpu: usize, devices: &[String], options: &[&str]) -> anyhow::Result<Testpmd> {
        let mut command = Command::new("stdbuf");
        // Into a pipe it would keep what it prints until there is a lot of it.
        command.args(["-oL", "dpdk-testpmd", "--lcores"]).arg(format!("(0,1)@{cpu}"));
        command.args(["--main-lcore", "0", "-n", "1", "--no-pci", "--no-huge", "-m", "256"]);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("towpath-bench-{}-{number}", std::process::id());
        command.args(["--file-prefix", &prefix]);
        command.args(["--no-telemetry", "--log-level", "error"]);
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        command.args(["--", "-i", "--nb-cores=1", "--rxd=1024", "--txd=1024", "--burst=64"]);
        command.args(["--total-num-mbufs=16384", "--no-mlockall"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("dpdk-testpmd")?;
        let input = child.stdin.take().context("its input")?;
        let mut pipe = child.stdout.take().context("its output")?;
        let output = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                let mut text = text.lock();
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut testpmd = Testpmd { child, input, output };
        testpmd.wait_for("testpmd>", Duration::from_secs(20))?;
        Ok(testpmd)
    }

    /// Gives it a command.
    pub fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").context("dpdk-testpmd ended")
    }

    /// What it printed since the last call.
    pub fn take_output(&self) -> String {
        std::mem::take(&mut self.output.lock())
    }

    /// Waits until it has printed this; gives everything since the last [`Testpmd::take_output`].
    pub fn wait_for(&mut self, what: &str, timeout: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + timeout;
        loop {
            let text = self.output.lock().clone();
            if text.contains(what) {
                return Ok(text);
            }
            anyhow::ensure!(Instant::now() < until, "dpdk-testpmd does not say {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Frames that its first port received and sent so far.
    pub fn packets(&mut self) -> anyhow::Result<(u64, u64)> {
        self.take_output();
        self.say("show port stats 0")?;
        let text = self.wait_for("Tx-pps", Duration::from_secs(5))?;
        let number = |name: &str| -> anyhow::Result<u64> {
            let number = text.split(name).nth(1).and_then(|s| s.split_whitespace().next());
            Ok(number.with_context(|| format!("{name} of testpmd"))?.parse()?)
        };
        Ok((number("RX-packets:")?, number("TX-packets:")?))
    }

    /// Frames that its first port received so far.
    pub fn received(&mut self) -> anyhow::Result<u64> {
        Ok(self.packets()?.0)
    }

    /// Processor time of its forwarding thread, in nanoseconds.
    pub fn cpu_ns(&self) -> anyhow::Result<u64> {
        crate::threads_cpu_ns(&format!("/proc/{}/task", self.child.id()), "rte-worker")
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
