//! Stores outside the stack: to packets, and to values that several workers change.

use towpath_bpf::map::MapType;
use towpath_maps::Map;

use super::Sanitizer;
use super::finding::Kind;
use crate::run::Run;

impl Sanitizer {
    /// A store to a packet, a value of a map, or other memory; the stored number was computed from
    /// what was loaded at `loaded_from` (0: from something else).
    pub(super) fn stored_elsewhere(
        &mut self,
        run: &Run<'_>,
        (addr, len): (u64, usize),
        loaded_from: u64,
    ) {
        if run.frame.is_in_head(addr) {
            self.packet_writer = self.place;
            return;
        }
        self.habits.changed();
        if loaded_from == addr {
            if len < COUNTER_BYTES {
                self.note_counter(run, addr, len);
            }
            if self.locks == 0 {
                self.read_and_written(run, addr);
            }
        }
    }

    /// Reports a read-modify-write: if another worker writes in between, its update is lost.
    #[cold]
    fn read_and_written(&mut self, run: &Run<'_>, addr: u64) {
        let Some(map) = run.maps.own_at(addr).filter(|map| is_shared(map)) else { return };
        if self.is_known(Kind::LostUpdate, 0) {
            return;
        }
        let message = format!(
            "a value of map {}, which all CPUs share, is read, changed and written back: another \
             CPU's write in between is lost",
            map.name()
        );
        let advice = "use __sync_fetch_and_add, a bpf_spin_lock in the value, or a per-CPU map; \
                      none is needed if packets with this key arrive at one CPU only";
        self.found(Kind::LostUpdate, message, Vec::new(), advice.to_owned());
    }
}

/// Counters of this many bytes never wrap.
pub(super) const COUNTER_BYTES: usize = 8;

fn is_shared(map: &Map) -> bool {
    let is_of_values = matches!(map.kind(), MapType::Array | MapType::Hash | MapType::LruHash);
    is_of_values && !map.is_percpu()
}
