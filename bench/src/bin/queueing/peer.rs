//! The kernel's schedulers on a veth, as far as this kernel has them.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A veth whose other end is in a namespace of its own; gone when this is dropped.
pub(crate) struct Veth;

impl Veth {
    /// Needs root and `ip`.
    pub(crate) fn new() -> anyhow::Result<Veth> {
        run(&format!("ip netns add {SPACE}"))?;
        let veth = Veth;
        for command in [
            format!("ip link add {NEAR} type veth peer name {FAR} netns {SPACE}"),
            format!("ip addr add 10.213.7.1/24 dev {NEAR}"),
            format!("ip link set {NEAR} up"),
            format!("ip -n {SPACE} addr add {PEER}/24 dev {FAR}"),
            format!("ip -n {SPACE} link set {FAR} up"),
        ] {
            run(&command)?;
        }
        Ok(veth)
    }

    /// Whether the kernel has a queueing discipline.
    pub(crate) fn has(&self, discipline: &str) -> bool {
        run(&format!("tc qdisc replace dev {NEAR} root {discipline}")).is_ok()
    }

    /// Bytes a second that `htb` sends of 1000-byte packets at this rate, for so long.
    pub(crate) fn htb(&self, rate: u64, seconds: f64) -> anyhow::Result<f64> {
        let _none = run(&format!("tc qdisc del dev {NEAR} root"));
        run(&format!("tc qdisc add dev {NEAR} root handle 1: htb default 1"))?;
        run(&format!(
            "tc class add dev {NEAR} parent 1: classid 1:1 htb rate {}bit burst 2000 cburst 2000",
            rate * 8
        ))?;
        let socket = UdpSocket::bind("10.213.7.1:0")?;
        socket.connect((PEER, 9))?;
        socket.set_write_timeout(Some(Duration::from_millis(50)))?;
        let send_until = |end: Instant| {
            while Instant::now() < end {
                // There is no listener, so the refusal is expected.
                let _refused = socket.send(&[0; 958]);
            }
        };
        send_until(Instant::now() + Duration::from_millis(500));
        let (begin, before) = (Instant::now(), sent_bytes()?);
        send_until(begin + Duration::from_secs_f64(seconds));
        Ok((sent_bytes()? - before) as f64 / begin.elapsed().as_secs_f64())
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _gone = run(&format!("ip link del {NEAR}"));
        let _gone = run(&format!("ip netns del {SPACE}"));
    }
}

fn sent_bytes() -> anyhow::Result<u64> {
    let path = format!("/sys/class/net/{NEAR}/statistics/tx_bytes");
    Ok(std::fs::read_to_string(path)?.trim().parse()?)
}

fn run(command: &str) -> anyhow::Result<()> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output();
    let output = output.with_context(|| command.to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    anyhow::ensure!(output.status.success(), "{command}: {said}");
    Ok(())
}

const SPACE: &str = "towpath-queueing";
const NEAR: &str = "tpqueue0";
const FAR: &str = "tpqueue1";
const PEER: &str = "10.213.7.2";
