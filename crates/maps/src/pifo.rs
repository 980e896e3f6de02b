//! PIFO_GENERIC and PIFO_XDP: queues that give out the lowest rank first.
//!
//! No kernel has them; their counterpart is `kernel/bpf/pifomap.c` of the proposal that
//! [`crate::ranks`] names.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use towpath_bpf::{Errno, MapDef};

use crate::memory::Region;
use crate::ranks::Ranks;
use crate::store::Store;
use crate::user::Value;

/// PIFO_GENERIC: values by rank. Programs push with the rank in place of flags.
#[doc(alias = "BPF_MAP_TYPE_PIFO_GENERIC")]
pub(crate) struct PifoGeneric {
    region: Region,
    value_size: usize,
    stride: usize,
    ranks: Mutex<Ranks>,
}

impl PifoGeneric {
    pub(crate) fn new(def: &MapDef) -> Result<Self, Errno> {
        let value_size = def.value_size as usize;
        let stride = value_size.next_multiple_of(8);
        Ok(PifoGeneric {
            region: Region::new(u64::from(def.max_entries) * stride as u64)?,
            value_size,
            stride,
            ranks: Mutex::new(ranks(def)),
        })
    }

    fn next(&self, out: &mut [u8], remove: bool) -> Result<(), Errno> {
        let mut ranks = self.ranks.lock();
        let next = if remove { ranks.pop() } else { ranks.peek() };
        let Some(next) = next else {
            out.fill(0);
            return Err(Errno::ENOENT);
        };
        // Under the lock: afterwards the element may be reused.
        self.region.read(next.element as usize * self.stride, out);
        Ok(())
    }
}

impl Store for PifoGeneric {
    fn push(&self, value: &[u8], rank: u64) -> Result<(), Errno> {
        let mut ranks = self.ranks.lock();
        let element = ranks.push(rank)?;
        self.region.write(element as usize * self.stride, value);
        Ok(())
    }

    fn pop(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.next(out, true)
    }

    fn peek(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.next(out, false)
    }

    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Ok(number(self.ranks.lock().count().into(), self.value_size))
    }

    fn count(&self) -> Option<u64> {
        Some(self.ranks.lock().count().into())
    }
}

/// Packet storage behind a `PIFO_XDP` map; implemented in towpath-xdp.
pub trait Packets: Any + Debug + Send + Sync {
    /// Number of packets.
    fn count(&self) -> u64;
}

/// PIFO_XDP: packets by rank.
#[doc(alias = "BPF_MAP_TYPE_PIFO_XDP")]
#[derive(Debug)]
pub struct PifoXdp {
    capacity: u32,
    range: u32,
    packets: OnceLock<Arc<dyn Packets>>,
}

impl PifoXdp {
    pub(crate) fn new(def: &MapDef) -> PifoXdp {
        let range = def.map_extra as u32;
        PifoXdp { capacity: def.max_entries, range, packets: OnceLock::new() }
    }

    /// Its packets, whose storage `make` creates at the first call; `None` when the storage was
    /// created with another type.
    #[inline]
    pub fn packets<T: Packets>(&self, make: impl FnOnce(Ranks) -> T) -> Option<&T> {
        let packets: &dyn Any = &**self.any(make);
        packets.downcast_ref()
    }

    /// As [`PifoXdp::packets`], with a reference that may outlive the map.
    pub fn shared_packets<T: Packets>(&self, make: impl FnOnce(Ranks) -> T) -> Option<Arc<T>> {
        let packets: Arc<dyn Any + Send + Sync> = Arc::<dyn Packets>::clone(self.any(make));
        packets.downcast().ok()
    }

    #[inline]
    fn any<T: Packets>(&self, make: impl FnOnce(Ranks) -> T) -> &Arc<dyn Packets> {
        let make = || Arc::new(make(Ranks::new(self.capacity, self.range))) as Arc<dyn Packets>;
        self.packets.get_or_init(make)
    }
}

impl Store for PifoXdp {
    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Ok(number(self.count().unwrap_or(0), size_of::<u32>()))
    }

    fn count(&self) -> Option<u64> {
        Some(self.packets.get().map_or(0, |packets| packets.count()))
    }
}

fn ranks(def: &MapDef) -> Ranks {
    Ranks::new(def.max_entries, def.map_extra as u32)
}

/// A number as a value of `size` bytes.
fn number(number: u64, size: usize) -> Value {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(size, 0);
    Value::One(bytes)
}

#[cfg(test)]
mod tests {
    use towpath_bpf::program::MapType;

    use crate::map::{CreateOptions, Map};
    use crate::qsbr::Domain;
    use crate::testing::def;

    use super::*;

    fn create(kind: MapType, value_size: u32, extra: u64) -> Result<Arc<Map>, String> {
        let def = MapDef { map_extra: extra, ..def(kind, 4, value_size, 3, 0) };
        Map::create(&def, &CreateOptions::new(Domain::new(1))).map_err(|error| error.to_string())
    }

    #[test]
    fn the_window_is_a_power_of_two() {
        for kind in [MapType::PifoGeneric, MapType::PifoXdp] {
            for extra in [0, 3, 1 << 32] {
                let error = create(kind, 4, extra).expect_err("it is refused");
                assert!(error.contains("a power of two"), "{error}");
            }
            assert!(create(kind, 4, 1 << 21).expect_err("too many").contains("1048576"));
            create(kind, 4, 1).expect("one rank is enough");
        }
        create(MapType::PifoXdp, 8, 8).expect_err("packets have no value");
    }

    #[test]
    fn values_come_by_rank() {
        let map = create(MapType::PifoGeneric, 8, 16).expect("a good definition");
        let push = |value: u64, rank| map.push(&value.to_le_bytes(), rank);
        let pop = || {
            let mut out = [1; 8];
            map.pop(&mut out).map(|()| u64::from_le_bytes(out)).map_err(|errno| (errno, out))
        };
        assert_eq!(pop(), Err((Errno::ENOENT, [0; 8])));
        assert_eq!((push(7, 9), push(8, 2), push(9, 9)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(push(10, 0), Err(Errno::EOVERFLOW));
        let count = map.user().lookup(&[0; 4], 0).expect("users see how many there are");
        assert_eq!(count.bytes(), 3u64.to_le_bytes());
        let mut next = [0; 8];
        assert_eq!((map.peek(&mut next), u64::from_le_bytes(next)), (Ok(()), 8));
        assert_eq!((pop(), pop(), pop()), (Ok(8), Ok(7), Ok(9)));
    }

    #[test]
    fn users_only_count() {
        let map = create(MapType::PifoXdp, 4, 16).expect("a good definition");
        let user = map.user();
        assert_eq!(user.lookup(&[0; 4], 0), Ok(Value::One(vec![0; 4])));
        let value = Value::One(vec![0; 4]);
        assert_eq!(user.update(&[0; 4], &value, 0), Err(Errno::EINVAL));
        assert_eq!((user.delete(&[0; 4]), user.next_key(None).err()), {
            (Err(Errno::EINVAL), Some(Errno::EINVAL))
        });
    }
}
