//! ARRAY and PERCPU_ARRAY: values in a row, found by multiplication.
//!
//! Kernel counterpart: `kernel/bpf/arraymap.c`. Per-CPU values of one CPU lie together, so that a
//! worker's values share no cache line with another's.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use towpath_bpf::{Errno, MapDef};

use crate::access::{Access, Span};
use crate::fields::Fields;
use crate::flags::{BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST};
use crate::layout::Layout;
use crate::memory::{PAGE_BYTES, POPULATED_BYTES_MAX, Region};
use crate::store::{Element, Store, Visit};
use crate::user::Value;

/// ARRAY (one CPU row) or PERCPU_ARRAY (a row for each worker).
#[derive(Debug)]
#[doc(alias = "BPF_MAP_TYPE_ARRAY")]
#[doc(alias = "BPF_MAP_TYPE_PERCPU_ARRAY")]
pub(crate) struct Array {
    region: Region,
    /// Elements in a row.
    entries: u32,
    /// Bytes of a value.
    value_size: usize,
    /// Bytes from one value to the next: the size rounded up to 8.
    stride: usize,
    /// Rows: 1, or the number of workers.
    cpus: usize,
    /// Bytes from one row to the next: whole pages.
    cpu_stride: usize,
    percpu: bool,
    fields: Fields,
    access: Access,
}

impl Array {
    /// `cpus` is `None` for an ordinary array.
    pub(crate) fn new(def: &MapDef, cpus: Option<usize>, fields: Fields) -> Result<Self, Errno> {
        let value_size = def.value_size as usize;
        let stride = value_size.next_multiple_of(8);
        let row = stride as u64 * u64::from(def.max_entries);
        let cpu_stride = row.next_multiple_of(PAGE_BYTES as u64);
        let rows = cpus.unwrap_or(1);
        let bytes = cpu_stride.checked_mul(rows as u64).ok_or(Errno::ENOMEM)?;
        let region = Region::new(bytes)?.in_huge_pages();
        let len = (cpu_stride as usize).min(POPULATED_BYTES_MAX / rows);
        (0..rows).for_each(|cpu| region.populate(cpu * cpu_stride as usize, len));
        Ok(Array {
            region,
            entries: def.max_entries,
            value_size,
            stride,
            cpus: rows,
            cpu_stride: cpu_stride as usize,
            percpu: cpus.is_some(),
            fields,
            access: Access::of_programs(def.flags),
        })
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::Array {
            base: self.region.base(),
            entries: self.entries,
            stride: self.stride as u64,
            cpu_stride: if self.percpu { self.cpu_stride as u64 } else { 0 },
        }
    }

    /// Sets the value of key 0 at start-up, whatever the map's flags say.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        self.region.write(0, &bytes[..bytes.len().min(self.value_size)]);
    }

    fn index(&self, key: &[u8]) -> Option<usize> {
        let index = u32::from_ne_bytes(key.try_into().ok()?);
        (index < self.entries).then_some(index as usize)
    }

    fn offset(&self, cpu: usize, index: usize) -> usize {
        cpu * self.cpu_stride + index * self.stride
    }

    fn row_of(&self, worker: usize) -> usize {
        if self.percpu { worker } else { 0 }
    }

    /// The checks of `array_map_update_elem`, in its order.
    fn check_update(&self, key: &[u8], flags: u64) -> Result<usize, Errno> {
        if flags & !BPF_F_LOCK > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        let index = self.index(key).ok_or(Errno::E2BIG)?;
        if flags & BPF_NOEXIST != 0 {
            return Err(Errno::EEXIST);
        }
        if flags & BPF_F_LOCK != 0 && !self.fields.has_lock() {
            return Err(Errno::EINVAL);
        }
        Ok(index)
    }

    fn store_at(&self, offset: usize, value: &[u8], flags: u64) {
        if flags & BPF_F_LOCK != 0 {
            self.fields.copy_in_locked(&self.region, offset, value);
        } else {
            self.fields.copy_in(&self.region, offset, value);
        }
        self.fields.release(&self.region, offset);
    }
}

impl Store for Array {
    fn preallocated(&self) -> Vec<&Region> {
        vec![&self.region]
    }

    fn spans(&self) -> Vec<Span> {
        let row = (self.stride * self.entries as usize) as u64;
        (0..self.cpus)
            .map(|cpu| {
                let base = self.region.base() + (cpu * self.cpu_stride) as u64;
                Span::values(base, row, self.stride as u64, self.value_size as u64, self.access)
            })
            .collect()
    }

    fn lookup(&self, worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        let index = self.index(key)?;
        Some(self.region.at(self.offset(self.row_of(worker), index)))
    }

    fn lookup_percpu(&self, key: &[u8], cpu: u32) -> Option<NonNull<u8>> {
        let cpu = cpu as usize;
        if !self.percpu || cpu >= self.cpus {
            return None;
        }
        Some(self.region.at(self.offset(cpu, self.index(key)?)))
    }

    fn update(&self, worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        let index = self.check_update(key, flags)?;
        self.store_at(self.offset(self.row_of(worker), index), value, flags);
        Ok(())
    }

    fn delete(&self, _worker: usize, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    fn for_each(&self, worker: usize, visit: &mut Visit<'_>) -> Result<u64, Errno> {
        for index in 0..self.entries {
            let value = self.region.at(self.offset(self.row_of(worker), index as usize));
            let element = Element { key: &index.to_ne_bytes(), key_address: None, value };
            if let ControlFlow::Break(()) = visit(element) {
                return Ok(u64::from(index) + 1);
            }
        }
        Ok(u64::from(self.entries))
    }

    fn element_at(&self, address: u64, visit: &mut dyn FnMut(Element<'_>)) {
        let offset = address.wrapping_sub(self.region.base());
        let index = offset / self.stride as u64;
        if self.percpu || index >= u64::from(self.entries) {
            return;
        }
        let value = self.region.at(self.offset(0, index as usize));
        visit(Element { key: &(index as u32).to_ne_bytes(), key_address: None, value });
    }

    fn read(&self, key: &[u8], locked: bool) -> Result<Value, Errno> {
        let index = self.index(key).ok_or(Errno::ENOENT)?;
        let one = |cpu| {
            let offset = self.offset(cpu, index);
            self.fields.copy_out(&self.region, offset, self.value_size, locked)
        };
        Ok(if self.percpu {
            Value::PerCpu((0..self.cpus).map(one).collect())
        } else {
            Value::One(one(0))
        })
    }

    fn write(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        let index = self.check_update(key, flags)?;
        for (cpu, bytes) in value.cpus().into_iter().enumerate() {
            self.store_at(self.offset(cpu, index), bytes, flags);
        }
        Ok(())
    }

    fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        next_index(key, self.entries)
    }

    fn count(&self) -> Option<u64> {
        Some(u64::from(self.entries))
    }
}

/// The next index of a kind whose slots all exist (`bpf_array_get_next_key`).
pub(crate) fn next_index(key: Option<&[u8]>, entries: u32) -> Result<Vec<u8>, Errno> {
    let index = key.and_then(|key| key.try_into().ok()).map_or(u32::MAX, u32::from_ne_bytes);
    let next = if index >= entries { 0 } else { index + 1 };
    if next < entries { Ok(next.to_ne_bytes().to_vec()) } else { Err(Errno::ENOENT) }
}
