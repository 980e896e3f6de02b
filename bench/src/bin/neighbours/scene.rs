//! Four machines at one worker: what the first two send goes to each other, and so with the last
//! two. The first one attacks, the third one's frames are counted at the fourth.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_workload::virtio::{Guest, GuestOptions};

/// The scene, its drivers up.
pub(crate) struct Scene {
    pub(crate) live: Live,
    pub(crate) folder: PathBuf,
    machines: Vec<Guest>,
}

/// The neighbour's frames: how many were sent, and how many of them arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    sent: u64,
    arrived: u64,
}

impl Kept {
    pub(crate) fn share(self) -> f64 {
        self.arrived as f64 / self.sent.max(1) as f64
    }
}

impl Scene {
    pub(crate) fn new() -> anyhow::Result<Scene> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-neighbours-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        let (live, state) = start(&folder)?;
        let mut scene = Scene { live, folder, machines: Vec::new() };
        for port in &state.ports {
            let machine = scene.machine(&port.name)?;
            scene.machines.push(machine);
        }
        Ok(scene)
    }

    fn machine(&self, port: &str) -> anyhow::Result<Guest> {
        let options = GuestOptions { size: 256, ..GuestOptions::default() };
        let guest = Guest::connect(&self.folder.join(port), options)?;
        let id = self.live.ports()[port].id;
        let end = Instant::now() + Duration::from_secs(10);
        let is_up = || {
            let engine = self.live.engine();
            engine.read(|_, all| all.port(id).is_some_and(|slot| slot.opened.device.link()))
        };
        while !is_up() {
            ensure!(Instant::now() < end, "{port}: the driver does not come up");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(guest)
    }

    pub(crate) fn attacker(&mut self) -> &mut Guest {
        &mut self.machines[0]
    }

    /// The second one floods the first, and the third one sends at its pace.
    pub(crate) fn measure(
        &mut self,
        length: Duration,
        per_ms: usize,
        flood_per_ms: usize,
    ) -> anyhow::Result<Kept> {
        let [attacker, flood, sender, receiver] = &mut self.machines[..] else {
            bail!("four machines are needed");
        };
        let packet = packet();
        let (start, mut due, mut arrived) = (Instant::now(), 0, 0);
        while start.elapsed() < length {
            while due < start.elapsed().as_millis() {
                due += 1;
                // A full ring loses, as a wire does.
                for (machine, count) in [(&mut *flood, flood_per_ms), (&mut *sender, per_ms)] {
                    for _ in 0..count {
                        let _has_room = machine.send(0, &PLAIN, &packet);
                    }
                }
            }
            while receiver.receive(0).is_some() {
                arrived += 1;
            }
            while attacker.receive(0).is_some() {}
            std::thread::sleep(Duration::from_micros(200));
        }
        let last = Instant::now() + Duration::from_millis(100);
        while Instant::now() < last {
            while receiver.receive(0).is_some() {
                arrived += 1;
            }
        }
        Ok(Kept { sent: due as u64 * per_ms as u64, arrived })
    }

    /// Stops; gives how long that took.
    pub(crate) fn stop(mut self) -> Duration {
        let start = Instant::now();
        self.live.stop();
        let stopped = start.elapsed();
        let _gone = std::fs::remove_dir_all(&self.folder);
        stopped
    }
}

fn start(folder: &Path) -> anyhow::Result<(Live, State)> {
    let at = folder.display();
    let port = |number: usize, keys: &str| {
        format!(
            "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\npath = \"{at}/vm{number}\"\n\
             upper = \"vm{}\"\n{keys}\n",
            number ^ 1
        )
    };
    let offload = format!("[port.offload]\npath = \"{at}/offload\"");
    let ports = [port(0, &offload), port(1, ""), port(2, ""), port(3, "")].concat();
    let objects = Arc::new(ObjectFiles::default());
    let text = format!("[[worker]]\n{ports}");
    let loaded = parse(&text, Path::new("scene.toml"), folder, &objects).context("its text")?;
    let mut live =
        Live::start(&loaded.state, objects, Arc::default()).map_err(anyhow::Error::msg)?;
    let report = live.reconcile(&loaded.state);
    ensure!(report.failures.is_empty(), "{report:?}");
    Ok((live, loaded.state))
}

fn packet() -> [u8; 60] {
    let mut packet = [0; 60];
    packet[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet
}

const PLAIN: [u8; 12] = [0; 12];
