//! `BPF_MAP_*_BATCH`: many elements with one call.
//!
//! Kernel counterpart: `generic_map_*_batch`, and for hash tables
//! `__htab_map_lookup_and_delete_batch`, whose cursor is the number of a bucket: buckets are given
//! whole or not at all.

use towpath_bpf::Errno;
use towpath_bpf::map::Batch;
use towpath_maps::flags::BPF_F_LOCK;

use super::Call;
use crate::attr::batch as field;
use crate::caller::copy_in;
use crate::object::Handle;
use crate::object::contents::Need;
use crate::object::map::{MapObject, flatten};

impl Call<'_> {
    /// `BPF_MAP_LOOKUP_BATCH` and `BPF_MAP_LOOKUP_AND_DELETE_BATCH`
    pub(super) fn lookup_batch(&mut self, delete: bool) -> Result<u32, Errno> {
        let handle = self.batch_handle()?;
        let map = handle.map_for(if delete { Need::BOTH } else { Need::READ })?;
        let known: &[Batch] =
            if delete { &[Batch::Buckets] } else { &[Batch::Slots, Batch::Keys, Batch::Buckets] };
        check_known(map, known)?;
        let flags = self.batch_flags(map)?;
        match map.map().buckets() {
            Some(_) if self.u64(field::FLAGS) != 0 => Err(Errno::EINVAL),
            Some(buckets) => self.lookup_buckets(map, buckets, flags, delete),
            None => self.lookup_keys(map, flags),
        }
    }

    /// Elements of whole buckets.
    fn lookup_buckets(
        &mut self,
        map: &MapObject,
        buckets: u32,
        flags: u64,
        delete: bool,
    ) -> Result<u32, Errno> {
        let count = self.u32(field::COUNT);
        if count == 0 {
            return Ok(0);
        }
        self.answer_count(0)?;
        let mut bucket = match self.u64(field::IN_BATCH) {
            0 => 0,
            cursor => {
                let mut bytes = [0; 4];
                self.caller.read(cursor, &mut bytes)?;
                u32::from_ne_bytes(bytes)
            }
        };
        if bucket >= buckets {
            return Err(Errno::ENOENT);
        }
        let mut done = 0;
        let result = loop {
            let keys = map.map().bucket_keys(bucket);
            if keys.len() as u64 > u64::from(count - done) {
                break if done == 0 { Err(Errno::ENOSPC) } else { Ok(0) };
            }
            for key in keys {
                let value = if delete {
                    map.lookup_and_delete(&key, flags)
                } else {
                    map.lookup(&key, flags)
                };
                match value {
                    Ok(value) => self.put_element(done, &key, &flatten(&value))?,
                    // Deleted meanwhile.
                    Err(Errno::ENOENT) => continue,
                    Err(errno) => return Err(errno),
                }
                done += 1;
            }
            bucket += 1;
            if bucket >= buckets {
                break Err(Errno::ENOENT);
            }
        };
        self.caller.write(self.u64(field::OUT_BATCH), &bucket.to_ne_bytes())?;
        self.answer_count(done)?;
        result
    }

    /// Elements one after another; the cursor is a key.
    fn lookup_keys(&mut self, map: &MapObject, flags: u64) -> Result<u32, Errno> {
        let count = self.u32(field::COUNT);
        if count == 0 {
            return Ok(0);
        }
        self.answer_count(0)?;
        let cursor = self.u64(field::IN_BATCH);
        let key_size = map.map().key_size() as usize;
        let mut last = match cursor {
            0 => None,
            cursor => Some(copy_in(self.caller, cursor, key_size)?),
        };
        let mut done = 0;
        let mut result = Ok(0);
        while done < count {
            let key = match map.next_key(last.as_deref()) {
                Ok(key) => key,
                Err(errno) => {
                    result = Err(errno);
                    break;
                }
            };
            match map.lookup(&key, flags) {
                Ok(value) => {
                    self.put_element(done, &key, &flatten(&value))?;
                    done += 1;
                }
                // Deleted meanwhile, or an empty slot.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            last = Some(key);
        }
        self.answer_count(done)?;
        if let (1.., Some(last)) = (done, &last) {
            self.caller.write(self.u64(field::OUT_BATCH), last)?;
        }
        result
    }

    /// `generic_map_update_batch`
    pub(super) fn update_batch(&mut self) -> Result<u32, Errno> {
        let handle = self.batch_handle()?;
        let map = handle.map_for(Need::WRITE)?;
        check_known(map, &[Batch::Slots, Batch::Keys, Batch::Buckets])?;
        let flags = self.batch_flags(map)?;
        self.each(|call, index| {
            let key = call.element(field::KEYS, index, map.map().key_size() as usize)?;
            let value = call.element(field::VALUES, index, map.value_bytes())?;
            map.update(call.caller, &key, &value, flags)
        })
    }

    /// `generic_map_delete_batch`
    pub(super) fn delete_batch(&mut self) -> Result<u32, Errno> {
        let handle = self.batch_handle()?;
        let map = handle.map_for(Need::WRITE)?;
        check_known(map, &[Batch::Keys, Batch::Buckets])?;
        self.batch_flags(map)?;
        self.each(|call, index| {
            let key = call.element(field::KEYS, index, map.map().key_size() as usize)?;
            map.delete(&key)
        })
    }

    /// Calls a function for each element until it fails, and reports the number of successful
    /// calls.
    fn each(
        &mut self,
        mut change: impl FnMut(&mut Self, u32) -> Result<(), Errno>,
    ) -> Result<u32, Errno> {
        let count = self.u32(field::COUNT);
        if count == 0 {
            return Ok(0);
        }
        let mut done = 0;
        let mut result = Ok(0);
        while done < count {
            if let Err(errno) = change(self, done) {
                result = Err(errno);
                break;
            }
            done += 1;
        }
        self.answer_count(done)?;
        result
    }

    /// `bpf_map_do_batch`
    fn batch_handle(&self) -> Result<Handle, Errno> {
        self.attr.ends_at(field::END)?;
        self.caller.handle(self.u32(field::MAP_FD))
    }

    fn batch_flags(&self, map: &MapObject) -> Result<u64, Errno> {
        let flags = self.u64(field::ELEM_FLAGS);
        if flags & !BPF_F_LOCK != 0 {
            return Err(Errno::EINVAL);
        }
        map.check_lock(flags)?;
        Ok(flags)
    }

    fn element(&self, at: usize, index: u32, size: usize) -> Result<Vec<u8>, Errno> {
        let offset = u64::from(index) * size as u64;
        copy_in(self.caller, self.u64(at).wrapping_add(offset), size)
    }

    fn put_element(&mut self, index: u32, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        for (at, bytes) in [(field::KEYS, key), (field::VALUES, value)] {
            let offset = u64::from(index) * bytes.len() as u64;
            self.caller.write(self.u64(at).wrapping_add(offset), bytes)?;
        }
        Ok(())
    }

    fn answer_count(&mut self, count: u32) -> Result<(), Errno> {
        self.attr.answer(self.caller, field::COUNT, count)
    }
}

/// Whether the kind knows the command.
fn check_known(map: &MapObject, by: &[Batch]) -> Result<(), Errno> {
    let is_known = by.contains(&map.map().kind().spec().batch);
    if is_known { Ok(()) } else { Err(Errno::ENOTSUPP) }
}
