//! The guest that a user could run instead: DPDK's testpmd over its virtio driver, which receives
//! and drops (`rxonly`) or sends back with addresses swapped (`macswap`).

use std::path::Path;
use std::time::{Duration, Instant};

use towpath_bench::testpmd::Testpmd;

use crate::{Scene, Verdict, guest};

/// Frames a second that it drops or sends back.
pub(crate) fn measure(is_bridged: bool, verdict: Verdict, window: Duration) -> anyhow::Result<f64> {
    let scene = Scene::new(is_bridged)?;
    let mut testpmd = started(&scene.path, verdict)?;
    scene.start()?;
    std::thread::sleep(window / 4);
    let mut count = || match verdict {
        Verdict::Tx => Ok(scene.counted().0),
        Verdict::Drop => testpmd.received(),
    };
    let (before, start) = (count()?, Instant::now());
    std::thread::sleep(window);
    let (after, time) = (count()?, start.elapsed());
    drop(testpmd);
    scene.engine.stop();
    let conservation = scene.engine.conservation();
    anyhow::ensure!(conservation.missing() == 0, "{conservation:?}");
    Ok((after - before) as f64 / time.as_secs_f64())
}

/// It runs on the second core, and has sent a little, so that a bridge knows where it is.
fn started(path: &Path, verdict: Verdict) -> anyhow::Result<Testpmd> {
    let mac = guest::ADDRESS.map(|byte| format!("{byte:02x}")).join(":");
    let device =
        format!("net_virtio_user0,path={},queues=1,queue_size=1024,mac={mac}", path.display());
    let mut testpmd = Testpmd::start(GUEST_CPU, &[device], &["--forward-mode=txonly"])?;
    testpmd.say("start")?;
    std::thread::sleep(SETTLE);
    testpmd.say("stop")?;
    testpmd.wait_for("Done.", Duration::from_secs(5))?;
    let mode = match verdict {
        Verdict::Drop => "rxonly",
        Verdict::Tx => "macswap",
    };
    testpmd.say(&format!("set fwd {mode}"))?;
    testpmd.say("start")?;
    std::thread::sleep(SETTLE);
    Ok(testpmd)
}

const GUEST_CPU: usize = 1;
const SETTLE: Duration = Duration::from_millis(300);
