//! An edge that records its calls.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use towpath_bpf::program::MapType;
use towpath_guest::{Edge, Target};
use towpath_guest_client::wire::{Counters, Direction};
use towpath_xdp::Program;

#[derive(Debug, Default)]
pub(crate) struct FakeEdge {
    running: Mutex<[Option<String>; 2]>,
    restarts: AtomicU64,
    pub(crate) told: Mutex<Vec<String>>,
}

impl FakeEdge {
    pub(crate) fn running(&self, direction: Direction) -> Option<String> {
        let running = self.running.lock();
        running[direction as usize - 1].clone()
    }

    pub(crate) fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Edge for FakeEdge {
    fn set_program(&self, direction: Direction, program: Option<&Program>) -> Result<(), String> {
        let mut running = self.running.lock();
        running[direction as usize - 1] = program.map(|program| {
            let maps = program.maps().maps();
            let leads_away = maps.iter().any(|map| map.kind() == MapType::ProgArray);
            assert!(leads_away || program.checks_accesses(), "compiled as a guest's");
            assert!(program.machine_code().is_some());
            program.name().to_owned()
        });
        Ok(())
    }

    fn counters(&self, _direction: Direction) -> Option<Counters> {
        Some(Counters { runs: 7, ..Counters::default() })
    }

    fn targets(&self) -> Vec<Target> {
        let (name, mac) = ("uplink".to_owned(), [2, 0, 0, 0, 0, 9]);
        vec![Target { ifindex: 1, name, mtu: 1500, mac, is_up: true }]
    }

    fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    fn tell(&self, text: &str) {
        self.told.lock().push(text.to_owned());
    }
}
