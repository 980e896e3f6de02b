//! Maps, with elements as bpf(2) lays them out.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath::Errno;
use towpath::maps::Value;

use crate::error::Error;

/// `struct towpath_map`
pub(crate) struct Map {
    map: Arc<towpath::maps::Map>,
    /// Records that were taken out of the ring, and not yet returned to C.
    records: Mutex<VecDeque<Vec<u8>>>,
}

impl Map {
    pub(crate) fn new(map: Arc<towpath::maps::Map>) -> Map {
        Map { map, records: Mutex::default() }
    }

    pub(crate) fn map(&self) -> &towpath::maps::Map {
        &self.map
    }

    /// Number of values of an element.
    pub(crate) fn cpus(&self) -> usize {
        if self.map.is_percpu() { self.map.cpus() } else { 1 }
    }

    /// Bytes from one CPU's value to the next.
    fn stride(&self) -> usize {
        let size = self.map.value_size() as usize;
        if self.map.is_percpu() { size.next_multiple_of(8) } else { size }
    }

    fn check(&self, value: usize) -> Result<(), Error> {
        let size = self.stride() * self.cpus();
        if value == size {
            return Ok(());
        }
        let text = format!("map {}: a value has {size} bytes, not {value}", self.map.name());
        Err(Error::new(Errno::EINVAL, &text))
    }

    /// Copies an element to `out`; with `is_taken` it is removed from the map.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        out: &mut [u8],
        flags: u64,
        is_taken: bool,
    ) -> Result<(), Error> {
        self.check(out.len())?;
        let user = self.map.user();
        let value = match is_taken {
            true => user.lookup_and_delete(key, flags)?,
            false => user.lookup(key, flags)?,
        };
        out.fill(0);
        for (room, bytes) in out.chunks_mut(self.stride().max(1)).zip(value.cpus()) {
            room[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(crate) fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Error> {
        self.check(value.len())?;
        let size = self.map.value_size() as usize;
        let values = value.chunks(self.stride().max(1)).map(|value| value[..size].to_vec());
        let value = match self.map.is_percpu() {
            true => Value::PerCpu(values.collect()),
            false => Value::One(value.to_vec()),
        };
        Ok(self.map.user().update(key, &value, flags)?)
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Error> {
        Ok(self.map.user().delete(key)?)
    }

    pub(crate) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        Ok(self.map.user().next_key(key)?)
    }

    /// Copies the oldest record to `room`, and returns its size. A record that does not fit stays.
    pub(crate) fn record(&self, room: &mut [u8]) -> Result<usize, (usize, Error)> {
        let mut records = self.records.lock();
        if records.is_empty() {
            self.map.take_records(|record| records.push_back(record.to_vec()));
        }
        let none = || (0, Error::new(Errno::ENOENT, &"no record"));
        let size = records.front().ok_or_else(none)?.len();
        let Some(room) = room.get_mut(..size) else {
            return Err((size, Error::new(Errno::ENOSPC, &format!("a record of {size} bytes"))));
        };
        if let Some(record) = records.pop_front() {
            room.copy_from_slice(&record);
        }
        Ok(size)
    }
}
